"""Pages for readers of the code: quoted lines stand in their files, and named files and records are there."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from support.pages.pages import blocks_of
from support.paths import ROOT

from pdp.cli.logs import configure_logging
from pdp.engines.guarded import log_failure

PRODUCT = ROOT / "pdp"
DECISIONS = ROOT / "docs" / "decisions"


def quotes() -> list[tuple[str, str]]:
    [block] = blocks_of("docs/a-decision.md")
    return [(file, line) for file, line in (text.split(None, 1) for text in block.text.splitlines())]


@pytest.mark.parametrize(("file", "line"), quotes())
def test_every_line_of_the_decision_stands_in_its_file(file: str, line: str) -> None:
    assert line in [text.strip() for text in (PRODUCT / file).read_text().splitlines()]


def test_the_decision_fits_on_a_screen() -> None:
    assert len(quotes()) <= 32
    assert max(len(file) + len(line) for file, line in quotes()) <= 120


@pytest.mark.parametrize("page", ["architecture.md", "recipes.md", "glossary.md", "a-decision.md"])
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`((?:[\w-]+/)+(?:[\w-]+\.\w+)?)`", text))
    assert named
    assert {name for name in named if not any((folder / name).exists() for folder in (ROOT, PRODUCT))} == set()


def test_the_index_has_every_decision_record_once() -> None:
    listed = re.findall(r"^\| \[(\d{4})\]\((\1-[\w-]+\.md)\)", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    assert sorted(name for _, name in listed) == sorted(file.name for file in DECISIONS.glob("0*.md"))


def test_the_glossary_is_sorted_and_has_one_entry_a_word() -> None:
    words = re.findall(r"^\| `?([^|`]+?)`?(?: \(.*?\))? \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    entries = [word.lower() for word in words if word not in ("word", "---")]
    assert entries == sorted(set(entries))


def links() -> list[tuple[str, str]]:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    found = [(page, link) for page in pages for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text())]
    return [(str(page.relative_to(ROOT)), link) for page, link in found if not link.startswith(("http", "mailto:"))]


@pytest.mark.parametrize("page", sorted({page for page, _ in links()}))
def test_every_link_leads_somewhere(page: str) -> None:
    for target in (link for of, link in links() if of == page):
        name, _, part = target.partition("#")
        file = (ROOT / page).parent / name if name else ROOT / page
        assert file.exists(), target
        if part:
            assert part in anchors(file), target


def anchors(file: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


SAYING_WHY = {"why", "error", "reason", "message", "detail", "problem", "failure", "because", "exception", "text"}
"""Names that a second key for the cause might have."""


def test_only_the_cause_says_why_in_the_log() -> None:
    levels = {"debug", "info", "warning", "error", "exception", "critical"}
    keys: set[str | None] = set()
    for path in PRODUCT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=level)) if level in levels:
                    keys |= {keyword.arg for keyword in node.keywords}
                case ast.Call(func=ast.Name(id="log_failure")):
                    keys |= {keyword.arg for keyword in node.keywords}
    assert {"cause", "exc_info", "engine", "worker"} <= keys
    assert SAYING_WHY.isdisjoint(keys)
    documented = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", log_section(), re.MULTILINE)))
    assert documented == ["event", "level", "timestamp", "cause", "exception", "worker"]


def log_section() -> str:
    return (ROOT / "docs" / "operations.md").read_text().partition("\n## The log\n")[2].partition("\n## ")[0]


def test_a_line_of_the_log_has_the_documented_keys(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging(worker=3)
    try:
        raise ValueError("hunter2")
    except ValueError as error:
        log_failure("it failed", error, engine="mine")
    line = json.loads(capfd.readouterr().err)
    assert line.pop("exception").endswith("HiddenError: ValueError")
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "it failed", "level": "error", "cause": "ValueError", "engine": "mine", "worker": 3}
