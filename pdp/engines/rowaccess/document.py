"""Files of row access policies and masks, as written: their form and nothing of their meaning.

The form is that of the public contract: `default`, `tables`, `views`, `policies` and `masks`, in YAML or JSON.
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
"""Kinds of masks, the one that shows least first: of several on one column, that one holds."""


class PolicyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who sees the rows of a table for which `filter` is true. `identity`: the engine's user that evaluates it."""

    id: str
    table: str
    grantees: tuple[str, ...]
    filter: str | bool
    dialect: str = "trino"
    identity: str = ""

    @property
    def text(self) -> str:
        """The filter: YAML reads a bare TRUE as a boolean."""
        return self.filter if isinstance(self.filter, str) else str(self.filter).upper()


class MaskBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"exempt": "except"}):
    """For whom a column is masked, and how; `except` lists members for whom it is not, though they are grantees."""

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
        """The expression or constant; YAML reads bare values as what they look like."""
        value = self.expression
        return "" if value is None else value if isinstance(value, str) else str(value).lower()


class TableBody(msgspec.Struct, frozen=True):
    """What is known of a table: its columns and their types."""

    columns: Mapping[str, str] = {}


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file. `default` is the warehouse and namespace of names that say neither."""

    default: tuple[str, ...] = ()
    tables: Mapping[str, TableBody] = {}
    views: Mapping[str, Any] = {}
    policies: tuple[PolicyBody, ...] = ()
    masks: tuple[MaskBody, ...] = ()


class NamedDocument(msgspec.Struct, frozen=True):
    """A file's document and its name."""

    name: str
    document: Document


def read_documents(paths: Sequence[Path]) -> Iterator[NamedDocument]:
    """The documents of files; raises PolicyError on the first that is none."""
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
    """A document from its data; raises PolicyError."""
    try:
        return NamedDocument(name, msgspec.convert({} if data is None else data, Document))
    except msgspec.ValidationError as error:
        raise PolicyError(sentence(str(error)), Place(name)) from None


def _json(text: str) -> Any:
    refuse_duplicates(text.encode())
    return json.loads(text)
