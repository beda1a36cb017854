"""Result of a migration: new files, and a report on every part of the old ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

from pdp.offline.migration.variables import ManifestContent, Reference, missing_references

Status = Literal["done", "note", "left", "ignored"]
TESTS: Final = "tests."
"""Beginning of the names of files with policy tests."""
TESTS_FILE: Final = f"{TESTS}yaml"


class MigratedPart(msgspec.Struct, frozen=True):
    """Part of the old files. `place` is the file with line, `subject` the key, rule or tuple.

    `done`: translated. `note`: translated, and worth a look. `left`: has no counterpart, or needs a person. `ignored`:
    no policy.
    """

    place: str
    status: Status
    subject: str
    message: str = ""


class Migration(msgspec.Struct):
    """New files by name, and the parts of the report in the order of the old files.

    `accepted` has the names of widenings that may be written. `refused` has the names of those that the files have and
    that are not accepted: then no file is written.
    """

    files: dict[str, str] = {}
    parts: list[MigratedPart] = []
    accepted: frozenset[str] = frozenset()
    refused: set[str] = set()

    def add(self, status: Status, place: object, subject: str, message: str = "") -> None:
        """Add a part to the report."""
        self.parts.append(MigratedPart(str(place), status, subject, message))

    def add_wider(self, name: str, subject: str, message: str) -> None:
        """Add a part of the new files with wider permits: left, unless the name is accepted."""
        if name in self.accepted:
            self.add("note", "", subject, message)
        else:
            self.refused.add(name)
            self.add("left", "", subject, f"{message}; {accepting(name)}")

    @property
    def left(self) -> Sequence[MigratedPart]:
        """Return the parts that are not translated."""
        return [part for part in self.parts if part.status == "left"]

    def counts(self) -> dict[str, int]:
        """Return the number of parts of each status."""
        statuses: tuple[Status, ...] = ("done", "note", "left", "ignored")
        return {status: sum(part.status == status for part in self.parts) for status in statuses}


def report_references(
    migration: Migration, contents: Sequence[ManifestContent], files: Sequence[Path]
) -> Sequence[Reference]:
    """Report parts of a deployment not at hand, and parts to look at; return the parts left."""
    left = []
    reported = {part.place for part in migration.left}
    for reference in missing_references(contents, files):
        place = str(reference.entry.place())
        subject = f"`{reference.entry.key}`" if reference.entry.key else "a reference without a name"
        if reference.is_ignored:
            migration.add("ignored", place, subject, reference.message)
            continue
        left.append(reference)
        if place not in reported:
            migration.add("left", place, subject, reference.message)
    for one in contents:
        for entry, message in one.notes:
            migration.add("note", entry.place(), f"`{entry.key}`", message)
    return left


def accepting(name: str) -> str:
    """Return the words about the option for a widening."""
    return f"`--accept-wider {name}` allows this"


def to_yaml(data: Any, comment: str = "") -> str:
    """Return YAML in a fixed order, below a comment. Texts of several lines are literal blocks."""
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100_000)
    return "".join(f"# {line}\n" for line in comment.splitlines()) + text


class _Dumper(yaml.SafeDumper):
    """Dumper with literal blocks and without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
