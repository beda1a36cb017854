"""Active policies: all that decides, replaced as a whole: engines, authorities, warehouses and relevant settings.

Immutable. This module knows engines by their protocol only; the composition root chooses the classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from itertools import chain, islice
from typing import Any, Final, Literal

import msgspec
from immutables import Map

from pdp.config.policies import ThroughViews
from pdp.config.warehouses import PolarisSettings, TrinoSettings, WarehouseSettings
from pdp.engines.engine import Cost, Dependency, Engine, ForbiddenPath, beyond
from pdp.engines.grants.model import GRANTED_BELOW
from pdp.engines.guarded import AwaitedEngine, FailedEngine, applying
from pdp.engines.row_access.engine import RowAccessEngine
from pdp.engines.spelled_names import NO_NAMES, SpelledNames, names_below
from pdp.facts.nodes import ObjectNode
from pdp.facts.objects import ContainerPath, FoldedName, ObjectKey, ObjectName
from pdp.facts.snapshot import Facts
from pdp.model.answer import Reason
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import Principal
from pdp.model.vocabulary import CATALOG_ACTIONS, CEL_CHECKS, CREATE_ACTION, USER_RIGHTS, is_cluster_action

_STACKS: Final = 1024
_LONGEST_ACTION: Final = 128
"""Engine stacks that a bundle remembers, and characters of the name of a remembered action."""
_LONG_NAMES: Final = 1 << 14
_DOT: Final = 8
"""Characters of the names by forbids below a namespace that are asked about, and those that a dot counts more."""
_NOTHING: Final[Map[ObjectName, ObjectNode]] = Map()
_ROLES: Final = frozenset({"roles", "member_of"})
"""Evidence of roles in a question."""


class Authority(msgspec.Struct, frozen=True):
    """Engines for some warehouses, in order, and the combination of their verdicts."""

    name: str
    engines: tuple[Engine, ...]
    combine: Literal["any", "all"]


class ShadowAuthority(msgspec.Struct, frozen=True):
    """Authority in report mode: decides beside the others, and changes no answer.

    `bundle` decides as the authority would. No `warehouses` means all.
    """

    bundle: ActivePolicies
    warehouses: frozenset[str]

    def covers(self, warehouse: str) -> bool:
        """Tell whether decisions about a warehouse are compared."""
        return not self.warehouses or warehouse in self.warehouses


class EngineStack(msgspec.Struct, frozen=True):
    """Engines that apply to an action on a type in a warehouse. The first `forbids` of them can only deny."""

    engines: tuple[Engine, ...]
    forbids: int
    combine: Literal["any", "all"]

    single: Engine | None = None
    """The engine that decides alone, if there is one."""

    @property
    def silence(self) -> Reason | None:
        """Return the reason of a denial by silence: that no engine knows the action, or None."""
        return None if len(self.engines) > self.forbids else "unknown_action"


class RowSources(msgspec.Struct, frozen=True):
    """Row policies of files as data, for the processes that rewrite statements.

    `template`, `provider`, `claim` and `service_accounts` spell members. `through` has the readers behind views by
    warehouse, with the general mode under an empty name. `without_barrier` are dialects.
    """

    documents: tuple[Mapping[str, Any], ...] = ()
    protected: tuple[FoldedName, ...] = ()
    template: str = "user:{subject}"
    provider: str = "oidc"
    through: Mapping[str, ThroughViews] = {}
    claim: str = ""
    service_accounts: tuple[str, ...] = ()
    without_barrier: tuple[str, ...] = ()


class ActivePolicies(msgspec.Struct, frozen=True, dict=True):
    """One set of policies. `forbids` run in every authority. `text` has all sources of the bundle as canonical JSON."""

    authorities: Mapping[str, Authority]
    default: Authority
    forbids: tuple[Engine, ...]
    warehouses: Mapping[str, WarehouseSettings]
    trino: TrinoSettings
    row_access: RowAccessEngine
    text: bytes
    digest: str
    warnings: tuple[str, ...] = ()
    role_maps: Mapping[str, Mapping[str, str]] = {}
    """Identity provider -> role in a token -> id of the mapped role."""
    instance_admins: frozenset[str] = frozenset()
    """Ids of users with a permit for every control-plane action."""
    undroppable: tuple[ForbiddenPath, ...] = ()
    """Paths that forbids of drops may name. Facts need not know these objects."""
    spelled: SpelledNames = NO_NAMES
    """Names as policies spell them, for an engine that folds names."""
    reports: tuple[ShadowAuthority, ...] = ()
    """Authorities in report mode."""
    row_sources: RowSources = RowSources()
    unmovable: tuple[ForbiddenPath, ...] = ()
    """Paths that forbids of drops and creations may name: a rename is both."""
    polaris: PolarisSettings = PolarisSettings()
    engine_warehouses: frozenset[str] = frozenset()

    @cached_property
    def _stacks(self) -> BoundedCache[tuple[str, str, str], EngineStack]:
        return BoundedCache(_STACKS, _LONGEST_ACTION)

    @cached_property
    def reads_time(self) -> bool:
        """Tell whether an engine's verdicts rest on the time of the decision."""
        return any(Dependency.TIME in engine.reads for engine in self._engines()) or any(
            reporting.bundle.reads_time for reporting in self.reports
        )

    @cached_property
    def forbids_read(self) -> frozenset[str]:
        """Return the evidence read by forbids: `roles`, `groups`, `attributes`, `attributes.<name>`.

        Forbids of engines of other packages are not known.
        """
        return frozenset[str]().union(*(getattr(engine, "forbids_read", ()) for engine in self._engines()))

    @cached_property
    def _named_roles(self) -> frozenset[str]:
        """Return the roles that engines and settings name. What engines of other packages name is not known."""
        reported = (engine for each in self.reports for engine in each.bundle.default.engines)
        named = (getattr(engine, "named_roles", ()) for engine in chain(self._engines(), reported))
        mapped = (roles.values() for roles in (*self.role_maps.values(), self.trino.groups))
        return frozenset(chain.from_iterable(chain(named, mapped)))

    def names_role(self, role: str, facts: Facts) -> bool:
        """Tell whether policies may name a role, by the id or by the part behind the provider."""
        names = {role, f"~{role}", f"~{role.partition('~')[2]}"}
        return not names.isdisjoint(self._named_roles) or self.row_access.names_role(role, facts)

    def _engines(self) -> Iterator[Engine]:
        """Yield the engines of all authorities, behind those that forbid in each."""
        yield from self.forbids
        for authority in (self.default, *self.authorities.values()):
            yield from authority.engines

    @cached_property
    def folding(self) -> frozenset[str]:
        """Return the warehouses whose names mean the same in any case: those of Hive, and those that engines read.

        LakeQL reads by Trino. Not those of a Nessie, whose own names have a case.
        """
        kinds = {name: known.kind for name, known in self.warehouses.items()}
        hive = {name for name, kind in kinds.items() if kind == "hive"}
        known = kinds.keys() | self.authorities.keys()
        scoped = {name for name in known if any(engine.name == "scopes" for engine in self.authority(name).engines)}
        return frozenset(name for name in self.engine_warehouses | hive | scoped if kinds.get(name) != "nessie")

    @cached_property
    def counts_stored_roles(self) -> bool:
        """Tell whether policies count roles that the question does not show: see `EngineQuestion`."""
        return any(engine.counts_stored_roles for engine in self._engines()) or any(
            reporting.bundle.counts_stored_roles for reporting in self.reports
        )

    @cached_property
    def must_wait(self) -> bool:
        """Tell whether decisions may have to wait for an engine, or are compared with other engines."""
        return bool(self.reports) or self.has_awaited

    @cached_property
    def has_awaited(self) -> bool:
        """Tell whether an engine of an authority must be awaited."""
        stacks = (authority.engines for authority in (self.default, *self.authorities.values()))
        return any(isinstance(engine, AwaitedEngine) for engines in stacks for engine in engines)

    @cached_property
    def has_slow(self) -> bool:
        """Tell whether an engine of an authority takes milliseconds for a resource."""
        stacks = (authority.engines for authority in (self.default, *self.authorities.values()))
        return any(engine.cost is Cost.MILLISECONDS for engines in stacks for engine in engines)

    def through_views(self, warehouse: str) -> ThroughViews:
        """Return whose row policies hold behind views of a warehouse."""
        modes = self.row_sources.through
        return modes.get(warehouse) or modes.get("", "owner")

    @cached_property
    def looks_through_views(self) -> bool:
        """Tell whether row policies of the user of a query hold behind views of any warehouse."""
        return any(mode != "owner" for mode in self.row_sources.through.values())

    def engines_for(self, warehouse: str, action: str, type: str) -> EngineStack:
        """Return the engines that decide an action on a type in a warehouse: the forbidding ones first."""
        key = (warehouse if warehouse in self.authorities else "", action, type)
        stack = self._stacks.get(key)
        if stack is None:
            stack = self._make_stack(warehouse, action, type)
            if not any(isinstance(engine, FailedEngine) for engine in stack.engines):
                self._stacks.keep(key, stack, len(action))
        return stack

    def _make_stack(self, warehouse: str, action: str, type: str) -> EngineStack:
        authority = self.authority(warehouse)
        # The configuration decides a question about the cluster: an engine could only fail, or permit more.
        is_cluster = is_cluster_action(action)
        engines = () if is_cluster else _applying(authority.engines, action, type)
        # Nothing can permit an unknown action, so its denial keeps the reason.
        is_known = is_cluster or (type, action) in CEL_CHECKS or action in CATALOG_ACTIONS.get(type, ())
        is_known |= action in (USER_RIGHTS.values() if type == "user" else GRANTED_BELOW)  # asked for forbids alone
        more = [forbid for engine in authority.engines if (forbid := beyond(engine))]
        forbids = _applying((*self.forbids, *more), action, type) if engines or is_known else ()
        single = engines[0] if len(engines) == 1 and not forbids else None
        return EngineStack((*forbids, *engines), len(forbids), authority.combine, single)

    def may_forbid(self, warehouse: str, action: str, type: str) -> bool:
        """Tell whether an engine can forbid an action on a type in a warehouse."""
        stack = self.engines_for(warehouse, action, type)
        return bool(stack.forbids) or _can_forbid(stack.engines)

    def has_forbids(self, warehouse: str, action: str, type: str) -> bool:
        """Tell whether a policy can forbid an action on a type in a warehouse: not only the failure of an engine."""
        stack = self.engines_for(warehouse, action, type)
        return any(getattr(engine, "has_forbids", engine.forbids) for engine in stack.engines)

    def may_forbid_moves(self, warehouse: str) -> bool:
        """Tell whether a policy can forbid that an object of any type gets another path in a warehouse."""
        places = [(action, "namespace") for action in (*CREATE_ACTION.values(), "move")]
        places += [("rename", type) for type in CREATE_ACTION if type != "namespace"]
        return any(self.has_forbids(warehouse, action, type) for action, type in places)

    def may_forbid_drops(self, warehouse: str) -> bool:
        """Tell whether a policy can forbid the end of an object of any type in a warehouse."""
        return any(self.has_forbids(warehouse, drop_of(type), type) for type in CREATE_ACTION)

    def names_warehouse(self, warehouse: str) -> bool:
        """Tell whether a warehouse would leave policies under another name: a forbid, a policy of rows, an authority.

        True for an engine that forbids and does not tell.
        """
        is_listed = warehouse in self.authorities or self.row_access.restricts_in(warehouse)
        return is_listed or any(
            engine.forbids and getattr(engine, "names_warehouse", lambda _: True)(warehouse)
            for engine in (*self.forbids, *self.authority(warehouse).engines)
        )

    def may_deny_granted(self, facts: Facts) -> bool:
        """Tell whether anything can deny what grants permit: a forbid, another engine, or a row policy or mask."""
        return bool(self.forbids or self.has_row_policies(facts)) or _can_forbid(self._engines())

    def has_row_policies(self, facts: Facts) -> bool:
        """Tell whether rows or columns of any table can be hidden."""
        return bool(self.row_access.tables or self.row_access.protected or facts.index.rules)

    def has_grants_alone(self, warehouse: str, facts: Facts) -> bool:
        """Tell whether stored grants decide a warehouse, and nothing else permits or denies."""
        names = [engine.name for engine in self.authority(warehouse).engines]
        return names == ["grants"] and not self.may_deny_granted(facts)

    def content_below(
        self, facts: Facts | None, container: ContainerPath, most: int, *, dropped: bool = False
    ) -> tuple[ObjectKey, ...]:
        """Return the objects below a namespace that move or end with the namespace; none where no policy can forbid.

        These are known objects, then those that forbids name: facts need not know them, and each may be a table or a
        view. Without `facts`, the latter alone. At most `most`, and that many if the names are long.
        """
        may_forbid = self.may_forbid_drops if dropped else self.may_forbid_moves
        if not may_forbid(container[0]):
            return ()
        every = () if facts is None else self.objects_below(facts, container)
        known = sorted(islice((key for key in every if key[0] in CREATE_ACTION), most))
        paths = names_below(container[0], container[1:], self.undroppable if dropped else self.unmovable)
        places = {(container[0], *path) for path in paths} - {place for _, place in known}
        if sum(len(part) + _DOT * (1 + part.count(".")) for place in places for part in place) > _LONG_NAMES:
            return (("table", container),) * most
        named = ((type, place) for place in sorted(places) for type in ("table", "view"))
        return (*known, *islice(named, most - len(known)))

    def objects_below(self, facts: Facts, container: ContainerPath) -> Iterator[ObjectKey]:
        """Yield the objects below a container that facts know or policies declare."""
        containers = [container]
        while containers:  # no recursion: namespaces can nest without limit
            place = containers.pop()
            known, declared = (objects.get(place, _NOTHING) for objects in (facts.index.objects, self.spelled.declared))
            for type, name in chain(known, (name for name in declared if name not in known)):
                path = (*place, name)
                yield type, path
                if type == "namespace":
                    containers.append(path)

    def authority(self, warehouse: str) -> Authority:
        """Return the authority of a warehouse; the default authority if no other has the warehouse."""
        return self.authorities.get(warehouse, self.default)

    def with_mapped_roles(self, principal: Principal) -> Principal:
        """Return the principal with the mapped roles of the token's roles, by the role map of the provider.

        A principal with `member_of` is returned with these roles: not of a token. Unseen evidence is unknown if a
        forbid reads such evidence. Unknown roles of a token leave memberships unknown where the provider maps roles.
        """
        if principal.unknown or principal.unseen:
            principal = self._with_unknown(principal)
        mapped = self.role_maps.get(principal.name.partition("~")[0]) if principal.roles else None
        if not mapped or principal.type != "user" or principal.member_of:
            return principal
        roles = (mapped[role] for role in principal.roles if role in mapped)
        return msgspec.structs.replace(principal, member_of=tuple(sorted({*principal.member_of, *roles})))

    def other_roles(
        self, principal: Principal, person: Principal | None, facts: Facts, *, stale: bool
    ) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        """Return `stored_roles` and `person_roles` of a question about a principal, if policies count them.

        `person` acts as the principal, which is a role. The owner of a view in between acts as nobody.
        """
        if person is None or principal.type != "role":
            return None if stale else facts.ordered_roles_of(principal), ()
        if stale or not _ROLES.isdisjoint(person.unknown):
            return None, ()
        own = {*person.roles, *facts.ordered_roles_of(person)}
        return facts.ordered_roles_of(principal), tuple(sorted(own))

    def _with_unknown(self, principal: Principal) -> Principal:
        unknown = {*principal.unknown, *(name for name in principal.unseen if self._is_read_by_forbids(name))}
        if "roles" in unknown and self.role_maps.get(principal.name.partition("~")[0]):
            unknown.add("member_of")
        return msgspec.structs.replace(principal, unknown=tuple(sorted(unknown)), unseen=())

    def _is_read_by_forbids(self, name: str) -> bool:
        variable, _, key = name.partition(".")
        return variable in self.forbids_read or (bool(key) and name in self.forbids_read)

    def default_ref(self, warehouse: str) -> str | None:
        """Return the default ref of a warehouse; None if unknown, empty for a warehouse without refs."""
        known = self.warehouses.get(warehouse)
        if known is None:
            return None
        return "" if known.refs else known.default_ref


def drop_of(type: str) -> str:
    """Return the action that ends an object of a type below a warehouse."""
    return "delete" if type == "namespace" else "drop"


def _can_forbid(engines: Iterable[Engine]) -> bool:
    return any(engine.forbids for engine in engines)


def _applying(engines: Iterable[Engine], action: str, type: str) -> tuple[Engine, ...]:
    return tuple(found for engine in engines if (found := applying(engine, action, type)))


def source_text(sources: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return sources as canonical JSON, and the digest of 16 hex digits that revisions and records show.

    Keys are sorted, except where their order has a meaning.
    """
    text = msgspec.json.encode({**sources, **_ordered_parts(sources)}, order="sorted")
    return text, sha256(text).hexdigest()[:16]


def _ordered_parts(sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of sources with an order of keys of their own, encoded in that order.

    `SELECT *` has the columns of `tables` in their order. A package may read its options in their order.
    """
    found: dict[str, Any] = {}
    if "rowAccess" in sources:
        found["rowAccess"] = [
            {**document, "tables": {name: _keep(table, "columns") for name, table in document["tables"].items()}}
            if "tables" in document
            else document
            for document in sources["rowAccess"]
        ]
    if "engines" in sources:
        found["engines"] = {name: _keep(engine, "options") for name, engine in sources["engines"].items()}
    return found


def _keep(part: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return {**part, key: msgspec.Raw(msgspec.json.encode(part[key]))} if key in part else part
