"""Permission files in LakeQL's shape: a list of entries, in JSON or YAML. Knows the form of a file, no decision."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from pdp import strict
from pdp.errors import InvalidArgument, Place, PolicyError
from pdp.strict import refuse_duplicates, sentence

_PATH: Final = re.compile(r"`\$([^`]*)`$")
_STEP: Final = re.compile(r"\[\d+\]|\.[^.\[]+")
INLINE: Final = "<inline>"
"""Name of entries without a file."""


class RuleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rule: tables of one schema of one catalog. LakeQL fails where a rule of the asked schema has no `tables`."""

    catalog: str
    schema: str
    tables: tuple[str, ...] | None = None


class SlotsBody(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"query": "Query", "mutation": "Mutation"}
):
    """Rules of an entry: `Query` for reads, `Mutation` for writes."""

    query: tuple[RuleBody, ...] | None = None
    mutation: tuple[RuleBody, ...] | None = None


class EntryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Entry of one user. `useSystemUser` says how LakeQL connects to Trino, and decides nothing."""

    name: str
    permissions: SlotsBody = SlotsBody()
    use_system_user: bool | None = None


class NamedEntry(msgspec.Struct, frozen=True):
    """Entry with the file, the text of the file and the position in the list, for places of findings."""

    entry: EntryBody
    file: str = INLINE
    text: str = ""
    number: int = 0

    def place(self, *where: str | int) -> Place:
        """Return the place of a value of the entry, or of the nearest one around the value."""
        return _place(self.file, self.text, (self.number, *where))


def read_entries(paths: Sequence[Path]) -> Iterator[NamedEntry]:
    """Yield the entries of files in order; raise PolicyError for the first invalid file."""
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise PolicyError(f"cannot be read: {error.strerror}", Place(str(path), 0)) from None
        except UnicodeDecodeError:
            raise PolicyError("does not parse: it is not UTF-8", Place(str(path), 0)) from None
        yield from parse_entries(_parse(text, path), str(path), text)


def parse_entries(data: Any, file: str = INLINE, text: str = "") -> Sequence[NamedEntry]:
    """Return the entries of parsed data; raise PolicyError unless the data is a list of entries."""
    try:
        entries = msgspec.convert([] if data is None else data, tuple[EntryBody, ...])
    except msgspec.ValidationError as error:
        raise PolicyError(sentence(str(error)), _place(file, text, _where(str(error)))) from None
    return [NamedEntry(entry, file, text, number) for number, entry in enumerate(entries)]


def _parse(text: str, path: Path) -> Any:
    """Return the value of a text in the language of the file's name; raise PolicyError."""
    try:
        if path.suffix == ".json":
            data = json.loads(text)  # first, because the errors of this reader have a line
            refuse_duplicates(text.encode())
            return data
        return strict.load_yaml(text)
    except yaml.MarkedYAMLError as error:
        mark, cause = error.problem_mark, error.problem
        place = Place(str(path), mark.line + 1, mark.column + 1) if mark else Place(str(path), 0)
    except json.JSONDecodeError as error:
        place, cause = Place(str(path), error.lineno, error.colno), sentence(error.msg)
    except (ValueError, RecursionError, yaml.YAMLError, InvalidArgument) as error:
        place, cause = Place(str(path), 0), " ".join(str(error).split())
    raise PolicyError(f"does not parse: {cause}", place)


def _place(file: str, text: str, where: Sequence[str | int]) -> Place:
    found = strict.position_of(text, where)
    return Place(file, *found[:2]) if found else Place(file)


def _where(message: str) -> Sequence[str | int]:
    """Return the path at the end of a decoder's message, such as "- at `$[0].name`"; empty without one."""
    path = _PATH.search(message)
    steps = _STEP.findall(path[1]) if path else []
    return [int(step[1:-1]) if step[0] == "[" else step[1:] for step in steps]
