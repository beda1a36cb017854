"""Files of row access policies and masks: the form of a file, not its meaning.

The form is part of the public contract: `default`, `tables`, `views`, `policies` and `masks`, in YAML or JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from pdp.config.foreign_files import advice_for
from pdp.engines.data_files import parse_data, path_in, place_of, read_text
from pdp.errors import Place, PolicyError
from pdp.model.strict import sentence

KINDS: Final = ("null", "constant", "hash", "partial", "expression")
"""Kinds of masks. The kind that hides most comes first, and wins among several masks of one column."""

EVERYONE: Final = ("allAuthenticatedUsers",)
"""Grantees of a policy that names none: everyone with a name, as in BigQuery."""

_UNKNOWN: Final = re.compile(r"unknown field `([^`]*)`")


class PolicyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Policy: the grantees see the rows for which `filter` is true. `identity` is the user of Trino who evaluates."""

    id: str
    table: str
    filter: str | bool
    grantees: tuple[str, ...] = EVERYONE
    dialect: str = "trino"
    identity: str = ""

    @property
    def text(self) -> str:
        """Return the text of the filter. YAML reads a bare TRUE as a boolean."""
        return self.filter if isinstance(self.filter, str) else str(self.filter).upper()


class MaskBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"exempt": "except"}):
    """Mask of a column for grantees. `except` lists exempt members among the grantees."""

    id: str
    table: str
    column: str
    grantees: tuple[str, ...]
    kind: Literal["null", "constant", "hash", "partial", "expression"] | None
    expression: str | int | float | bool | None = None
    dialect: str = "trino"
    identity: str = ""
    exempt: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the text of the expression or constant. YAML reads bare values as numbers or booleans."""
        value = self.expression
        return "" if value is None else value if isinstance(value, str) else str(value).lower()


class TableBody(msgspec.Struct, frozen=True):
    """Columns of a table, with their types."""

    columns: Mapping[str, str] = {}


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of a file. `default` is the warehouse and namespace of short table names."""

    default: tuple[str, ...] = ()
    tables: Mapping[str, TableBody] = {}
    views: Mapping[str, Any] = {}
    policies: tuple[PolicyBody, ...] = ()
    masks: tuple[MaskBody, ...] = ()


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
