"""The seam between the service and every policy model.

An engine is immutable after construction, does no I/O and reads no clock. It is asked once per group with a list of
resources, so that it can specialise on what the group shares and loop cheaply over what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from pdp.facts.snapshot import Facts
from pdp.model.checks import Env, Principal, Reason, Resource, Trace

ABSTAIN: Final = 0
PERMIT: Final = 1
FORBID: Final = 2
FAILED: Final = 3
"""Effects, one byte per resource. FAILED: the engine could not judge; a rule that raised is ABSTAIN, listed."""

EFFECT_NAMES: Final = ("silent", "permit", "forbid", "failed")


class Group(msgspec.Struct, frozen=True, gc=False):
    """What a set of concrete checks shares; never a query or trace id.

    `principal` is whoever the check runs as: an acting role has already become the principal. `type` is concrete.
    `ref` is None where the resource has none and its warehouse has no default.
    """

    principal: Principal
    action: str
    type: str
    warehouse: str
    ref: str | None
    delegated: bool
    env: Env


NO_ERRORS: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType({})


class Verdicts(msgspec.Struct, frozen=True, gc=False):
    """One engine's judgement of a group: sequences of the same length as the resources, no object per item.

    `by[i]` names the one determining rule or grant, the same whatever path found it, None on ABSTAIN.
    `errors[i]` are the ids of rules that raised, sorted.
    """

    effects: bytes
    by: Sequence[Reason | None]
    errors: Mapping[int, tuple[str, ...]] = NO_ERRORS


class Engine(Protocol):
    """A policy model. `digest` identifies the policies it was built from."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str: ...

    @property
    def reads_facts(self) -> bool:
        """Whether its verdicts rest on the facts, so that old facts make them void."""
        ...

    def applies(self, action: str, type: str) -> bool:
        """Whether this engine can judge the action on the concrete type: static for one set of policies."""
        ...

    def decide(self, group: Group, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Judge every resource of the group, in order."""
        ...

    def explain(self, group: Group, resource: Resource, facts: Facts) -> Trace:
        """The same judgement of one resource, with all that led to it."""
        ...
