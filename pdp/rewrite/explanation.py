"""Explanation of a rewritten statement: the visible part of each relation, and why policies and masks count or not."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pdp.engines.row_access.engine import REASON_PREFIX
from pdp.engines.row_access.explain import ExplainedEntry, RowExplanation
from pdp.facts.row_policies import fold_column
from pdp.rewrite.containers import RelationKey, key_of
from pdp.rewrite.identity import CallerIdentity, owner_identity
from pdp.rewrite.messages import Use
from pdp.rewrite.policies import PolicySet
from pdp.rewrite.rewriter import Rewriter

_CLOSED = "FALSE"


class ExplainedRelation(msgspec.Struct, frozen=True):
    """Relation of a statement: the full name, the role in the statement, the reader, and the visible part."""

    table: str
    role: str
    reader: str
    rows: RowExplanation


class ExplainedStatement(msgspec.Struct, frozen=True):
    """Rewritten statement with its relations."""

    sql: str
    tables: tuple[ExplainedRelation, ...]


def explain_statement(
    rewriter: Rewriter, text: str, dialect: str, caller: CallerIdentity, policies: PolicySet
) -> ExplainedStatement:
    """Return a rewritten statement with the visible part of each relation; raise RewriteRefused."""
    rewritten = rewriter.examine(text, dialect, caller, policies)
    tables = []
    for use in rewritten.uses:
        reader = owner_identity(use.owner) if use.owner else caller
        rows = _rows(rewriter, use, dialect, reader, policies)
        tables.append(ExplainedRelation(".".join(use.name), use.role, reader.member, rows))
    return ExplainedStatement(rewritten.sql, tuple(tables))


def _rows(rewriter: Rewriter, use: Use, dialect: str, reader: CallerIdentity, policies: PolicySet) -> RowExplanation:
    key = key_of(use.name)
    is_new = not policies.hides(key)
    rows, columns = ("", []) if is_new else rewriter.visible(use.name, dialect, reader, policies)
    entries = []
    for policy in policies.of(key):
        counts, why = reader.explain_policy(policy.grantees)
        entries.append(ExplainedEntry(policy.id, counts, why, policy.text))
    by = ",".join(entry.id for entry in entries if entry.counts) or ("no_policy" if entries else "unrestricted")
    shown = {"": True, _CLOSED: False}.get(rows, rows)
    return RowExplanation(
        shown, REASON_PREFIX + by, tuple(entries), tuple(_masks(policies, key, reader, dict(columns)))
    )


def _masks(
    policies: PolicySet, key: RelationKey, reader: CallerIdentity, columns: dict[str, str]
) -> Iterator[ExplainedEntry]:
    """Yield the masks of a relation. The first mask that counts hides the column."""
    expressions = {fold_column(name): sql for name, sql in columns.items()}
    for column, masks in policies.masks(key).items():
        held = ""
        for mask in masks:
            counts, why = reader.explain_mask(mask.grantees, mask.exempt)
            if counts and held:
                counts, why = False, f"the mask `{held}` of the column hides more"
            held = mask.id if counts else held
            text = expressions.get(column, mask.kind) if counts else mask.kind
            yield ExplainedEntry(mask.id, counts, why, text, column)
