"""What tests of stores write, and how they compare what they find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from pdp.facts.objects import Change, Grant, GrantAdded, Object, RowPolicy, RowPolicyPut
from pdp.facts.snapshot import Facts
from pdp.store.store import LogEntry, Store

Open: TypeAlias = Callable[[], Store]
"""Opens another service's store on the test's database."""


def grant(number: int, id: str = "") -> Grant:
    return Grant(("table", ("lake", "sales", f"t{number}")), "select", "user:oidc~alice", id)


def rule(number: int, column: str = "", **more: Any) -> RowPolicy:
    """A row policy, or a mask of a column."""
    text, kind = ("", "hash") if column else ("region = 'EU'", "")
    return RowPolicy(("lake", "sales", "orders"), f"r{number}", ("allUsers",), text, column=column, kind=kind, **more)


def put(*rules: RowPolicy) -> list[Change]:
    return [RowPolicyPut(one) for one in rules]


def added(*numbers: int) -> list[Change]:
    return [GrantAdded(grant(number)) for number in numbers]


def adding(number: int, log: Sequence[LogEntry]) -> Sequence[Change]:
    """A decision to add one grant, whatever others wrote; its first argument is to be bound."""
    return added(number)


def write(store: Store, changes: Sequence[Change]) -> Sequence[LogEntry]:
    """Write some changes on the newest snapshot; the new revision alone."""
    return store.write("me", store.load(), lambda log: changes)


def followed(facts: Facts, log: Sequence[LogEntry]) -> Facts:
    for revision in log:
        facts = facts.apply(revision.sequence, revision.changes, revision.token)
    return facts


def content(facts: Facts) -> set[Object | Grant | RowPolicy]:
    return {*facts.objects(), *facts.grants(), *facts.row_rules()}
