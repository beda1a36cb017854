"""Text of a world file: one entry a line, in an order that depends on the content alone.

Two exports of the same facts are the same bytes. Exports of different facts differ in the lines of the different
entries. A line holds only printable characters, whatever a name contains. `world` reads the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pdp.facts.snapshot import Facts
from pdp.store.world import grant_entry, object_entry, sorted_content


def world_lines(facts: Facts, *, yaml: bool = False) -> Iterator[str]:
    """Yield the lines of a world file with the objects and grants of some facts, without line ends."""
    objects, grants = sorted_content(facts)
    lists = {"objects": map(object_entry, objects), "grants": map(grant_entry, grants)}
    if yaml:
        for name, entries in lists.items():
            yield from _yaml_list(name, entries)
    else:
        yield "{"
        for name, entries in lists.items():
            yield from _json_list(name, entries, "," if name == "objects" else "")
        yield "}"


def entry_text(entry: Mapping[str, Any], *, yaml: bool = False) -> str:
    """Return an entry as JSON on one line.

    `yaml` escapes characters above U+FFFF as YAML does, instead of as two surrogates.
    """
    text = json.dumps(entry, ensure_ascii=False)
    return text if text.isprintable() else "".join(sign if sign.isprintable() else _escape(sign, yaml) for sign in text)


def _json_list(name: str, entries: Iterator[dict[str, Any]], end: str) -> Iterator[str]:
    before = f'"{name}": ['
    for entry in entries:
        yield before
        before = f"  {entry_text(entry)},"
    yield before.removesuffix(",")
    yield f"]{end}"


def _yaml_list(name: str, entries: Iterator[dict[str, Any]]) -> Iterator[str]:
    lines = [f"- {entry_text(entry, yaml=True)}" for entry in entries]
    yield f"{name}:" if lines else f"{name}: []"
    yield from lines


def _escape(sign: str, yaml: bool) -> str:
    if yaml and ord(sign) > 0xFFFF:
        return f"\\U{ord(sign):08x}"
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
