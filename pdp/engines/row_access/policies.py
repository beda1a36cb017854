"""Documents of policies and masks: the form of a file, which bodies of requests share, and the value of an entry.

The form is part of the public contract: `default`, `tables`, `views`, `policies` and `masks`, in YAML or JSON. Owns the
bounds on sizes, and the names of tables in policies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec.structs import force_setattr

from pdp.config.regular_files import advice_for
from pdp.engines.data_files import parse_data, path_in, place_of, read_text
from pdp.engines.row_access.mask_kinds import MASK_KINDS
from pdp.engines.row_access.members import ALL_AUTHENTICATED, ALL_USERS, Grantee, parse_grantee
from pdp.engines.row_access.trino import UNSAFE_SIGNS
from pdp.errors import InvalidReference, Place, PolicyError
from pdp.facts.objects import DialectText, RowPolicy, TablePath, fold_column, key_text
from pdp.model.references import check_part, parse_resource, refuse_star
from pdp.model.strict import sentence
from pdp.model.trino_operations import METADATA_TABLES, SYSTEM_TABLES

KINDS: Final = tuple(MASK_KINDS)
"""Kinds of masks. The kind that hides most comes first, and wins among several masks of one column."""
KINDS_WITH_VALUE: Final = frozenset(name for name, kind in MASK_KINDS.items() if kind.has_text)
"""Kinds of masks that have a text."""

_TRINO: Final = "trino"
EVERYONE: Final = ("allAuthenticatedUsers",)
"""Grantees of a policy that names none: everyone with a name, as in BigQuery."""

_UNKNOWN: Final = re.compile(r"unknown field `([^`]*)`")


Texts: TypeAlias = tuple[DialectText, ...]
"""Texts of an entry by dialect. The first one gives the meaning in engines of all other dialects."""


class PolicyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Policy: the grantees see the rows for which `filter` is true. `identity` is the user of Trino who evaluates.

    `filter` may have a text for each dialect of an engine. With `restrictive: true` the grantees see no other rows,
    whatever else shows them; without `grantees` these are all users. The field may be unset, so that older
    texts keep their digests.
    """

    id: str
    table: str
    filter: str | bool | dict[str, str | bool]
    grantees: tuple[str, ...] = EVERYONE
    dialect: str = "trino"
    identity: str = ""
    restrictive: bool | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.restrictive and self.grantees is EVERYONE:
            force_setattr(self, "grantees", (ALL_USERS,))

    @property
    def texts(self) -> Texts:
        """Return the texts of the filter by dialect. YAML reads a bare TRUE as a boolean.

        Raise ValueError for texts by dialect beside a `dialect`, as does `MaskBody.texts`.
        """
        if isinstance(self.filter, dict):
            return _by_dialect({dialect: _filter_text(text) for dialect, text in self.filter.items()}, self.dialect)
        return ((self.dialect, _filter_text(self.filter)),)


class MaskBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"exempt": "except"}):
    """Mask of a column for grantees. `except` lists exempt members among the grantees."""

    id: str
    table: str
    column: str
    grantees: tuple[str, ...]
    kind: str | None
    expression: str | int | float | bool | dict[str, str | int | float | bool] | None = None
    dialect: str = "trino"
    identity: str = ""
    exempt: tuple[str, ...] = ()

    @property
    def texts(self) -> Texts:
        """Return the texts of the expression or constant by dialect. YAML reads bare values as numbers or booleans."""
        value = self.expression
        if isinstance(value, dict):
            return _by_dialect({dialect: _value_text(text) for dialect, text in value.items()}, self.dialect)
        return ((self.dialect, "" if value is None else _value_text(value)),)


def _by_dialect(texts: Mapping[str, str], dialect: str) -> Texts:
    """Return texts by dialect. The text in Trino's gives the meaning in other engines, or else the first by name.

    Raise ValueError for a `dialect` beside them.
    """
    if dialect != _TRINO:
        raise ValueError(f"`dialect: {dialect}` stands beside texts by dialect: leave it out")
    return tuple(sorted(texts.items(), key=lambda pair: (pair[0] != _TRINO, pair[0]))) or ((_TRINO, ""),)


def _filter_text(value: str | bool) -> str:
    return value if isinstance(value, str) else str(value).upper()


def _value_text(value: str | float | bool) -> str:
    return value if isinstance(value, str) else str(value).lower()


def entry_name(entry: PolicyBody | MaskBody | RowPolicy) -> str:
    """Return the name of an entry for messages, on one line."""
    is_mask = bool(entry.column or entry.kind) if isinstance(entry, RowPolicy) else isinstance(entry, MaskBody)
    return one_line(f"{'mask' if is_mask else 'policy'} `{entry.id}`")


def one_line(text: str) -> str:
    """Return a message without the characters that break a line, or hide a part of the line."""
    return _CONTROL.sub(" ", text)


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def rule_of(body: PolicyBody | MaskBody, table: TablePath) -> RowPolicy:
    """Return the value of a body, which is the same by every way in; raise ValueError as `texts` does."""
    (dialect, text), *others = body.texts
    if isinstance(body, PolicyBody):
        is_limit = body.restrictive is True
        return RowPolicy(table, body.id, body.grantees, text, dialect, others=tuple(others), restrictive=is_limit)
    kind, text = body.kind or "null", text or ("''" if body.expression == "" else "")
    return RowPolicy(table, body.id, body.grantees, text, dialect, body.column, kind, body.exempt, others=tuple(others))


def body_of(rule: RowPolicy) -> PolicyBody | MaskBody:
    """Return the body of a value: the inverse of `rule_of`."""
    # Texts by dialect stand in place of a dialect.
    table, dialect = key_text(("table", rule.table)), _TRINO if rule.others else rule.dialect
    if rule.column:
        text = written(rule) or None
        return MaskBody(rule.id, table, rule.column, rule.grantees, rule.kind, text, dialect, exempt=rule.exempt)
    restrictive = rule.restrictive or msgspec.UNSET
    return PolicyBody(rule.id, table, written(rule), rule.grantees, dialect, restrictive=restrictive)


def written(rule: RowPolicy) -> Any:
    """Return the filter or expression as a body has it: one text, or a text for each dialect."""
    return {rule.dialect: rule.text, **dict(rule.others)} if rule.others else rule.text


class TableBody(msgspec.Struct, frozen=True):
    """Columns of a table, with their types."""

    columns: Mapping[str, str] = {}


class FunctionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Function of the site that rewritten statements may call, or a schema of such functions: `mozfun.map.*`."""

    name: str
    reads: Literal["nothing"]


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of a file. `default` is the warehouse and namespace of short table names."""

    default: tuple[str, ...] = ()
    tables: Mapping[str, TableBody] = {}
    views: Mapping[str, Any] = {}
    policies: tuple[PolicyBody, ...] = ()
    masks: tuple[MaskBody, ...] = ()
    functions: tuple[FunctionBody, ...] | msgspec.UnsetType = msgspec.UNSET
    """Unset without any, so that older texts keep their digests."""

    @property
    def has_entries(self) -> bool:
        """Tell whether the file says more than which tables there are."""
        return bool(self.policies or self.masks or self.functions)


class NamedDocument(msgspec.Struct, frozen=True):
    """Document with the name and the text of its file. The text gives errors their line and column."""

    name: str
    document: Document
    text: str = ""

    def place(self, where: Sequence[str | int]) -> Place:
        """Return the place of a value, or of the nearest one around it."""
        return place_of(self.name, self.text, where)


def read_documents(paths: Sequence[Path]) -> Iterator[NamedDocument]:
    """Yield the documents of files; raise PolicyError for the first invalid file."""
    for path in paths:
        text = read_text(path)
        advice = advice_for(path.suffix, text)
        if advice:
            raise PolicyError(f"not a file of row policies: {advice}", Place(str(path), 0))
        yield parse_document(parse_data(text, path), str(path), text)


def parse_document(data: Any, name: str = "<inline>", text: str = "") -> NamedDocument:
    """Return the document of parsed data; raise PolicyError if the data is not a document."""
    try:
        return NamedDocument(name, msgspec.convert({} if data is None else data, Document), text)
    except msgspec.ValidationError as error:
        raise PolicyError(sentence(str(error)), place_of(name, text, _where(str(error)))) from None


def _where(message: str) -> Sequence[str | int]:
    """Return the path in a decoder's message, with the unknown field if there is one."""
    unknown = _UNKNOWN.search(message)
    return [*path_in(message), unknown[1]] if unknown else path_in(message)


LONGEST_SQL: Final = 10_000
"""Characters of a filter or of the expression of a mask."""
LONGEST_CONSTANT: Final = 1_000
"""Characters of the constant of a mask."""


def check_sql_size(text: str) -> None:
    """Raise ValueError for a filter or expression that is too long."""
    if len(text) > LONGEST_SQL:
        raise ValueError(f"it has {len(text):,} characters, the limit is {LONGEST_SQL:,}: read a table in a subquery")


def check_constant(text: str) -> None:
    """Raise ValueError for a constant that is too long, or has no certain literal in every engine."""
    if len(text) > LONGEST_CONSTANT:
        raise ValueError(f"a constant has up to {LONGEST_CONSTANT:,} characters, not {len(text):,}")
    if UNSAFE_SIGNS.search(text):
        raise ValueError("a constant has no control characters and no line breaks")


_TABLES: Final = frozenset({"table", "view", "table_or_view", "dataset", "generic_table"})


_EACH_TABLE: Final = (
    "write a policy for each table, and list containers without other tables in `row_access.protected`; a `*` of the "
    "name itself is `%2A` in a reference, such as `table:lake/sales/a%2Ab`"
)
_EACH_GRANTEE: Final = f"write each member, a `group:`, `domain:` or `role:`, {ALL_AUTHENTICATED} or {ALL_USERS}"
_EACH_COLUMN: Final = "write a mask for each column; a column whose name has a `*` stands in `tables` of the file"


_PARTITION: Final = re.compile(r"\$(?:\d+|__NULL__|__UNPARTITIONED__)\Z")
"""Suffix with which BigQuery names a partition."""
_BLANK: Final = re.compile(r"(?:^|[./:])\s|\s(?:[./@]|$)")


def policy_path(text: str, default: Sequence[str] = ()) -> TablePath:
    """Return the path of the table of a new policy as `table_path` does.

    Raise ValueError or InvalidReference for a `*`, a blank around a part, a partition of BigQuery, and a form of
    several, too.
    """
    for part in (text, *default):
        refuse_star(part, _EACH_TABLE)
    refuse_wrong_table(text)
    _refuse_partition(text)
    if ":" in text and _BLANK.search(text):
        raise ValueError(f"`{text}` has blanks around a name: leave them out; a blank of the name itself is `%20`")
    return table_path(text, default)


def _refuse_partition(text: str) -> None:
    """Raise InvalidReference for a partition of BigQuery in place of a table."""
    if partition := _PARTITION.search(text):
        whole = f"a policy covers the whole table: write `{text[: partition.start()]}`"
        escape = "a `$` of a name itself is `%24` in a reference, such as `table:lake/sales/a%241`"
        raise InvalidReference(f"`{text}` is a partition: {whole}; {escape}")


def refuse_wrong_table(text: str) -> None:
    """Raise ValueError for a table in a form of several: dots within a reference, or `/` and a ref between dots."""
    kind, colon, rest = text.partition(":")
    if not colon:
        # Of a full name, a `/` can only belong to a part.
        if sign := next((sign for sign in "/@" if sign in text and (sign == "@" or text.count(".") < 2)), ""):
            escape = f"; a `{sign}` of a name itself is `{quote(sign, safe='')}` in a reference"
            wanted = "`.` stands between the parts" if sign == "/" else "a policy holds on every ref: leave out the ref"
            raise ValueError(f"`{text}`: {wanted}{escape}, such as `table:lake/sales/orders`")
    elif rest.count("/") == 1 and "." in rest.partition("/")[2]:
        wanted = f"{kind}:{rest.replace('.', '/')}"
        raise ValueError(f"`{text}`: `/` stands between the parts of a reference: write `{wanted}`")


def policy_grantee(text: str) -> Grantee:
    """Return a grantee of a new policy; raise ValueError or InvalidReference for a text without a grantee."""
    refuse_star(text, _EACH_GRANTEE)
    return parse_grantee(text)


def refuse_patterns(body: PolicyBody | MaskBody) -> None:
    """Raise InvalidReference for a policy of the rewriter with a `*` in a table or grantee, and for a partition.

    A policy of BigQuery may name a wildcard table, such as `p.d.events_*`, as statements do.
    """
    if dict(body.texts).keys() != {"bigquery"} or body.table.find("*") < len(body.table) - 1:
        refuse_star(body.table, _EACH_TABLE)
    _refuse_partition(body.table)
    for text in (*body.grantees, *(body.exempt if isinstance(body, MaskBody) else ())):
        refuse_star(text, _EACH_GRANTEE)


def refuse_column_pattern(column: str, columns: Mapping[str, str] | None) -> None:
    """Raise InvalidReference for the column of a mask with a `*`, unless the table is known to have the column."""
    if columns is None or fold_column(column) not in columns:
        refuse_star(column, _EACH_COLUMN)


def table_path(text: str, default: Sequence[str]) -> TablePath:
    """Return the path of a table, written as `<warehouse>.<namespace>.<table>`, within `default` or as a reference.

    Raise ValueError or InvalidReference for any other text, and for a table that policies do not cover.
    """
    if ":" in text:
        resource = parse_resource(text)
        if resource.type not in _TABLES or resource.ref is not None:
            raise ValueError(f"`{text}` is no table or view without a ref")
        _refuse_uncovered(text, resource.path)
        return resource.warehouse, *resource.path
    parts = text.split(".")
    if len(parts) == 1:
        parts = [*default, *parts]
    elif len(parts) == 2 and default:
        parts = [default[0], *parts]
    if len(parts) < 3 or any(not part or part != part.strip() for part in parts):
        raise ValueError(f"`{text}` is no `<warehouse>.<namespace>.<table>`")
    warehouse, *path = map(check_part, parts)
    _refuse_uncovered(text, path)
    return warehouse, *path


def check_table(path: TablePath) -> None:
    """Raise ValueError for the path of a table that policies do not cover."""
    text = ".".join(path)
    if len(path) < 3 or not all(path):
        raise ValueError(f"`{text}` is no `<warehouse>.<namespace>.<table>`")
    _refuse_uncovered(text, path[1:])


def _refuse_uncovered(text: str, path: Sequence[str]) -> None:
    """Raise ValueError for a metadata table and a system table: a policy there would hide nothing."""
    if suffix := next((s for s in METADATA_TABLES if path[-1].lower().endswith(f"${s}")), ""):
        raise ValueError(f"`{text}` shows what its table holds: `${suffix}` is covered by policies on that")
    if path[0].lower() in SYSTEM_TABLES:
        raise ValueError(f"`{text}` stands in a schema of the engine's own, which policies do not cover")
