"""Spellings of one body: the same question in other bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from workloads.workload import QUERY, Body


def plain(body: Body, at: int) -> str:
    """Return the body as Trino writes it."""
    return json.dumps(body, separators=(",", ":"))


def spaced(body: Body, at: int) -> str:
    """Return the body with white space: lines and indentation."""
    return json.dumps(body, indent=2)


def reordered(body: Body, at: int) -> str:
    """Return the body with its keys in another order, which differs from body to body."""
    ranks: dict[str, float] = {}
    random = Random(at)

    def sort(value: Any) -> Any:
        if isinstance(value, list):
            return [sort(each) for each in value]
        if not isinstance(value, dict):
            return value
        for key in value:
            ranks.setdefault(key, random.random())
        return {key: sort(value[key]) for key in sorted(value, key=ranks.__getitem__)}

    return plain(sort(body), at)


def newer(body: Body, at: int) -> str:
    """Return the body of a newer client. Trino's has fields that we do not know; a native one has an optional field."""
    if "checks" in body:
        context = {"queryId": f"20261122_{QUERY}_00001_abcde"}
        first, *others = body["checks"]
        return plain({"checks": [{**first, "context": context}, *others]}, at)
    if "context" not in body["input"]:
        return plain(body, at)
    return plain(_with_new_fields(body), at)


def _with_new_fields(body: Body) -> Body:
    context, action = body["input"]["context"], body["input"]["action"]
    identity = {**context["identity"], "enabledRoles": ["reader"], "extraCredentials": {}}
    context = {**context, "identity": identity, "clientTags": ["nightly", "etl"], "source": None}
    action = {**action, "planNode": {"id": "17", "depth": 3}}
    if "resource" in action:
        action["resource"] = _with_table_type(action["resource"])
    else:
        action["filterResources"] = [_with_table_type(each) for each in action["filterResources"]]
    return {"input": {"context": context, "action": action}, "apiVersion": 2}


def _with_table_type(resource: Mapping[str, Any]) -> Body:
    return {"table": {**resource["table"], "tableType": "BASE TABLE", "comment": None}}


SPELLINGS: Final[Mapping[str, Callable[[Body, int], str]]] = {
    "plain": plain,
    "spaced": spaced,
    "reordered": reordered,
    "newer": newer,
}
"""Name -> spelling of a body at its place in the list."""
