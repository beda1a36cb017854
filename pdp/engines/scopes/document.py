"""Permission files in LakeQL's shape: a list of entries, in JSON or YAML. Knows the form of a file, no decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pdp.engines.data_files import parse_data, path_in, place_of, read_text
from pdp.errors import Place, PolicyError
from pdp.model.strict import sentence

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
        return place_of(self.file, self.text, (self.number, *where))


def read_entries(paths: Sequence[Path]) -> Iterator[NamedEntry]:
    """Yield the entries of files in order; raise PolicyError for the first invalid file."""
    for path in paths:
        text = read_text(path)
        yield from parse_entries(parse_data(text, path), str(path), text)


def parse_entries(data: Any, file: str = INLINE, text: str = "") -> Sequence[NamedEntry]:
    """Return the entries of parsed data; raise PolicyError unless the data is a list of entries."""
    try:
        entries = msgspec.convert([] if data is None else data, tuple[EntryBody, ...])
    except msgspec.ValidationError as error:
        raise PolicyError(sentence(str(error)), place_of(file, text, path_in(str(error)))) from None
    return [NamedEntry(entry, file, text, number) for number, entry in enumerate(entries)]
