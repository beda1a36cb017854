"""The validator of policies and masks of all sources: files, the store, DDL statements, requests.

Owns the faults and their words. Callers decide the cost of a fault. An entry with a name of nobody, or with a column
of no table, binds nobody, so such names are faults. The parser of SQL is loaded for the first filter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from pdp.config.names import NO_NAMES, KnownNames, NameFault, name_fault
from pdp.config.words import case_variant
from pdp.engines.row_access.mask_kinds import MASK_KINDS, kinds_for, unknown_kind
from pdp.engines.row_access.members import Grantee, Members, configured_members, refuse_wrong_form
from pdp.engines.row_access.policies import (
    KINDS,
    KINDS_WITH_VALUE,
    check_constant,
    check_table,
    entry_name,
    one_line,
    policy_grantee,
    refuse_column_pattern,
)
from pdp.errors import InvalidReference
from pdp.facts.objects import FoldedName, KnownColumns, RowPolicy, TablePath, fold_column, fold_name
from pdp.model.references import refuse_blanks, without_blanks

if TYPE_CHECKING:  # a rewriting process reads no settings
    from pdp.config.settings import Settings
    from pdp.engines.row_access.conditions import Reading

Weight: TypeAlias = Literal["wrong", "spelling", "sql", "column", "dubious", "unknown"]
"""Weight of a fault. `wrong`, `spelling` and `sql` (in a filter or expression) are refused everywhere.

A rule that was stored with a fault in the `spelling` of a grantee keeps its meaning.

Of the others, new entries are refused, and entries of files are a finding: a `column` beside those of `tables`, and a
`dubious` entry, for example without any visible row. An `unknown` name may be known later.
"""
REFUSED: Final[frozenset[Weight]] = frozenset({"wrong", "spelling", "sql"})
"""Weights of faults that are refused everywhere."""
_LONGEST_NAME: Final = 512
_is_id: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._:-]{1,256}").fullmatch
"""Ids are as long as BigQuery's names of policies. Clients of HTTP drop the parts `.` and `..` of a path."""
_NO_NAME: Final = re.compile(r"""[.\[\](){},;'"`]|^\s|\s$""")
"""Signs of a column written as SQL, with the table, as a field, or in a list."""


class Fault(NamedTuple):
    """Fault of a policy or mask. `field` is its place in the entry of a file."""

    message: str
    field: tuple[str | int, ...]
    weight: Weight = "wrong"


class RowNames(NamedTuple):
    """Names that grantees are compared with. Without `members` the forms alone are judged.

    With `strict`, an unknown name is an error, and not a warning.
    """

    known: KnownNames = NO_NAMES
    members: Members | None = None
    strict: bool = False

    def fault(self, grantee: Grantee) -> NameFault | None:
        """Return the fault of a grantee without a possible principal; raise ValueError for a form of no grantee."""
        refuse_wrong_form(grantee)
        return self._listed(grantee) or self._unlisted(grantee)

    def _listed(self, grantee: Grantee) -> NameFault | None:
        """Return the fault of a name with a comma. The parts of a distinguished name have a `=`."""
        parts = grantee.name.split(",")
        if len(parts) == 1 or all("=" in part for part in parts) or grantee.name in self.known.roles:
            return None
        each = ", ".join(f"`{grantee.kind}:{part.strip()}`" for part in parts if part.strip())
        return NameFault(grantee.kind != "group", f"`{grantee.text}` is one name with a comma: write {each}")

    def _unlisted(self, grantee: Grantee) -> NameFault | None:
        if grantee.kind == "role":
            return name_fault("role", "equals", grantee.name, replace(self.known, token_roles=frozenset()))
        providers = {*self.known.providers, self.known.provider} - {""}
        if grantee.kind == "group":
            provider, sign, name = grantee.name.partition("~")
            is_known = sign and provider in providers
            return NameFault(True, f"a group has no provider: write `group:{name}`") if is_known else None
        if grantee.kind not in ("user", "serviceAccount") or self.members is None:
            return None
        if fault := self._of_provider(grantee, providers):
            return fault
        stated = self.members.stated_user(grantee)
        if stated is None:
            # Files of BigQuery name members of other hosts and service accounts, who may never ask here.
            is_wrong = grantee.kind == "user" and "@" not in grantee.name
            return NameFault(is_wrong, f"`{grantee.text}` is no member that `row_access.member` makes of a user")
        provider, subject = stated
        return name_fault("provider" if provider else "user", "equals", provider or subject, self.known)

    def _of_provider(self, grantee: Grantee, providers: set[str]) -> NameFault | None:
        """Return the fault of a user with the provider before a colon, as in `user:okta:alice`."""
        idp, colon, subject = grantee.name.partition(":")
        known = idp if idp in providers else case_variant(idp, providers)
        if not colon or not known or not subject:
            return None
        name = subject if known == self.known.provider else f"{known}~{subject}"
        return NameFault(True, f"`{grantee.text}`: `~` stands after a provider: write `{grantee.kind}:{name}`")


NO_ROW_NAMES: Final = RowNames()


class DescribedTables:
    """Columns of the tables that files describe: folded names with their types, by table."""

    def __init__(self, columns: KnownColumns) -> None:
        self.columns = columns

    @cached_property
    def _namespaces(self) -> frozenset[tuple[str, str]]:
        return frozenset((warehouse, path.rpartition(".")[0]) for warehouse, path in self.columns)

    def has_beside(self, table: FoldedName) -> bool:
        """Tell whether a file describes a table in the namespace of a table."""
        return (table[0], table[1].rpartition(".")[0]) in self._namespaces


NO_TABLES: Final = DescribedTables({})


def names_of(settings: Settings) -> RowNames:
    """Return the names of a configuration."""
    from pdp.config.references import known_names  # noqa: PLC0415  a rewriting process reads no settings

    return RowNames(known_names(settings), configured_members(settings), settings.policies.strict_names)


def fault_message(rule: RowPolicy, fault: Fault) -> str:
    """Return the message of a fault, the same by every way in."""
    return one_line(f"{entry_name(rule)}: {fault.message}")


def _is_mask(rule: RowPolicy) -> bool:
    return bool(rule.column or rule.kind)


def faults_of(rule: RowPolicy, names: RowNames, known: DescribedTables, *, is_complete: bool = True) -> Iterator[Fault]:
    """Yield the faults of an entry. The table of the entry is read before: `policy_path` has the faults of its text.

    `is_complete`: no other file describes tables, so that names of subqueries are judged.
    """
    if not _is_id(rule.id):
        yield Fault("an id is up to 256 letters, digits and `._:-`, and not `.` or `..`", ("id",))
    try:
        check_table(rule.table)
    except ValueError as error:
        yield Fault(str(error), ("table",))
    yield from binding_faults(rule, names, known)
    for one in rule.texts():
        if one.kind == "expression":
            found = _expression_faults(one, known.columns.get(one.covers))
        else:
            found = iter(()) if _is_mask(one) else _filter_faults(one, known, is_complete)
        yield from (_located(fault, one.dialect) for fault in found) if rule.others else found
    yield from _texts_faults(rule)
    if message := type_fault(
        rule.kind, rule.column, known.columns.get(rule.covers, {}).get(fold_column(rule.column), "")
    ):
        yield Fault(message, ("kind",))
    if rule.covers not in known.columns and known.has_beside(rule.covers):
        # Only some tables of a namespace may be described, so that the name need not be a mistake.
        message = f"`tables` describes other tables of its namespace, and no `{rule.table[-1]}`: is the name right?"
        yield Fault(message, ("table",), "unknown")


def _located(fault: Fault, dialect: str) -> Fault:
    return fault._replace(message=f"in `{dialect}`, {fault.message}", field=(*fault.field, dialect))


def _texts_faults(rule: RowPolicy) -> Iterator[Fault]:
    """Yield the faults of texts by dialect: each is for an engine, and all mean the same."""
    from pdp.engines.row_access.dialects import HOMES  # noqa: PLC0415  its parser of SQL takes 30 MB

    if not rule.others:
        return
    field = "expression" if _is_mask(rule) else "filter"
    if _is_mask(rule) and rule.kind != "expression":
        yield Fault(f"a mask of the kind `{rule.kind}` has no texts by dialect", (field,))
    for one in rule.texts():
        if one.dialect not in HOMES:
            yield Fault(f"a text by dialect is for one of {', '.join(sorted(HOMES))}, not `{one.dialect}`", (field,))
    opening = {one.text.strip().upper() == "TRUE" for one in rule.texts()}
    if not _is_mask(rule) and len(opening) > 1:
        yield Fault("TRUE in one dialect and a filter in another: write two policies", (field,))


def binding_faults(
    rule: RowPolicy, names: RowNames = NO_ROW_NAMES, known: DescribedTables = NO_TABLES
) -> Iterator[Fault]:
    """Yield the faults of grantees, and of the column and kind of a mask. Parses no SQL."""
    for field, texts in (("grantees", rule.grantees), ("except", rule.exempt)):
        for place, text in enumerate(texts):
            yield from _grantee_faults(text, names, (field, place))
    is_mask = _is_mask(rule)
    if not rule.grantees:
        yield Fault("it has no grantees, so it is for nobody", ("grantees",), "wrong" if is_mask else "dubious")
    if is_mask:
        yield from _mask_faults(rule, known.columns.get(rule.covers))
    elif rule.exempt:
        yield Fault("`kind` and `except` are for masks, which name a `column`", ("except",))


def _grantee_faults(text: str, names: RowNames, field: tuple[str | int, ...]) -> Iterator[Fault]:
    if len(text) > _LONGEST_NAME:
        yield Fault(f"a grantee has up to {_LONGEST_NAME} characters", field)
        return
    try:
        fault = names.fault(policy_grantee(without_blanks(text)))
    except (ValueError, InvalidReference) as error:
        yield Fault(str(error), field)
        return
    try:
        refuse_blanks(text)
    except InvalidReference as error:
        yield Fault(str(error), field, "spelling")
        return
    if fault:
        yield Fault(fault.message, field, "wrong" if fault.is_wrong or names.strict else "unknown")


def _mask_faults(rule: RowPolicy, columns: Mapping[str, str] | None) -> Iterator[Fault]:
    if message := _column_fault(rule, columns):
        yield Fault(message, ("column",))
    if rule.kind not in KINDS:
        yield Fault(unknown_kind(rule.kind), ("kind",))
    elif (rule.kind in KINDS_WITH_VALUE) != bool(rule.text):
        amount = "an" if rule.kind in KINDS_WITH_VALUE else "no"
        yield Fault(f"the kind `{rule.kind}` takes {amount} `expression`", ("expression",))
    elif rule.kind == "constant":
        try:
            check_constant(rule.text)
        except ValueError as error:
            yield Fault(str(error), ("expression",))


def type_fault(kind: str, column: str, type: str) -> str:
    """Return the fault of a mask whose kind is not for the type of its column; empty if a dialect may have a value."""
    families = MASK_KINDS[kind].families if kind in MASK_KINDS else None
    if families is None or not type:
        return ""
    from pdp.engines.row_access.portable_values import families_of  # noqa: PLC0415  its parser of SQL takes 30 MB

    found = families_of(type)
    if not found or found & families:
        return ""
    others = ", ".join(kinds_for(found))
    return f"the kind `{kind}` is for {MASK_KINDS[kind].values}, and `{column}` is {type}: write one of {others}"


def _expression_faults(rule: RowPolicy, columns: Mapping[str, str] | None) -> Iterator[Fault]:
    from pdp.engines.row_access.conditions import read_expression  # noqa: PLC0415  its parser of SQL takes 30 MB

    try:
        reading = read_expression(rule.text, rule.dialect, columns)
    except ValueError as error:
        yield Fault(str(error), ("expression",), "sql")
    else:
        yield from _text_faults(rule, reading, columns, "expression")


def _column_fault(rule: RowPolicy, columns: Mapping[str, str] | None) -> str:
    """Return the fault of the column of a mask; empty for a possible column."""
    column = rule.column
    if not column:
        return "it names no column"
    if len(column) > _LONGEST_NAME or one_line(column) != column:
        return f"a column has up to {_LONGEST_NAME} characters, without control characters"
    try:
        refuse_column_pattern(column, columns)
    except InvalidReference as error:
        return str(error)
    if columns is not None:
        return "" if fold_column(column) in columns else f"`tables` has no column `{column}` in `{rule.table[-1]}`"
    if not _NO_NAME.search(column):
        return ""
    bare = re.split(r"[.\s\[(,;]", column.strip("\"`' "), maxsplit=1)[0].strip("\"`' ")
    first, _, rest = column.strip().partition(".")
    if rest and first.casefold() in {part.casefold() for part in rule.table}:
        bare = rest.rpartition(".")[2]
    wanted = f"write `{bare}`, or list the column in `tables` of a file" if bare else "write its name"
    return f"`{column}` is no plain name of a column: {wanted}"


def _filter_faults(rule: RowPolicy, known: DescribedTables, is_complete: bool) -> Iterator[Fault]:
    # The parser of SQL takes 30 MB.
    from pdp.engines.row_access.conditions import check_condition  # noqa: PLC0415

    columns = known.columns.get(rule.covers)
    try:
        reading = check_condition(rule.text, rule.dialect, columns)
        names = list(_lookup_faults(rule, known)) if reading.has_query and is_complete else []
    except ValueError as error:
        yield Fault(str(error), ("filter",), "sql")
    else:
        yield from (*names, *_text_faults(rule, reading, columns, "filter"))


def _lookup_faults(rule: RowPolicy, known: DescribedTables) -> Iterator[Fault]:
    """Yield the faults of names in subqueries; raise ValueError for a name that may be the filtered table's."""
    from pdp.engines.row_access.dialects import parse_expression  # noqa: PLC0415
    from pdp.engines.row_access.lookups import check_names, unknown_columns  # noqa: PLC0415

    tree = parse_expression(rule.text, rule.dialect)
    check_names(tree, rule.dialect, rule.covers, known.columns)
    for message in dict.fromkeys(unknown_columns(tree, rule.covers, known.columns)):
        yield Fault(message, ("filter",), "column")
    for path in tables_read(rule):
        name = fold_name(path[0], path[1:])
        if name not in known.columns and known.has_beside(name):
            message = f"`tables` describes other tables beside it, and no `{path[-1]}` that the filter reads"
            yield Fault(f"{message}: is the name right?", ("filter",), "unknown")


def tables_read(rule: RowPolicy) -> Sequence[TablePath]:
    """Return the paths of the tables that the subqueries of a readable policy name."""
    if _is_mask(rule) or not any("select" in one.text.lower() for one in rule.texts()):
        return ()
    from pdp.engines.row_access.dialects import parse_expression  # noqa: PLC0415  its parser of SQL takes 30 MB
    from pdp.engines.row_access.lookups import lookup_tables  # noqa: PLC0415

    trees = (parse_expression(one.text, one.dialect) for one in rule.texts())
    return tuple(dict.fromkeys(path for tree in trees for path in lookup_tables(tree, rule.covers)))


def _text_faults(rule: RowPolicy, reading: Reading, columns: Mapping[str, str] | None, field: str) -> Iterator[Fault]:
    """Yield the faults of a text without an engine, and of names beside the columns of the table."""
    from pdp.engines.row_access.conditions import column_form, unknown_column  # noqa: PLC0415
    from pdp.engines.row_access.dialects import HOMES  # noqa: PLC0415

    if columns is None and reading.form == "column" and field == "filter":
        yield Fault(column_form(reading.columns[0][-1]), (field,), "dubious")
    name = "" if columns is None else unknown_column(reading, columns, rule.table[-1])
    if name:
        yield Fault(f"`{name}` is no column of the table", (field,), "column")
    if reading.closed and rule.dialect not in HOMES:
        homes = ", ".join(sorted(HOMES))
        yield Fault(f"no engine can use it: {reading.closed}; write it in {homes}", (field,), "dubious")
