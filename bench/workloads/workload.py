"""Forms of a workload: the two sides that answer the same questions, and the answers that both must give."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

Body: TypeAlias = dict[str, Any]
"""One request body as JSON."""
RightAnswer: TypeAlias = bool | list[int]
"""Answer to one body: a single decision, or the allowed indices."""
QUERY: Final = "@QID@"
"""Place of the query number in a body. The load generator puts a new number there for each request."""
RULES_FILE: Final = "rules.properties"
MANY: Final = 32
"""Connections that ask single checks."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two servers: the files it starts with, the path that answers, the bodies in order."""

    files: Mapping[str, str]
    path: str
    bodies: Sequence[Body]


@dataclass(frozen=True, slots=True)
class Workload:
    """Questions for two servers. `connections` are the numbers of connections to measure with, one after the other."""

    name: str
    ours: Side
    opa: Side
    right: Sequence[RightAnswer]
    connections: tuple[int, ...] = (MANY, 1)


def pdp_config(warehouses: Mapping[str, Any], engine: str, **more: Any) -> str:
    """Return the text of `pdp.yaml` for one engine. JSON is YAML."""
    return json.dumps({"warehouses": warehouses, "authorities": {"default": {"engines": [engine]}}, **more})


def write(files: Mapping[str, str], folder: Path) -> Path:
    """Write the files of a side; return the folder."""
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def read_answer(answer: Mapping[str, Any], right: RightAnswer) -> Any:
    """Return an answer of either server, in any dialect, in the form of the right answer. Any other form differs from it."""
    if "decisions" in answer:
        allowed = [decision.get("allowed") for decision in answer["decisions"]]
        return allowed[0] if isinstance(right, bool) else [at for at, one in enumerate(allowed) if one]
    if "decision" in answer:
        return answer["decision"]
    for name, field in (("evaluations", "decision"), ("results", "allowed")):
        if name in answer:
            return [at for at, one in enumerate(answer[name]) if one.get(field)]
    result = answer.get("result", False)
    if isinstance(result, dict):
        return result.get("allow")
    return sorted(result) if isinstance(result, list) else result
