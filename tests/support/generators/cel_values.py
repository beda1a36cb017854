"""What the tests of the rule language share: where recorded data lies, arguments of rules, values of the recordings."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from support.paths import RECORDED as RECORDED_FOLDER

from pdp.cel import containers, values
from pdp.cel import values as comparison

RECORDED = RECORDED_FOLDER / "nessie"
DEFAULTS: dict[str, Any] = {
    "op": "READ_ENTITY_VALUE",
    "role": "alice",
    "roles": ("alice", "dev"),
    "ref": "main",
    "path": "a.b.c",
    "contentType": "ICEBERG_TABLE",
    "type": "",
    "api": {"apiName": "Nessie", "apiVersion": 2},
    "actions": (),
    "delegated": False,
    "warehouse": "lake",
    "action": "read_data",
    "groups": (),
    "attributes": {},
    "properties": {},
    "now": values.Timestamp(0),
    "arguments": {},
}


def arguments(**changes: Any) -> tuple[Any, ...]:
    """The positional arguments of a compiled rule."""
    return tuple({**DEFAULTS, **changes}.values())


def conformance() -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((RECORDED / "cel_conformance.json").read_text())
    return cases


def recorded(value: Mapping[str, Any]) -> Any:
    """A recorded value as a value of the language."""
    content: Any = value.get("v")
    readers: dict[str, Callable[[], Any]] = {
        "uint": lambda: values.Uint(content),
        "double": lambda: float(content),
        "bytes": lambda: base64.b64decode(content),
        "list": lambda: tuple(map(recorded, content)),
        "map": lambda: containers.build_map((recorded(key), recorded(item)) for key, item in content),
        "type": lambda: values.TypeName(content),
    }
    return readers.get(value["t"], lambda: content)()


def same(left: Any, right: Any) -> bool:
    """The same value of the same kind, the sign of zero included."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or (
            left == right and math.copysign(1, left) == math.copysign(1, right)
        )
    return comparison.equal(left, right)
