"""Checks as gRPC messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import ParseDict

from pdp.surfaces.wire import decision_pb2 as wire


def check_message(check: Mapping[str, Any]) -> wire.Check:
    """Return the message of a check in its JSON form. Raise ParseError if gRPC has no form for the check."""
    data = dict(check)
    if isinstance(data.get("principal"), str):
        data["principal"] = {"id": data["principal"]}
    if isinstance(data.get("resource"), str):
        data["resource"] = {"reference": data["resource"]}
    if "resources" in data:
        data["resources"] = [{"reference": some} if isinstance(some, str) else some for some in data["resources"]]
    if not data.get("context", True):
        del data["context"]
    return ParseDict(data, wire.Check())
