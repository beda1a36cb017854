"""Dry run of row policies alone, of files and of the store.

No checks are needed, because policies name their readers.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from pdp.cli.dry_run.sides import is_row_file
from pdp.cli.grants.store import inspect_store
from pdp.cli.terminal import visible
from pdp.cli.wiring import Wiring
from pdp.config.settings import Settings
from pdp.errors import InvalidArgument

if TYPE_CHECKING:
    from pdp.engines.row_access.policies import NamedDocument
    from pdp.offline.row_policies.changes import RowChange, TableRows
    from pdp.rewrite.catalog import RelationKey


_DOUBLES: Final = ("double", "float", "real")
_NUMBERS: Final = ("int", "bigint", "smallint", "tinyint", "long", "decimal", "numeric")
_TRUTHS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_SAYS: Final = {"more": "more rows", "fewer": "fewer rows", "other": "other rows", "same": "the same rows"}


def are_row_files(*sides: Sequence[str]) -> bool:
    """Tell whether both sides have files, and row policies alone."""
    return all(sides) and all(is_row_file(Path(file)) for side in sides for file in side)


def compare_rows(baseline: Sequence[str], candidate: Sequence[str], data: Sequence[str], form: str) -> bool:
    """Print who sees more or fewer rows and columns; tell whether anything changes. Raise the errors of the files."""
    from pdp.engines.row_access.policies import read_documents  # noqa: PLC0415
    from pdp.engines.row_access.validation import compile_policies  # noqa: PLC0415  needs the parser of SQL
    from pdp.offline.row_policies.changes import row_changes  # noqa: PLC0415
    from pdp.rewrite.errors import RewriteRefused  # noqa: PLC0415

    before, after = (list(read_documents([Path(file) for file in side])) for side in (baseline, candidate))
    for side in (before, after):
        compile_policies(side)  # raises with the place of an error
    try:
        changes = row_changes(before, after, read_tables(data, after))
    except RewriteRefused as error:
        raise InvalidArgument(str(error)) from None
    return print_changes(changes, form)


def print_changes(changes: Sequence[RowChange], form: str) -> bool:
    """Print changes; tell whether there is any."""
    if form == "json":
        sys.stdout.buffer.write(msgspec.json.encode({"different": len(changes), "rows": changes}) + b"\n")
    else:
        for line in _lines(changes):
            click.echo(visible(line))
    return bool(changes)


def _lines(changes: Sequence[RowChange]) -> Iterator[str]:
    if not changes:
        yield "no difference in rows and columns"
    table = ""
    for change in changes:
        if change.table != table:
            table = change.table
            yield f"{table}:"
        yield f"  {change.reader} {'; '.join(_parts(change))}"


def _parts(change: RowChange) -> Iterator[str]:
    """Yield what a change does to rows and columns."""
    if change.rows != "same":
        counts = "" if change.rows_after is None else f" ({change.rows_before} -> {change.rows_after})"
        yield f"sees {_SAYS[change.rows]}{counts}: {change.before} -> {change.after}"
    for verb, columns in (
        ("sees", change.columns_shown), ("no longer sees", change.columns_hidden),
        ("sees through another mask", change.columns_changed),
    ):  # fmt: skip
        if columns:
            yield f"{verb} {len(columns)} column{'s' * (len(columns) != 1)}: {', '.join(columns)}"


def read_tables(options: Sequence[str], documents: Sequence[NamedDocument]) -> dict[RelationKey, TableRows]:
    """Return the rows of the files of `--data`; raise InvalidArgument for an unusable option or file."""
    from pdp.rewrite.catalog import catalog_of, full_name  # noqa: PLC0415  needs the parser of SQL

    catalog = catalog_of([source.document for source in documents])
    tables: dict[RelationKey, TableRows] = {}
    for option in options:
        name, equals, file = option.partition("=")
        relations = catalog.of_key(catalog.key(full_name(name.split("."), catalog.default)))
        if not equals or len(relations) != 1 or not relations[0].columns:
            raise InvalidArgument(f"`--data {option}`: give TABLE=FILE.csv, for a table with columns in `tables`")
        tables[relations[0].key] = _rows(Path(file), relations[0].columns)
    return tables


def _rows(file: Path, types: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows of a CSV file with a header. An empty field is NULL."""
    try:
        with file.open(encoding="utf-8", newline="") as text:
            rows = list(csv.DictReader(text))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgument(f"cannot read `{file}`: {error}") from None
    found = []
    for number, row in enumerate(rows, 2):
        try:
            found.append({name.lower(): _value(value, types.get(name.lower(), "")) for name, value in row.items()})
        except (ValueError, KeyError, AttributeError):
            raise InvalidArgument(f"`{file}`, line {number}: a value does not fit the type of the column") from None
    return found


def _value(text: str, type: str) -> Any:
    if text == "":
        return None
    if type.lower().startswith("bool"):
        return _TRUTHS[text.lower()]
    if type.lower().startswith(_DOUBLES):
        return float(text)
    if not type.lower().startswith(_NUMBERS):
        return text
    if "/" in text:
        raise ValueError("no number")
    return Fraction(text)


def compare_stored(
    composition: Wiring, settings: Settings, candidate: Sequence[str], data: Sequence[str], form: str
) -> bool:
    """Print who sees more or fewer rows and columns; tell whether anything changes. Raise the errors of the files."""
    from pdp.engines.row_access.policies import parse_document, read_documents  # noqa: PLC0415  needs the parser of SQL
    from pdp.offline.row_policies.changes import rules_of_documents, stored_changes  # noqa: PLC0415
    from pdp.rewrite.catalog import policy_set_of  # noqa: PLC0415
    from pdp.rewrite.errors import RewriteRefused  # noqa: PLC0415

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
