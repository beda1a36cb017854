"""JSON bodies and answers of loads and changes of views, for HTTP, the command line and case files."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from pdp.decision.bodies import ErrorBody, JsonBody, PrincipalBody, ResourceBody
from pdp.model.answer import Decision
from pdp.model.question import Load
from pdp.model.strict import decode


class TokenBody(JsonBody):
    """The token of the catalog's own caller, as the catalog read the token."""

    idp: str
    subject: str = ""
    audiences: tuple[str, ...] = ()


class ViewBody(JsonBody):
    """A resolved view of the catalog with all properties. The properties name the owner."""

    resource: str | ResourceBody
    properties: dict[str, Any]


class LoadBody(JsonBody):
    """Body of POST /v1/load."""

    target: str | ResourceBody
    action: str
    principal: str | PrincipalBody | UnsetType = UNSET
    acting_role: str | UnsetType = UNSET
    referenced_by: str | list[list[str]] = ""
    views: list[ViewBody] = msgspec.field(default_factory=list)
    caller: TokenBody | None = None


class ChangeBody(JsonBody):
    """Body of POST /v1/commit-view."""

    view: str | ResourceBody
    operation: str
    principal: str | PrincipalBody | UnsetType = UNSET
    acting_role: str | UnsetType = UNSET
    set: dict[str, Any] = msgspec.field(default_factory=dict)
    remove: list[str] = msgspec.field(default_factory=list)
    caller: TokenBody | None = None


class LoadStep(msgspec.Struct, frozen=True, rename={"as_principal": "as"}):
    """One decided concrete check of a plan. `as_principal` is the id of the principal of the check."""

    resource: str
    as_principal: str
    delegated: bool
    action: str
    allowed: bool
    by: tuple[str, ...]


class LoadResult(msgspec.Struct, frozen=True):
    """The decision on a load or on a change of a view, with the steps of the plan.

    `storage_access` is none, read or read_write. A change has no storage access and an empty `load`.
    """

    decision: Decision
    steps: tuple[LoadStep, ...]
    revision: str
    id: str
    storage_access: str = "none"
    load: Load = Load()

    @property
    def referenced_by_used(self) -> bool:
        """Tell whether the chain of the load was used: present and not ignored."""
        return bool(self.load.views)


_LOAD = msgspec.json.Decoder(LoadBody)
_CHANGE = msgspec.json.Decoder(ChangeBody)


def decode_load(body: bytes) -> LoadBody:
    """Return the body of POST /v1/load; raise InvalidArgument."""
    return decode(body, _LOAD, typed=True)


def decode_change(body: bytes) -> ChangeBody:
    """Return the body of POST /v1/commit-view; raise InvalidArgument."""
    return decode(body, _CHANGE, typed=True)


def encode_load(result: LoadResult) -> bytes:
    """Return the answer of POST /v1/load."""
    access = {"storageAccess": result.storage_access, "referencedByUsed": result.referenced_by_used}
    return msgspec.json.encode(_answer(result, access))


def encode_change(result: LoadResult) -> bytes:
    """Return the answer of POST /v1/commit-view."""
    return msgspec.json.encode(_answer(result, {}))


def _answer(result: LoadResult, access: dict[str, Any]) -> dict[str, Any]:
    decision = result.decision
    answer = {
        "allowed": decision.allowed,
        "by": decision.by,
        "errors": decision.errors,
        **access,
        "steps": result.steps,
        "revision": result.revision,
        "decisionId": result.id,
    }
    if decision.error:
        answer["error"] = ErrorBody(decision.error.code, decision.error.message)
    return answer if decision.trace is None else answer | {"trace": decision.trace}
