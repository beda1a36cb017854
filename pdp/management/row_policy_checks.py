"""Refusals of a row policy or mask before a write. The faults are those of an entry in a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pdp.engines.row_access.engine import RowAccessEngine
from pdp.engines.row_access.entries import entry_name, faults_of
from pdp.engines.row_access.policies import policy_path, table_path
from pdp.errors import InvalidArgument, InvalidFilter, InvalidReference
from pdp.facts.row_policies import RowPolicy, TablePath

MOST_GRANTEES: Final = 1_000


def check_rule(rule: RowPolicy, access: RowAccessEngine) -> None:
    """Raise InvalidArgument for an unsound rule, InvalidFilter for an unsound filter or expression.

    `access` knows the columns of tables that files describe, and the names of the configuration.
    """
    if len(rule.grantees) + len(rule.exempt) > MOST_GRANTEES:
        raise InvalidArgument(f"{entry_name(rule)}: it has more than {MOST_GRANTEES} grantees: use a group or a role")
    for fault in faults_of(rule, access.names, access.described):
        if fault.weight != "unknown":
            kind = InvalidFilter if fault.weight in ("sql", "column") or fault.field == ("filter",) else InvalidArgument
            raise kind(f"{entry_name(rule)}: {fault.message}")


def table_of(text: str, default: Sequence[str] = ()) -> TablePath:
    """Return the path of a table from `<warehouse>.<namespace>.<table>` or a reference; raise InvalidArgument."""
    try:
        return table_path(text, default)
    except (ValueError, InvalidReference) as error:
        raise InvalidArgument(str(error)) from None


def policy_table_of(text: str, id: str, default: Sequence[str] = (), *, is_mask: bool = False) -> TablePath:
    """Return the path of the table of a new policy or mask as a file does; raise InvalidArgument."""
    try:
        return policy_path(text, default)
    except (ValueError, InvalidReference) as error:
        raise InvalidArgument(f"{'mask' if is_mask else 'policy'} `{id}`: {error}") from None
