"""All pages: every block does what the page says, played in order in a network of its own, or says why it is not."""

from __future__ import annotations

import re
import socket
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.pages.page_claims import commands_of, unknown_in, unplayed, unread_files
from support.pages.page_player import LANGUAGES, Player, clone_environment, make_clone
from support.pages.pages import Block, all_pages, blocks_of, codes_in, entry_of, page_entries, page_names, start_of
from support.paths import ROOT
from support.servers.private_network import private_network

ENTRIES = page_entries()
WITHOUT_NETWORK = "with the pages of the documentation"


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", page_names())
def test_every_block_of_a_page_does_what_it_says(tmp_path: Path, page: str) -> None:
    settings: dict[str, Any] = ENTRIES.get(page, {})
    make_clone(tmp_path)
    with private_network(WITHOUT_NETWORK), Player.of_page(tmp_path, settings) as player:
        for block in blocks_of(page):
            entry = entry_of(block, settings)
            if not entry.get("trino"):
                player.play(block, entry)


@pytest.mark.parametrize("page", page_names())
def test_every_block_has_a_language(page: str) -> None:
    assert [str(block) for block in blocks_of(page) if block.language not in LANGUAGES] == []


@pytest.mark.parametrize("page", page_names())
def test_no_command_hides_in_a_text(page: str) -> None:
    hidden = [str(block) for block in blocks_of(page) if block.language == "text" and "\n$ " in f"\n{block.text}"]
    assert hidden == []


@pytest.mark.parametrize("page", page_names())
def test_every_block_is_played_or_says_why_not(page: str) -> None:
    settings = ENTRIES.get(page, {})
    assert [problem for block in blocks_of(page) if (problem := unplayed(block, entry_of(block, settings)))] == []


@pytest.mark.parametrize(
    ("language", "entry"),
    [
        ("text", {}),
        ("sql", {}),
        ("js", {}),
        ("", {}),
        ("sh", {"not_run": ""}),
        ("sh", {"not_run": "later"}),
        ("yaml", {"unchecked": True}),
        ("text", {"test": "tests/test_missing.py"}),
        ("text", {"test": "tests/conftest.py"}),
        ("text", {"before": ["true"]}),
    ],
)
def test_a_block_without_a_way_or_a_reason_is_found(language: str, entry: dict[str, Any]) -> None:
    assert unplayed(Block("docs/audit.md", 1, language, "pdp lint\n"), entry)


@pytest.mark.parametrize("page", all_pages())
def test_no_block_escapes_the_reader(page: str) -> None:
    """Markdown knows more blocks than this reader: indented ones, nested ones, other fences. Pages have none of these."""
    assert codes_in((ROOT / page).read_text()) == [block.text for block in blocks_of(page)]


@pytest.mark.parametrize("page", page_names())
def test_every_written_file_is_read_by_what_is_played(page: str) -> None:
    assert unread_files(page, ENTRIES.get(page, {})) == []


@pytest.mark.parametrize("page", all_pages())
def test_every_named_command_and_option_of_pdp_is_one(page: str) -> None:
    text = (ROOT / page).read_text()
    inline = [" ".join(found.split()) for found in re.findall(r"`pdp ([a-z][^`]*)`", text)]
    commands = inline + [command for block in blocks_of(page) for command in commands_of(block.text)]
    assert [f"{command}: {unknown}" for command in commands if (unknown := unknown_in(command))] == []


@pytest.mark.parametrize(
    ("arguments", "unknown"),
    [
        ("lint --stored", ""),
        ("lint -c", ""),
        ("serve, check, lint", ""),
        ("pipeline ingest --audit a --lake b --once", ""),
        ("lints", "no command `lints`"),
        ("pipeline ingests", "no command `ingests`"),
        ("serve, lints", "no command `lints`"),
        ("lint --stord", "No such option"),
        ("pipeline replay --lake a --record", "No such option"),
    ],
)
def test_an_unknown_command_or_option_is_found(arguments: str, unknown: str) -> None:
    assert unknown_in(arguments).startswith(unknown)
    assert bool(unknown_in(arguments)) == bool(unknown)


@pytest.mark.parametrize("page", [*all_pages(), "tests/pages.yaml"])
def test_every_named_target_of_make_is_one(page: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"(?:`|^)make ([a-z][a-z-]*)", (ROOT / page).read_text(), re.MULTILINE)) <= set(targets)


@pytest.mark.process
def test_make_run_on_a_used_port_says_so(tmp_path: Path) -> None:
    make_clone(tmp_path)
    with private_network(WITHOUT_NETWORK), closing(socket.create_server(("127.0.0.1", 8181))):
        ended = subprocess.run(
            ["make", "run"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=clone_environment(tmp_path),
        )
    said = "pdp: cannot listen on `127.0.0.1:8181` (server.http): address already in use; --set server.http=HOST:PORT"
    assert ended.returncode == 2
    assert said in ended.stderr


def test_every_exception_is_of_one_block() -> None:
    blocks: dict[str, list[Block]] = {page: blocks_of(page) for page in page_names()}
    assert ENTRIES.keys() - blocks.keys() == set(), "no page, or no blocks"
    for page, settings in ENTRIES.items():
        used = [start_of(block, settings) for block in blocks[page]]
        wrong = {start for start in settings.get("blocks", {}) if used.count(start) != 1}
        assert wrong == set(), f"{page}: not of exactly one block"
