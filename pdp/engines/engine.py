"""Interface between the service and every policy model.

An engine is immutable after construction, does no I/O and reads no clock. The service calls an engine once per group,
with a list of resources: the engine specialises on the group, and loops cheaply over the resources.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from pdp.facts.objects import ObjectKey
from pdp.facts.snapshot import Facts
from pdp.model.answer import Reason, Trace
from pdp.model.question import Principal, Question, RequestContext, Resource

ABSTAIN: Final = 0
PERMIT: Final = 1
FORBID: Final = 2
FAILED: Final = 3
"""Effects, one byte per resource. FAILED: the engine has no verdict. A rule with an error abstains and is listed."""

ALLOWED_BY_EFFECT: Final = bytes(effect == PERMIT for effect in range(256))
"""Translation table from effects to 0 (denied) or 1 (permitted)."""

EFFECT_NAMES: Final = ("silent", "permit", "forbid", "failed")


class EngineQuestion(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Common part of a set of concrete checks, without a query or trace id.

    The principal of `question` is the subject of the decision: an acting role is already the principal. A question with
    an acting role is about the person behind the role, for forbids alone: `roles` are then the role. `type` is
    concrete. `ref` is None if neither the resource names a ref nor the warehouse has a default.

    Roles by evidence that the question does not show, in order, are empty where no policy counts them. `stored_roles`
    are those of stored memberships, with all roles above, and above mapped roles; None if unknown. `person_roles` are
    all roles of the person who acts as the role that is the principal.
    """

    # INVARIANT: two engine questions are equal only if the whole question is, with fields that no engine reads yet.
    question: Question
    type: str
    warehouse: str
    ref: str | None
    stored_roles: tuple[str, ...] | None = ()
    person_roles: tuple[str, ...] = ()

    @property
    def principal(self) -> Principal:
        """Return the subject of the decision."""
        return self.question.principal

    @property
    def action(self) -> str:
        """Return the catalog action or Nessie check."""
        return self.question.action

    @property
    def delegated(self) -> bool:
        """Tell whether a view switched to the principal, or the caller says so."""
        return self.question.delegated

    @property
    def context(self) -> RequestContext:
        """Return the context of the request."""
        return self.question.context

    @property
    def env(self) -> RequestContext:
        """Return the context, by its old name: for one release."""
        _warn("EngineQuestion.env", "EngineQuestion.context")
        return self.question.context


NO_ERRORS: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType({})


class Verdicts(msgspec.Struct, frozen=True, gc=False):
    """Verdicts of one engine on a group: sequences as long as the resources, without an object per resource.

    `by[i]` names the single determining rule or grant, whatever the order of evaluation; None on ABSTAIN. `errors[i]`
    has the sorted ids of the rules with an error.
    """

    effects: bytes
    by: Sequence[Reason | None]
    errors: Mapping[int, tuple[str, ...]] = NO_ERRORS


SILENT: Final = Verdicts(bytes([ABSTAIN]), (None,))
"""Silence about one resource, without a reason."""
ResourceCall: TypeAlias = Callable[[Resource], Verdicts | None]
"""Prepared question about one resource; None for a resource that only `Engine.decide` can decide.

Equal calls have the same answer for every resource, whatever groups they were prepared for.
"""


class Dependency(Enum):
    """Source of an engine's verdicts, besides the question. A cached verdict is valid while they are the same."""

    POLICIES = "policies"
    """Policies and settings of the bundle."""
    FACTS = "facts"
    """Objects, grants and memberships of one revision. Stale facts make such verdicts void."""
    TIME = "time"
    """Time of the decision: `RequestContext.now` is then set."""


class Cost(Enum):
    """Class of the time that an engine takes for one resource."""

    MICROSECONDS = "microseconds"
    """Less than a round trip to a cache in the same network."""
    MILLISECONDS = "milliseconds"
    """More than such a round trip."""


READS_POLICIES: Final = frozenset({Dependency.POLICIES})
"""Sources of an engine whose verdicts follow from its policies and the question alone."""


class FixedAnswer(msgspec.Struct, frozen=True):
    """Prepared question with the same answer for all resources that have neither a type of content nor properties."""

    verdicts: Verdicts

    def __call__(self, resource: Resource) -> Verdicts | None:
        """Return the verdicts on a resource; None for any other resource."""
        return None if resource.content_type or resource.properties else self.verdicts


DOT_IN_PART: Final = "\x1d"
"""A dot within a part of a path, where dots divide parts."""
ANY_TEXT: Final = "\x1e"
"""Any letters, in a pattern."""


class ForbiddenPath(msgspec.Struct, frozen=True):
    """Text that a forbid compares with paths, joined by dots. `warehouses` None means every warehouse.

    A dot within a part is DOT_IN_PART in `text`, as in the variable `path` of rules. `parts`: whole parts of the path.
    `like`: a pattern with ANY_TEXT for the whole of one part. `forbid` is the same for all texts of one forbid that may
    meet one path together, and empty for a text that meets it alone.
    """

    text: str
    warehouses: frozenset[str] | None = None
    kind: Literal["equals", "starts", "ends", "contains", "parts", "like"] = "equals"
    forbid: str = ""


def of_one_forbid(forbid: str, texts: Iterable[ForbiddenPath]) -> tuple[ForbiddenPath, ...]:
    """Return the texts of a forbid. Several are known to be of one, and so is a text that may meet several parts."""
    found = tuple(texts)
    if len(found) == 1 and found[0].kind not in ("parts", "like"):
        return found
    return tuple([msgspec.structs.replace(text, forbid=forbid) for text in found])


class EngineTraits(Protocol):
    """Description of a policy model: the same whether verdicts come at once or later."""

    @property
    def name(self) -> str:
        """Return the name of the engine in `by` and in the configuration."""
        ...

    @property
    def digest(self) -> str:
        """Return the digest of the engine's policies."""
        ...

    @property
    def reads(self) -> frozenset[Dependency]:
        """Return all that the verdicts rest on besides the question; empty if unknown, then nothing is cached."""
        ...

    @property
    def cost(self) -> Cost:
        """Return the class of the time that a verdict takes."""
        ...

    @property
    def forbids(self) -> bool:
        """Tell whether policies of the engine may deny what other engines permit, by FORBID or FAILED."""
        ...

    @property
    def counts_stored_roles(self) -> bool:
        """Tell whether verdicts rest on roles that the question does not show: see `EngineQuestion`."""
        ...

    def applies(self, action: str, type: str) -> bool:
        """Tell whether the engine can decide the action on the concrete type: constant for one set of policies."""
        ...


class TurnOver(BaseException):
    """End of a call of `Engine.decide` that takes too long: the service asks again about fewer resources.

    No Exception: it is no failure of an engine, and no guard handles it as one.
    """


def go_on() -> None:
    """Do nothing: nobody waits for a turn."""


CHECKPOINT: Final[ContextVar[Callable[[], None]]] = ContextVar("checkpoint", default=go_on)
"""Call between resources for engines that may take long for each: raises TurnOver. No verdict depends on this."""


class Engine(EngineTraits, Protocol):
    """Policy model."""

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Return the verdicts on the resources of the group, in order."""
        ...

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        """Return the verdict on one resource with its derivation."""
        ...


def beyond(engine: Engine) -> Engine | None:
    """Return the engine of the forbids on actions that an engine does not decide; None without such forbids."""
    found: Engine | None = getattr(engine, "beyond", None)
    return found


@runtime_checkable
class PreparingEngine(Protocol):
    """Engine that does the work for a group before it knows the resource."""

    def prepare(self, group: EngineQuestion, facts: Facts) -> ResourceCall | None:
        """Return the call that decides one resource of the group as `decide` does; None for a group without one."""
        ...


@runtime_checkable
class NamingEngine(Protocol):
    """Engine whose policies spell names of objects. Trino folds names, so it asks for these under other spellings."""

    def declared_objects(self) -> Iterable[ObjectKey]:
        """Return the objects whose properties the engine's files declare."""
        ...

    def forbidden_paths(self) -> Iterable[ForbiddenPath]:
        """Return the texts that forbids compare with paths."""
        ...


@runtime_checkable
class AsyncEngine(EngineTraits, Protocol):
    """Policy model that waits for others, such as a remote service. An error, a late or an invalid answer denies.

    The service asks before verdicts are combined. Other requests have their turns meanwhile.
    """

    async def decide(
        self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts, deadline: float
    ) -> Verdicts:
        """Return the verdicts on the resources of the group, in order.

        `deadline` is on the clock of the running event loop, in seconds. The service gives the call up then.
        """
        ...


# --- old names, for one release: engines of other packages import them ---------------------------------------------


class _GroupType(type):
    """Type of the old `Group`: each EngineQuestion counts as one."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, EngineQuestion)


class _Group(metaclass=_GroupType):
    """Old form of EngineQuestion, with the fields of the question side by side."""

    def __new__(  # type: ignore[misc] # a call returns the new form
        cls,
        principal: Principal,
        action: str,
        type: str,
        warehouse: str,
        ref: str | None,
        delegated: bool,
        env: RequestContext,
    ) -> EngineQuestion:
        """Return the question in the new form."""
        return EngineQuestion(Question(principal, action, delegated, context=env), type, warehouse, ref)


_OLD_NAMES: Final[Mapping[str, tuple[str, object]]] = {
    "Group": ("EngineQuestion", _Group),
    "Source": ("Dependency", Dependency),
}
"""Old name -> the new one, and what the old one returns."""


def _warn(old: str, new: str) -> None:
    warnings.warn(f"`{old}` goes with the next release: use `{new}`", DeprecationWarning, stacklevel=3)


if not TYPE_CHECKING:  # a type checker knows the new names alone

    def __getattr__(name: str) -> Any:
        """Return what an old name means, with a warning."""
        if name not in _OLD_NAMES:
            raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
        new, value = _OLD_NAMES[name]
        _warn(f"{__name__}.{name}", f"{__name__}.{new}")
        return value
