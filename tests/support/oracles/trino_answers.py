"""What Trino takes as an answer without surprise, judged by the bytes alone; and bodies that no Trino would send."""

from __future__ import annotations

import json
from typing import Any

ENDPOINTS = ("allow", "batch", "rowFilters", "columnMask", "batchColumnMasks")
WARNING = {"code": "api_usage_warning", "message": "'input' key missing from the request"}
_WITHOUT_INPUT = {"allow": {"result": False, "warning": WARNING}, "batch": {"result": [], "warning": WARNING}}
"""Endpoint -> the one answer to a body without an input, which no Trino sends."""


def objection(endpoint: str, body: Any, status: int, answer: bytes) -> str | None:
    """What is wrong with an answer to `body` (parsed, None where it is no JSON); None where nothing is.

    An answer is exactly what the endpoint has to say with status 200, or an error with its body.
    """
    try:
        said = json.loads(answer, object_pairs_hook=_once)
    except ValueError as error:
        return f"no JSON: {error}"
    if status != 200:
        return _error(status, said)
    if isinstance(said, dict) and "warning" in said:
        return None if said == _WITHOUT_INPUT.get(endpoint) and _lacks_input(body) else "a warning that is none"
    if not isinstance(said, dict) or said.keys() - {"result"}:
        return "not an object with a result alone"
    if endpoint == "columnMask" and said == {}:
        return None
    if "result" not in said:
        return "undefined"
    result = said["result"]
    if endpoint == "allow":
        return None if result is True or result is False else "neither true nor false"
    if endpoint == "batch":
        return _indices(result, _size(body))
    if endpoint == "columnMask":
        return _expression(result)
    if endpoint == "rowFilters":
        return _all_of(result, _expression)
    return _all_of(result, _mask) or _indices([mask["index"] for mask in result], _size(body))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _error(status: int, said: Any) -> str | None:
    if not 400 <= status < 600:
        return f"status {status}"
    error: Any = said["error"] if isinstance(said, dict) and said.keys() == {"error", "code", "message"} else None
    if not isinstance(error, dict) or error.keys() != {"code", "message"}:
        return "an error without a code and a message"
    if said["message"] != error["message"] or not isinstance(said["code"], str) or not said["code"]:
        return "an error without the fields of OPA"
    return None if all(isinstance(text, str) and text for text in error.values()) else "an error that says nothing"


def _lacks_input(body: Any) -> bool:
    return body is None or (isinstance(body, dict) and body.get("input") is None)


def _indices(result: Any, size: int) -> str | None:
    if not isinstance(result, list) or any(type(at) is not int for at in result):
        return "not a list of integers"
    if result != sorted(set(result)):
        return "out of order, or twice"
    return None if all(0 <= at < size for at in result) else "out of range"


def _size(body: Any) -> int:
    """How many things a batch asks about: its resources, or the columns of its one table."""
    try:
        action = body["input"]["action"]
        named = action["filterResources"]
        if action["operation"] == "FilterColumns":
            named = named[0]["table"]["columns"] if named else []
        return len(named)
    except (KeyError, TypeError, IndexError):
        return 0


def _all_of(result: Any, wrong: Any) -> str | None:
    if not isinstance(result, list):
        return "not a list"
    return next((found for item in result if (found := wrong(item))), None)


def _expression(said: Any) -> str | None:
    if not isinstance(said, dict) or said.keys() - {"expression", "identity"} or "expression" not in said:
        return "not an expression"
    return None if all(isinstance(text, str) and text.strip() for text in said.values()) else "an empty expression"


def _mask(said: Any) -> str | None:
    if not isinstance(said, dict) or said.keys() != {"index", "viewExpression"}:
        return "not an index with an expression"
    return _expression(said["viewExpression"]) or (None if type(said["index"]) is int else "an index that is none")


# --- readers of OPA's answers other than Trino ------------------------------------------------------------------------


def readers_that_allow(status: int, answer: bytes) -> set[str]:
    """The clients of OPA that read an answer as an allow, as they were recorded.

    Trino reads `result`, and StarRocks a `result` that is a boolean; Kafka reads it whatever the status; Polaris reads `result.allow`.
    """
    try:
        said = json.loads(answer)
    except ValueError:
        return set()
    result = said.get("result") if isinstance(said, dict) else None
    inner = result.get("allow") if isinstance(result, dict) else None
    found = {
        "trino": 200 <= status < 300 and _as_boolean(result),
        "starrocks": 200 <= status < 300 and result is True,
        "kafka": _as_boolean(result),
        "polaris": status == 200 and _as_boolean(inner),
    }
    return {reader for reader, allows in found.items() if allows}


def readers_that_show_all(status: int, answer: bytes) -> set[str]:
    """The clients that read an answer as no filter or no mask.

    Trino reads no result so, StarRocks a result of null; both read an empty list so.
    """
    try:
        said = json.loads(answer)
    except ValueError:
        return set()
    if not 200 <= status < 300 or not isinstance(said, dict):
        return set()
    empty = said.get("result") in (None, [])
    return {reader for reader, shows in (("trino", empty), ("starrocks", empty and "result" in said)) if shows}


def ranger_allows(status: int, answer: bytes) -> bool:
    """Whether a client of Ranger's PDP finds an allow anywhere in an answer."""
    return 200 <= status < 300 and b'"ALLOW"' in answer


def _as_boolean(value: Any) -> bool:
    """Jackson's `asBoolean`: true, numbers but 0, and the text `true`."""
    return value is True or (type(value) in (int, float) and value != 0) or value == "true"
