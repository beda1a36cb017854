"""README.md and docs/*.md: every block does what the page says, played in order in a network of its own."""

from __future__ import annotations

import socket
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.pages.page_player import LANGUAGES, Player, clone_environment, make_clone
from support.pages.pages import Block, blocks_of, entry_of, page_entries, page_names
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
        used = [id(entry_of(block, settings)) for block in blocks[page]]
        assert all(entry.get("not_run", "reason") for entry in settings.get("blocks", {}).values()), page
        wrong = {start for start, entry in settings.get("blocks", {}).items() if used.count(id(entry)) != 1}
        assert wrong == set(), f"{page}: not of exactly one block"
