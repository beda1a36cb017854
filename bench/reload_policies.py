"""Policy files of several kinds and sizes, in versions that differ in a tenth of the policies or in all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, TypeAlias

FILES: Final = 10
"""Files of the policies."""
SCHEMAS: Final = 20
Versions: TypeAlias = Callable[[int], int]
"""Version of each policy, by the number of the policy."""


def _cel(numbers: range, version: Versions) -> str:
    rules = {
        f"r{number}": f"op == 'READ_ENTITY_VALUE' && role == 'u{number}' && path.startsWith('s{number % SCHEMAS}.')"
        f" && path != 'v{version(number)}'"
        for number in numbers
    }
    return json.dumps({"rules": rules})


def _row_access(numbers: range, version: Versions) -> str:
    policies = [
        {
            "id": f"p{number}",
            "table": f"lake.s{number % SCHEMAS}.t{number}",
            "grantees": [f"user:u{number}"],
            "filter": f"region = 'EU' AND version <> {version(number)}",
        }
        for number in numbers
    ]
    return json.dumps({"policies": policies})


def _scopes(numbers: range, version: Versions) -> str:
    return json.dumps(
        [
            {
                "name": f"u{number}",
                "permissions": {
                    "Query": [
                        {
                            "catalog": "lake",
                            "schema": f"s{number % SCHEMAS}",
                            "tables": [f"t{number}", f"v{version(number)}"],
                        }
                    ]
                },
            }
            for number in numbers
        ]
    )


def _cedar(numbers: range, version: Versions) -> str:
    return "\n".join(
        f'@id("p{number}") permit(principal == Lakekeeper::User::"oidc~u{number}",'
        f' action in Lakekeeper::Action::"TableSelectActions",'
        f' resource in Lakekeeper::Namespace::"lake/s{number % SCHEMAS}")'
        f' unless {{ resource has name && resource.name == "v{version(number)}" }};'
        for number in numbers
    )


_TEXTS: Final[Mapping[str, tuple[Callable[[range, Versions], str], str, dict[str, Any]]]] = {
    "cel": (_cel, "yaml", {"rules": "{}"}),
    "row_access": (_row_access, "json", {"rules": [], "row_access": "{}"}),
    "scopes": (_scopes, "json", {"rules": [], "scopes": {"permissions": "{}", "strict": True}}),
    "cedar": (_cedar, "cedar", {"rules": [], "cedar": {"policies": "{}"}}),
}
"""Kind -> text of a file, the file's extension, and the section `policies` with a place for the files."""
KINDS: Final = tuple(_TEXTS)


class PolicyFiles:
    """Files of one kind in a folder, with `count` policies."""

    def __init__(self, kind: str, count: int, folder: Path) -> None:
        _, self._extension, self._section = _TEXTS[kind]
        self._kind = kind
        self._count = count
        self._folder = folder
        self._changes = 0
        self._versions = [0] * count
        self._write(range(FILES))

    def settings(self) -> dict[str, Any]:
        """Return the settings of a service with these files."""
        engine = "grants" if self._kind == "row_access" else self._kind
        section = json.dumps(self._section).replace('"{}"', json.dumps([f"{self._folder}/*.{self._extension}"]))
        return {
            "policies": {**json.loads(section), "refresh_seconds": 0.1},
            "authorities": {"default": {"engines": [engine]}},
            "warehouses": {"lake": {"project": "p", "default_ref": "main"}},
        }

    def change(self) -> None:
        """Edit a tenth of the policies in one file; with each fourth call, all policies."""
        self._changes += 1
        files = range(FILES) if self._changes % 4 == 0 else range(self._changes % FILES, self._changes % FILES + 1)
        for file in files:
            for number in self._numbers(file):
                self._versions[number] = self._changes
        self._write(files)

    def _numbers(self, file: int) -> range:
        size = self._count // FILES
        return range(file * size, (file + 1) * size)

    def _write(self, files: range) -> None:
        text = _TEXTS[self._kind][0]
        for file in files:
            target = self._folder / f"p{file}.{self._extension}"
            new = target.with_suffix(".new")
            new.write_text(text(self._numbers(file), self._versions.__getitem__))
            new.rename(target)


@contextmanager
def changing(files: PolicyFiles) -> Iterator[Callable[[], None]]:
    """Change files in a process of low priority, so that the clients lose no time; yield the order of a change."""
    here, there = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_change, args=(files, there))
    process.start()
    try:
        yield lambda: here.send(True)
    finally:
        here.send(False)
        process.join()


def _change(files: PolicyFiles, orders: Connection) -> None:
    os.nice(10)
    while orders.recv():
        files.change()
