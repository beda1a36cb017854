"""Row rules in a store: written and read back by every database, with the log and the facts that follow it."""

from __future__ import annotations

import msgspec
from support.service.stores import Open, added, content, followed, put, rule, write

from pdp.facts.objects import Change, RowPolicyRemoved
from pdp.facts.snapshot import Facts
from pdp.store.store import Store

NAME = ("lake", "sales.orders")


def test_rules_come_back_whole(store: Store, another: Open) -> None:
    rules = [
        rule(1, author="user:oidc~alice", created=1.25, updated=2.5),
        rule(2, exempt=("role:etl", "user:ü@example.com"), column="Email"),
        rule(2, column="phone"),
        rule(2),
        rule(3, tombstone=True, object_id="7"),
    ]
    before = store.load()
    write(store, [*put(*rules), *added(1)])
    loaded = another().load()
    assert set(loaded.row_rules()) == set(rules)
    assert content(loaded) == content(followed(before, another().since(before))) == content(store.load())
    assert [(one.column, one.id) for one in loaded.rules_of(NAME)] == [
        ("", "r1"), ("", "r2"), ("", "r3"), ("Email", "r2"), ("phone", "r2"),
    ]  # fmt: skip


def test_a_put_replaces_and_a_removal_ends(store: Store) -> None:
    write(store, put(rule(1), rule(1, column="c")))
    newer = msgspec.structs.replace(rule(1), text="TRUE")
    write(store, put(newer))
    assert set(store.load().row_rules()) == {newer, rule(1, column="c")}
    write(store, [RowPolicyRemoved(newer.key), RowPolicyRemoved(rule(1, column="C").key)])
    facts = store.load()
    assert (facts.sequence, list(facts.row_rules()), facts.rules_of(NAME)) == (3, [], ())
    assert len(facts.index.rules) == 0


def test_one_revision_may_change_a_rule_more_than_once(store: Store) -> None:
    write(store, put(rule(1)))
    before = store.load()
    changes: list[Change] = [
        *(RowPolicyRemoved(rule(1).key), *put(rule(1, author="b"))),
        *(*put(rule(2)), RowPolicyRemoved(rule(2).key)),
        *(*put(rule(3)), *put(rule(3, author="c"))),
    ]
    write(store, changes)
    wanted = {rule(1, author="b"), rule(3, author="c")}
    assert set(store.load().row_rules()) == set(followed(before, store.since(before)).row_rules()) == wanted


def test_tables_in_other_spellings_have_rows_of_their_own(store: Store) -> None:
    """The name under which rules cover a table folds case and dots; rows of a store do not."""
    spelled = [
        msgspec.structs.replace(rule(1), table=table)
        for table in (("lake", "sales", "orders"), ("lake", "Sales", "ORDERS"), ("lake", "sales.orders"))
    ]
    write(store, put(*spelled))
    facts = store.load()
    assert len(facts.rules_of(NAME)) == len(list(facts.row_rules())) == 3
    write(store, [RowPolicyRemoved(spelled[1].key)])
    assert {one.table for one in store.load().rules_of(NAME)} == {spelled[0].table, spelled[2].table}


def test_a_change_of_grants_leaves_the_rules_the_very_same(store: Store) -> None:
    """What is compiled from rules is kept as long as the map of the rules is the same."""
    write(store, put(rule(1)))
    facts = store.load()
    later = followed(facts, write(store, added(1)))
    assert later.index.rules is facts.index.rules
    newer = followed(later, write(store, put(rule(2))))
    assert newer.index.rules is not facts.index.rules
    assert len(facts.rules_of(NAME)) == 1


def test_facts_are_made_of_their_own_changes(store: Store) -> None:
    write(store, [*put(rule(1), rule(2, column="c")), *added(1, 2)])
    facts = store.load()
    assert content(Facts.from_changes("e", 1, facts.as_changes())) == content(facts)
