"""The native JSON form of loads and changes of views, as HTTP, the command line and case files write it. Only maps."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from pdp.decision.codec import ErrorBody, PrincipalBody, ResourceBody
from pdp.model.checks import Decision, Load
from pdp.strict import decode


class _Body(msgspec.Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    pass


class TokenBody(_Body):
    """What the token of the catalog's own caller said, as the catalog read it."""

    idp: str
    subject: str = ""
    audiences: tuple[str, ...] = ()


class ViewBody(_Body):
    """A view as the catalog resolved it. Without its properties nobody could tell who it runs as."""

    resource: str | ResourceBody
    properties: dict[str, Any]


class LoadBody(_Body):
    """The body of POST /v1/load."""

    target: str | ResourceBody
    action: str
    principal: str | PrincipalBody | UnsetType = UNSET
    acting_role: str | UnsetType = UNSET
    referenced_by: str | list[list[str]] = ""
    views: list[ViewBody] = []
    caller: TokenBody | None = None


class ChangeBody(_Body):
    """The body of POST /v1/commit-view."""

    view: str | ResourceBody
    operation: str
    principal: str | PrincipalBody | UnsetType = UNSET
    acting_role: str | UnsetType = UNSET
    set: dict[str, Any] = {}
    remove: list[str] = []
    caller: TokenBody | None = None


class LoadStep(msgspec.Struct, frozen=True, rename={"as_principal": "as"}):
    """One concrete check of a plan, decided. `as_principal` is whom it was asked for."""

    resource: str
    as_principal: str
    delegated: bool
    action: str
    allowed: bool
    by: tuple[str, ...]


class LoadResult(msgspec.Struct, frozen=True):
    """What came of a load, through its chain, or of a change of a view, which hands out no storage and has no chain.

    `storage_access` is none, read or read_write.
    """

    decision: Decision
    steps: tuple[LoadStep, ...]
    revision: str
    id: str
    storage_access: str = "none"
    load: Load = Load()

    @property
    def referenced_by_used(self) -> bool:
        """Whether there was a chain, and it counted."""
        return bool(self.load.views)


_LOAD = msgspec.json.Decoder(LoadBody)
_CHANGE = msgspec.json.Decoder(ChangeBody)


def decode_load(body: bytes) -> LoadBody:
    """The body of POST /v1/load; raises InvalidArgument."""
    return decode(body, _LOAD, typed=True)


def decode_change(body: bytes) -> ChangeBody:
    """The body of POST /v1/commit-view; raises InvalidArgument."""
    return decode(body, _CHANGE, typed=True)


def encode_load(loaded: LoadResult) -> bytes:
    """The answer of POST /v1/load."""
    load = {"storageAccess": loaded.storage_access, "referencedByUsed": loaded.referenced_by_used}
    return msgspec.json.encode(_answer(loaded, load))


def encode_change(changed: LoadResult) -> bytes:
    """The answer of POST /v1/commit-view."""
    return msgspec.json.encode(_answer(changed, {}))


def _answer(loaded: LoadResult, more: dict[str, Any]) -> dict[str, Any]:
    decision = loaded.decision
    answer = {
        "allowed": decision.allowed,
        "by": decision.by,
        "errors": decision.errors,
        **more,
        "steps": loaded.steps,
        "revision": loaded.revision,
        "decisionId": loaded.id,
    }
    if decision.error:
        answer["error"] = ErrorBody(decision.error.code, decision.error.message)
    return answer if decision.trace is None else answer | {"trace": decision.trace}
