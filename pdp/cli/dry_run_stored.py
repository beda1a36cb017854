"""Dry run of a change of row policies in the store: files replace the stored policies of their tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pdp.cli.composition import Composition
from pdp.cli.dry_run_rows import print_changes, read_tables
from pdp.cli.grants_store import inspect_store
from pdp.config.settings import Settings
from pdp.errors import InvalidArgument


def compare_stored(
    composition: Composition, settings: Settings, candidate: Sequence[str], data: Sequence[str], form: str
) -> bool:
    """Print who sees more or fewer rows and columns; tell whether anything changes. Raise the errors of the files."""
    from pdp.engines.row_access.policies import parse_document, read_documents  # noqa: PLC0415  needs the parser of SQL
    from pdp.offline.row_policies.changes import (
        rules_of_documents,
        stored_changes,
    )
    from pdp.rewrite.errors import RewriteRefused  # noqa: PLC0415
    from pdp.rewrite.policies import policy_set_of  # noqa: PLC0415

    given = list(read_documents([Path(file) for file in candidate]))
    tables, new = rules_of_documents(given)
    facts = inspect_store(composition, settings)
    before = list(facts.row_rules())
    after = [*(rule for rule in before if rule.covers not in tables), *new]
    sources = composition.build_pdp(settings, facts, composition.read_rules(settings)).bundle.row_sources
    filed = list(map(parse_document, sources.documents))
    try:
        policies = policy_set_of([source.document for source in filed], sources.protected)
        changes = stored_changes(policies, before, after, read_tables(data, [*filed, *given]))
    except RewriteRefused as error:
        raise InvalidArgument(str(error)) from None
    return print_changes(changes, form)
