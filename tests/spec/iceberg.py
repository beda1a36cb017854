"""Predicates of Iceberg in the plainest Python.

See https://iceberg.apache.org/expressions-spec. A `row` maps field ids to values. `signed_zeros`: -0.0 is below 0.0.
"""

import datetime as dt
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

Row = Mapping[int, Any]
PROMOTED = {("int", "long"), ("float", "double")}
READ: dict[str, Callable[[str], Any]] = {
    "boolean": bool, "int": int, "long": int, "float": float, "double": float, "string": str, "date": dt.date.fromisoformat,
    "timestamp": dt.datetime.fromisoformat, "timestamptz": dt.datetime.fromisoformat, "decimal": Decimal,
}  # fmt: skip


def literal(value: Any, type: str) -> Any:
    """Return the value of a literal, whose JSON is of the form in the table specification."""
    name = type.partition("(")[0]
    assert isinstance(value, bool) == (name == "boolean")
    assert isinstance(value, str) == (name in ("string", "date", "timestamp", "timestamptz", "decimal"))
    if name == "decimal":
        assert len(value.partition(".")[2]) == int(type.rstrip(")").rpartition(",")[2])
    if name.startswith("timestamp"):
        assert value.endswith("+00:00") == (name == "timestamptz")
    return READ[name](value)


def same(a: Any, b: Any, signed_zeros: bool) -> Any:
    if a is None or b is None:
        return a is b
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    return a == b and not (
        signed_zeros and a == 0 and isinstance(a, float) and math.copysign(1, a) != math.copysign(1, b)
    )


def below(a: Any, b: Any, signed_zeros: bool) -> Any:
    if a is None or b is None or "nan" in (str(a), str(b)):
        return False
    if isinstance(a, str):
        return a.encode() < b.encode()
    if signed_zeros and isinstance(a, float) and a == b == 0:
        return math.copysign(1, a) < math.copysign(1, b)
    return a < b


def holds(predicate: Any, row: Row, types: Mapping[int, str], *, signed_zeros: bool = False) -> Any:
    """Evaluate a predicate. Fail for what a reader could not bind: an unknown id, a literal of another type."""
    if isinstance(predicate, bool):
        return predicate
    kind = predicate["type"]
    if kind in ("and", "or"):
        left, right = (holds(predicate[side], row, types, signed_zeros=signed_zeros) for side in ("left", "right"))
        return (left and right) if kind == "and" else (left or right)
    if "child" in predicate:
        value = row[predicate["child"]["id"]]
        if kind in ("in", "not-in"):
            values = predicate["values"]
            assert values["data-type"] == types[predicate["child"]["id"]]
            return any(same(value, literal(one, values["data-type"]), signed_zeros) for one in values["values"]) == (
                kind == "in"
            )
        found = value is None if kind in ("is-null", "not-null") else value is not None and math.isnan(value)
        return found == kind.startswith("is-")
    id, right = predicate["left"]["id"], predicate["right"]
    type = right["data-type"] if right["type"] == "literal" else types[right["id"]]
    assert type == types[id] or (types[id], type) in PROMOTED
    a, b = row[id], row[right["id"]] if right["type"] == "reference" else literal(right["value"], type)
    if kind.endswith("starts-with"):
        return (a is not None and a.startswith(b)) == (kind == "starts-with")
    equal, less, more = same(a, b, signed_zeros), below(a, b, signed_zeros), below(b, a, signed_zeros)
    return {"eq": equal, "not-eq": not equal, "lt": less, "gt": more, "lt-eq": less or equal, "gt-eq": more or equal}[
        kind
    ]
