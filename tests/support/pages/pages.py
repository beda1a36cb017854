"""Fenced blocks of the documentation, and comparison of printed with real output."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from markdown_it import MarkdownIt
from support.paths import ROOT, TESTS

ANYTHING: Final = "..."
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARYING: Final = re.compile(r"\b[0-9a-f]{12}\b|\bt[0-9a-f]{16}\b|\b\d{8}_\d{6}_\d{5}_[a-z0-9]{5}\b")
"""Epoch of a store, and id of a query of Trino."""


@dataclass(frozen=True)
class Block:
    """Fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    @property
    def file_name(self) -> str:
        """Return the name of the file that the first line, a comment, names; empty without one."""
        named = re.match(r"# ([\w./-]+\.(?:env|json|properties|py|toml|yaml))\b", self.text)
        return named[1] if named else ""

    def __str__(self) -> str:
        """Return the place of the block."""
        return f"{self.page}:{self.line}"


def page_names() -> list[str]:
    """Return the pages with blocks."""
    return [name for name in all_pages() if blocks_of(name)]


def all_pages() -> list[str]:
    """Return all pages for readers. The template of a generated page is none."""
    files = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(file.relative_to(ROOT)) for file in files if not file.name.endswith(".in.md")]


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page in order."""
    text = (ROOT / page).read_text()
    return [Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2]) for found in _FENCE.finditer(text)]


def page_entries() -> dict[str, dict[str, Any]]:
    """Return the exceptions of `tests/pages.yaml` by page."""
    entries: dict[str, dict[str, Any]] = yaml.safe_load((TESTS / "pages.yaml").read_text())
    return entries


def entry_of(block: Block, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the exception with the longest beginning of a block; empty without one."""
    entries: Mapping[str, Mapping[str, Any]] = settings.get("blocks", {})
    return entries.get(start_of(block, settings), {})


def start_of(block: Block, settings: Mapping[str, Any]) -> str:
    """Return the longest beginning of a block that an exception of the page names; empty without one."""
    return max((start for start in settings.get("blocks", {}) if block.text.startswith(start)), key=len, default="")


def codes_in(text: str) -> list[str]:
    """Return the content of every block of code as Markdown reads it, also of indented and nested ones."""
    return [token.content for token in MarkdownIt().parse(text) if token.type in ("fence", "code_block")]


@dataclass
class Output:
    """Comparison of printed output with real output: an id that varies is the same wherever the page prints the same."""

    ids: dict[str, str] = field(default_factory=dict)

    def differences(self, printed: str, real: str) -> str:
        """Return why real lines are not the printed ones; empty if they are. `...` stands for anything."""
        pattern = "".join(self._line_pattern(line) for line in printed.rstrip("\n").split("\n"))
        found = re.fullmatch(pattern, f"{real.rstrip(chr(10))}\n")
        if not found:
            self.ids = {name: value for name, value in self.ids.items() if value}
            return f"printed:\n{printed}\nreal:\n{real}"
        for name, value in found.groupdict().items():
            self.ids[name] = value
        return ""

    def _line_pattern(self, line: str) -> str:
        if line.strip() == ANYTHING:
            return r"(?:.*\n)*"
        pattern, end = "", 0
        for found in _VARYING.finditer(line):
            pattern += _literal(line[end : found.start()]) + self._id_pattern(found[0])
            end = found.end()
        return f"{pattern}{_literal(line[end:])} *\n"

    def _id_pattern(self, printed: str) -> str:
        name = f"id_{printed}"
        if name in self.ids:
            return re.escape(self.ids[name])
        self.ids[name] = ""
        return f"(?P<{name}>{_VARYING.pattern})"


def _literal(text: str) -> str:
    return ".*".join(map(re.escape, text.split(ANYTHING)))


def same_json(printed: Any, real: Any) -> bool:
    """Tell whether a real value is the printed one. `"..."` stands for any value, at the end of a list for any rest."""
    if printed == ANYTHING:
        return True
    if isinstance(printed, dict) and isinstance(real, dict):
        return printed.keys() == real.keys() and all(same_json(value, real[key]) for key, value in printed.items())
    if isinstance(printed, list) and isinstance(real, list):
        return _same_list(printed, real)
    return bool(printed == real)


def _same_list(printed: Sequence[Any], real: Sequence[Any]) -> bool:
    if printed and printed[-1] == ANYTHING and len(real) >= len(printed) - 1:
        printed, real = printed[:-1], real[: len(printed) - 1]
    return len(printed) == len(real) and all(map(same_json, printed, real))


def parsed_json(text: str) -> Any:
    """Return the JSON of an output; None if there is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None
