"""World files as text: one entry a line, in an order that depends on nothing but the content.

Two exports of the same facts are the same bytes, and two of different facts differ in the lines that differ. Owns how
a world is written; how one is read is `world`'s. Whatever stands in a name, a line holds only what can be printed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pdp.facts.snapshot import Facts
from pdp.store.world import format_grant, format_object, in_order


def is_yaml(file: str | Path) -> bool:
    """Whether a world file of this name is read as YAML."""
    return Path(file).suffix != ".json"


def world_lines(facts: Facts, *, yaml: bool = False) -> Iterator[str]:
    """The lines of a world file that reads back as the same objects and grants, without their ends."""
    objects, grants = in_order(facts)
    lists = {"objects": map(format_object, objects), "grants": map(format_grant, grants)}
    if yaml:
        for name, entries in lists.items():
            yield from _yaml_list(name, entries)
    else:
        yield "{"
        for name, entries in lists.items():
            yield from _json_list(name, entries, "," if name == "objects" else "")
        yield "}"


def entry_text(entry: Mapping[str, Any], *, yaml: bool = False) -> str:
    """An entry as JSON on one line, which as YAML differs in how signs beyond the 65,536th are escaped."""
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
