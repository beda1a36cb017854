"""Files of row access policies and masks: the form of a file, not its meaning.

The form is part of the public contract: `default`, `tables`, `views`, `policies` and `masks`, in YAML or JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

from pdp import strict
from pdp.errors import InvalidArgument, Place, PolicyError
from pdp.strict import refuse_duplicates, sentence

KINDS: Final = ("null", "constant", "hash", "partial", "expression")
"""Kinds of masks. The kind that hides most comes first, and wins among several masks of one column."""


class PolicyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Policy: the grantees see the rows for which `filter` is true. `identity` is the user of Trino who evaluates."""

    id: str
    table: str
    grantees: tuple[str, ...]
    filter: str | bool
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
    """Document with the name of its file."""

    name: str
    document: Document


def read_documents(paths: Sequence[Path]) -> Iterator[NamedDocument]:
    """Yield the documents of files; raise PolicyError for the first invalid file."""
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
            data = _json(text) if path.suffix == ".json" else strict.load_yaml(text)
        except OSError as error:
            raise PolicyError(f"cannot be read: {error.strerror}", Place(str(path))) from None
        except (ValueError, RecursionError, yaml.YAMLError, InvalidArgument) as error:
            raise PolicyError(f"does not parse: {' '.join(str(error).split())}", Place(str(path))) from None
        yield parse_document(data, str(path))


def parse_document(data: Any, name: str = "<inline>") -> NamedDocument:
    """Return the document of parsed data; raise PolicyError if the data is not a document."""
    try:
        return NamedDocument(name, msgspec.convert({} if data is None else data, Document))
    except msgspec.ValidationError as error:
        raise PolicyError(sentence(str(error)), Place(name)) from None


def _json(text: str) -> Any:
    refuse_duplicates(text.encode())
    return json.loads(text)
