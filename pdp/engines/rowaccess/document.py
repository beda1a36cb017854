"""Files of row access policies and masks: the form of a file, not its meaning.

The form is part of the public contract: `default`, `tables`, `views`, `policies` and `masks`, in YAML or JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

from pdp import strict
from pdp.config.foreign_files import advice_for
from pdp.errors import InvalidArgument, Place, PolicyError
from pdp.strict import refuse_duplicates, sentence

KINDS: Final = ("null", "constant", "hash", "partial", "expression")
"""Kinds of masks. The kind that hides most comes first, and wins among several masks of one column."""

EVERYONE: Final = ("allAuthenticatedUsers",)
"""Grantees of a policy that names none: everyone with a name, as in BigQuery."""

_PATH: Final = re.compile(r"`\$([^`]*)`$")
_UNKNOWN: Final = re.compile(r"unknown field `([^`]*)`")
_STEP: Final = re.compile(r"\[\d+\]|\.[^.\[]+")


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
        return _place(self.name, self.text, where)


def read_documents(paths: Sequence[Path]) -> Iterator[NamedDocument]:
    """Yield the documents of files; raise PolicyError for the first invalid file."""
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise PolicyError(f"cannot be read: {error.strerror}", Place(str(path), 0)) from None
        except UnicodeDecodeError:
            raise PolicyError("does not parse: it is not UTF-8", Place(str(path), 0)) from None
        advice = advice_for(path.suffix, text)
        if advice:
            raise PolicyError(f"not a file of row policies: {advice}", Place(str(path), 0))
        yield parse_document(_parse(text, path), str(path), text)


def parse_document(data: Any, name: str = "<inline>", text: str = "") -> NamedDocument:
    """Return the document of parsed data; raise PolicyError if the data is not a document."""
    try:
        return NamedDocument(name, msgspec.convert({} if data is None else data, Document), text)
    except msgspec.ValidationError as error:
        raise PolicyError(sentence(str(error)), _place(name, text, _where(str(error)))) from None


def _parse(text: str, path: Path) -> Any:
    """Return the value of a text in the language of the file's name; raise PolicyError."""
    try:
        return _json(text) if path.suffix == ".json" else strict.load_yaml(text)
    except yaml.MarkedYAMLError as error:
        mark, cause = error.problem_mark, error.problem
        place = Place(str(path), mark.line + 1, mark.column + 1) if mark else Place(str(path), 0)
    except json.JSONDecodeError as error:
        place, cause = Place(str(path), error.lineno, error.colno), sentence(error.msg)
    except (ValueError, RecursionError, yaml.YAMLError, InvalidArgument) as error:
        place, cause = Place(str(path), 0), " ".join(str(error).split())
    raise PolicyError(f"does not parse: {cause}", place)


def _json(text: str) -> Any:
    data = json.loads(text)  # first, because its errors have a line
    refuse_duplicates(text.encode())
    return data


def _place(name: str, text: str, where: Sequence[str | int]) -> Place:
    found = strict.position_of(text, where)
    return Place(name, *found[:2]) if found else Place(name)


def _where(message: str) -> Sequence[str | int]:
    """Return the path at the end of a decoder's message, such as "- at `$.policies[0].id`"; empty without one."""
    path, unknown = _PATH.search(message), _UNKNOWN.search(message)
    steps = _STEP.findall(path[1]) if path else []
    where = [int(step[1:-1]) if step[0] == "[" else step[1:] for step in steps]
    return [*where, unknown[1]] if unknown else where
