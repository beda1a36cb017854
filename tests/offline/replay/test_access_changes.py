"""Row views compared: the filter of the principal, and the second filter of the user of a query behind views."""

from __future__ import annotations

import pytest

from pdp.audit.records.recorded import RecordedOutcome
from pdp.model.answer import Predicate, TableAccess
from pdp.offline.replay.replay import RepeatedAccess
from pdp.offline.replay.table_replay import PolicyAccess, compare_views

OWN = frozenset({"region = 'EU'"})
MORE = Predicate("team = 'a'", "bob")


def access(more: Predicate | None) -> PolicyAccess:
    view = TableAccess(Predicate("region = 'EU'"), (), more)
    return PolicyAccess(RepeatedAccess(RecordedOutcome(True, "row_access:p"), view), OWN)


@pytest.mark.parametrize(
    ("before", "after", "seen", "hidden"),
    [
        (MORE, None, True, False),
        (None, MORE, False, True),
        (MORE, Predicate("true", "bob"), True, True),
        (MORE, Predicate("team = 'a'", "carol"), True, True),
    ],
)
def test_a_change_of_the_filter_of_the_user_is_found(
    before: Predicate | None, after: Predicate | None, seen: bool, hidden: bool
) -> None:
    change = compare_views((), access(before), access(after))
    assert change is not None
    assert (change.rows_seen, change.rows_hidden) == (seen, hidden)
    assert change.kind == ("gained" if seen else "lost")
    assert change.rows_before != change.rows_after


def test_equal_filters_of_the_user_are_no_change() -> None:
    assert compare_views((), access(MORE), access(MORE)) is None
