"""Stored row policies and column masks on behalf of an actor: list, get, write and drop, also by DDL.

Owns the right to use these operations and their records. `row_policy_edits` judges edits; knows no wire format.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pdp.decision.service import Pdp
from pdp.decision.turns import run_aside
from pdp.engines.grants.edits import MANAGE, Actor
from pdp.errors import AmbiguousName, InvalidArgument, NotFound
from pdp.facts.objects import (
    Change,
    FoldedName,
    ObjectKey,
    RowPolicy,
    TablePath,
    fold_column,
    fold_name,
    key_text,
    resource_of,
)
from pdp.facts.snapshot import Facts
from pdp.management.forbidden_edits import denials_of, refuse_forbidden, unforbidden
from pdp.management.requests import ManagementRequest, PageRequest, Requester, recorded
from pdp.management.row_policy_edits import (
    READ,
    RowPoliciesClear,
    RowPolicyAdministration,
    RowPolicyDrop,
    RowPolicyWrite,
    RuleEdit,
    find_rule,
    known_tables,
)
from pdp.management.service import CHECK_BATCH, Management
from pdp.model.answer import Reason
from pdp.model.question import Caller, Check
from pdp.model.vocabulary import TABULAR_TYPES

if TYPE_CHECKING:
    from pdp.rewrite.policy_statements import PolicyStatement

PERMISSIONS: Final = {
    "rowAccessPolicies.create": MANAGE,
    "rowAccessPolicies.delete": MANAGE,
    "rowAccessPolicies.get": READ,
    "rowAccessPolicies.list": READ,
    "rowAccessPolicies.update": MANAGE,
}
"""Permission -> action on the table that the permission requires."""
_VENDOR: Final = "bigquery."
_OF_STORES: Final = frozenset({"author", "created", "updated", "tombstone", "object_id"})
"""Fields of a rule that the store gives, and no edit."""
MOST_RULES: Final = 10_000
"""Edits of rules in one request."""
MOST_PERMISSIONS: Final = 100
"""Permissions in one request."""


class RowPolicyPage(msgspec.Struct, frozen=True):
    """A page of rules, in order. `next` names the last entry of the page, "" on the last page."""

    rules: Sequence[RowPolicy]
    next: str
    revision: str


class HeldPermissions(msgspec.Struct, frozen=True):
    """Permissions that an actor has, by the facts of a revision."""

    names: tuple[str, ...]
    revision: str


class RowPolicyResult(msgspec.Struct, frozen=True):
    """Result of a write of rules: the revision, and the named rules after the write, None for a missing rule.

    `warnings` are about unknown names of written rules.
    """

    revision: str
    rules: Sequence[RowPolicy | None]
    warnings: tuple[str, ...] = ()


class StatementResult(msgspec.Struct, frozen=True):
    """Result of a DDL statement. `changed` tells whether any rule changed; IF EXISTS may change none."""

    operation: str
    revision: str
    changed: bool
    warnings: tuple[str, ...] = ()


class RowPolicyService:
    """Operations on row policies and masks. Every one raises Forbidden, NotFound, InvalidArgument or Unavailable."""

    def __init__(self, pdp: Pdp, management: Management) -> None:
        self._pdp = pdp
        self._management = management

    async def write(self, requester: Requester, edits: Sequence[RuleEdit]) -> RowPolicyResult:
        """Write and drop rules, all or nothing."""
        if len(edits) > MOST_RULES:
            raise InvalidArgument(f"{len(edits)} rules in one request, the limit is {MOST_RULES}")
        work = self._write(requester, edits)
        facts = await recorded(self._pdp.audit, write_request(requester, edits), work, self._management.revision)
        found = [_written(facts, edit) for edit in edits if not isinstance(edit, RowPoliciesClear)]
        warnings = await self._remarks(facts, requester, edits)
        return RowPolicyResult(self._management.revision(facts), found, warnings)

    async def get_rule(self, requester: Requester, table: TablePath, id: str, column: str = "") -> RowPolicyPage:
        """Return a page with one rule. Raise NotFound for a missing rule."""
        asked: dict[str, Any] = {"table": _table_text(table), "id": id} | ({"column": column} if column else {})
        work = self._get(requester, table, id, column)
        return await recorded(
            self._pdp.audit, ManagementRequest("get_row_rule", requester, asked), work, lambda page: page.revision
        )

    async def list_rules(
        self, requester: Requester, table: TablePath | None, page: PageRequest, *, masks: bool
    ) -> RowPolicyPage:
        """Return a page of the row policies, or of the masks, of a table; without a table, of all readable tables."""
        asked: dict[str, Any] = {"table": _table_text(table)} if table else {}
        work = self._list(requester, table, page, masks=masks)
        request = ManagementRequest("list_row_rules", requester, asked | {"masks": masks})
        return await recorded(self._pdp.audit, request, work, lambda found: found.revision)

    async def permissions(self, requester: Requester, table: TablePath, asked: Sequence[str]) -> tuple[str, ...]:
        """Return the permissions, of some named ones, that the actor has on the rules of a table."""
        named: dict[str, Any] = {"table": _table_text(table), "permissions": list(asked[:MOST_PERMISSIONS])}
        request = ManagementRequest("test_row_rule_permissions", requester, named)
        work = self._permissions(requester, table, asked)
        return (await recorded(self._pdp.audit, request, work, lambda found: found.revision)).names

    async def execute(
        self, requester: Requester, statement: PolicyStatement, default: Sequence[str] = ()
    ) -> StatementResult:
        """Carry out a DDL statement on row access policies. `default` completes the name of the table.

        Raise RewriteRefused besides, for a name that cannot be read.
        """
        from pdp.management.row_policy_statements import edit_of, operation_of  # noqa: PLC0415  its parser of SQL takes 30 MB

        edit = edit_of(statement, default)
        changes: list[Change] = []
        work = self._write(requester, (edit,), changes)
        facts = await recorded(self._pdp.audit, write_request(requester, (edit,)), work, self._management.revision)
        warnings = await self._remarks(facts, requester, (edit,))
        return StatementResult(operation_of(statement), self._management.revision(facts), bool(changes), warnings)

    async def denials(self, caller: Caller, checks: Sequence[Check]) -> Sequence[Reason | None]:
        """Return the reason of each check that a policy, or the failure of an engine, denies, else None.

        No check needs a permit, and none is recorded.
        """
        return await denials_of(self._pdp, caller, checks)

    async def _write(
        self, requester: Requester, edits: Sequence[RuleEdit], written: list[Change] | None = None
    ) -> Facts:
        """Write the changes of edits; leave them in `written`. Return the facts after the write."""
        rules, now = self._administration(), time.time()
        await self._pdp.await_consistency("full")
        facts = self._pdp.source.facts
        # Rights come first: an actor without them learns nothing of rules, and costs no parsing.
        managed = rules.managed_objects(facts, self._management.actor(facts, requester), edits)
        await refuse_forbidden(
            self._pdp, requester, [(MANAGE, resource_of(key)) for key in self._meant(requester, managed)]
        )
        await run_aside(rules.check, facts, self._management.actor(facts, requester), edits)

        def decide(facts: Facts, actor: Actor) -> Sequence[Change]:
            changes = rules.edit(facts, actor, edits, now)
            if written is not None:
                written[:] = changes
            return changes

        return await self._management.write(requester, decide)

    async def _remarks(self, facts: Facts, requester: Requester, edits: Sequence[RuleEdit]) -> tuple[str, ...]:
        """Return the warnings about names of written rules."""
        return await run_aside(self._administration().remarks, facts, self._management.actor(facts, requester), edits)

    async def _get(self, requester: Requester, table: TablePath, id: str, column: str) -> RowPolicyPage:
        facts = await self._management.facts(requester)
        await self._require_read(facts, requester, table)
        found = find_rule(facts, table, id, column)
        if found is None:
            raise NotFound(f"there is no `{id}` for `{_table_text(table)}`")
        return RowPolicyPage((found,), "", self._management.revision(facts))

    async def _permissions(self, requester: Requester, table: TablePath, asked: Sequence[str]) -> HeldPermissions:
        if len(asked) > MOST_PERMISSIONS:
            raise InvalidArgument(f"more than {MOST_PERMISSIONS} permissions in one request")
        unknown = next((name for name in asked if name.removeprefix(_VENDOR) not in PERMISSIONS), None)
        if unknown is not None:
            raise InvalidArgument(f"no permission `{unknown}`: there are {', '.join(sorted(PERMISSIONS))}")
        facts = await self._management.facts(requester)
        actor, rules = self._management.actor(facts, requester), self._administration()
        held = dict.fromkeys(PERMISSIONS[name.removeprefix(_VENDOR)] for name in asked)
        tables = self._meant(requester, known_tables(facts, table))
        for action in held:
            held[action] = rules.may(facts, actor, action, table) and await self._unforbidden(requester, action, tables)
        names = tuple(name for name in asked if held[PERMISSIONS[name.removeprefix(_VENDOR)]])
        return HeldPermissions(names, self._management.revision(facts))

    async def _list(
        self, requester: Requester, table: TablePath | None, page: PageRequest, *, masks: bool
    ) -> RowPolicyPage:
        facts = await self._management.facts(requester)
        actor = self._management.actor(facts, requester)
        if table is not None:
            await self._require_read(facts, requester, table)
        named = await run_aside(self._readable, facts, actor, table, masks)
        rest = [(name, rule) for name, rule in named if name > page.after]
        if table is None:
            rest = await self._shown(facts, requester, rest, page.size + 1)
        entries = rest[: page.size]
        more = entries[-1][0] if len(rest) > page.size else ""
        return RowPolicyPage([rule for _, rule in entries], more, self._management.revision(facts))

    async def _require_read(self, facts: Facts, requester: Requester, table: TablePath) -> None:
        """Raise Forbidden if the actor may not read the rules of a table, or if a policy denies that."""
        self._administration().require(facts, self._management.actor(facts, requester), READ, table)
        asked = [(READ, resource_of(key)) for key in self._meant(requester, known_tables(facts, table))]
        await refuse_forbidden(self._pdp, requester, asked)

    async def _unforbidden(self, requester: Requester, action: str, tables: Sequence[ObjectKey]) -> bool:
        return len(await unforbidden(self._pdp, requester, action, tables)) == len(tables)

    async def _shown(
        self, facts: Facts, requester: Requester, named: Sequence[tuple[str, RowPolicy]], count: int
    ) -> list[tuple[str, RowPolicy]]:
        """Return the first rules on tables without a forbid of the reading."""
        shown: list[tuple[str, RowPolicy]] = []
        for start in range(0, len(named), CHECK_BATCH):
            part = named[start : start + CHECK_BATCH]
            spelled: dict[FoldedName, list[ObjectKey]] = {}
            for _, rule in part:
                with suppress(AmbiguousName):  # such a rule is shown to nobody
                    spelled[rule.covers] = self._meant(requester, known_tables(facts, rule.table))
            keys = [key for tables in spelled.values() for key in tables]
            readable = await unforbidden(self._pdp, requester, READ, keys)
            shown += [each for each in part if (found := spelled.get(each[1].covers)) and readable.issuperset(found)]
            if len(shown) >= count:
                break
        return shown

    def _readable(
        self, facts: Facts, actor: Actor, table: TablePath | None, masks: bool
    ) -> list[tuple[str, RowPolicy]]:
        """Return the rules readable to an actor, by name."""
        rules, readable = self._administration(), dict[FoldedName, bool]()
        found = []
        for rule in facts.row_rules() if table is None else facts.rules_of(fold_name(table[0], table[1:])):
            known = readable.get(rule.covers)
            if known is None:
                known = readable[rule.covers] = table is not None or rules.may(facts, actor, READ, rule.table)
            if known and bool(rule.column) == masks:
                found.append((rule_name(rule), rule))
        return sorted(found, key=lambda each: each[0])

    def _meant(self, requester: Requester, objects: Iterable[ObjectKey]) -> list[ObjectKey]:
        """Return objects, with those of forbids that a policy of a table covers, too: it covers every spelling.

        An operator is denied nothing. Raise AmbiguousName for too many.
        """
        found = dict.fromkeys(objects)
        for type, (warehouse, *path) in tuple(found) if requester.principal else ():
            if type in TABULAR_TYPES:
                others = self._pdp.bundle.spelled.other_paths(warehouse, path)
                found |= dict.fromkeys((kind, (warehouse, *other)) for other in others for kind in ("table", "view"))
        return list(found)

    def _administration(self) -> RowPolicyAdministration:
        return RowPolicyAdministration(self._management.rights, self._pdp.bundle.row_access)


def rule_name(rule: RowPolicy) -> str:
    """Return the name of a rule, which sorts rules by table, column and id."""
    return "\0".join((_table_text(rule.table), fold_column(rule.column), rule.id))


def write_request(requester: Requester, edits: Sequence[RuleEdit]) -> ManagementRequest:
    """Return the request to write rules, for its record."""
    asked: dict[str, Any] = {}
    for edit in edits:
        if isinstance(edit, RowPolicyWrite):
            asked.setdefault("put", []).append(_rule_entry(edit.rule) | {"mode": edit.mode})
        elif isinstance(edit, RowPolicyDrop):
            column = {"column": edit.column} if edit.column else {}
            asked.setdefault("drop", []).append({"table": _table_text(edit.table), "id": edit.id} | column)
        else:
            asked.setdefault("clear", []).append({"table": _table_text(edit.table)})
    return ManagementRequest("write_row_rules", requester, asked, changes=True)


def _rule_entry(rule: RowPolicy) -> dict[str, Any]:
    fields = msgspec.to_builtins(rule) | {"table": _table_text(rule.table)}
    return {name: value for name, value in fields.items() if value and name not in _OF_STORES}


def _written(facts: Facts, edit: RowPolicyWrite | RowPolicyDrop) -> RowPolicy | None:
    if isinstance(edit, RowPolicyWrite):
        return find_rule(facts, edit.rule.table, edit.rule.id, edit.rule.column)
    return find_rule(facts, edit.table, edit.id, edit.column)


def _table_text(table: TablePath) -> str:
    return key_text(("table", table))
