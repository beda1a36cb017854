"""The README with a real Trino: its blocks in order, as printed, with Trino's own command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pages.page_player import Player, make_clone
from support.pages.pages import blocks_of, entry_of, page_entries, page_names
from support.servers.private_network import private_network
from support.servers.trino_distribution import command_line, java
from support.servers.trino_server import unpack_server, write_script

QUIET = ("--enable-native-access=ALL-UNNAMED", "-Dorg.jline.terminal.dumb=true")
"""Options of Java without which the command line warns about Java and about the missing terminal."""
ENTRIES = page_entries()
PAGES = [
    page
    for page in page_names()
    if any(entry_of(block, ENTRIES.get(page, {})).get("trino") for block in blocks_of(page))
]


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_does_what_it_says_with_trino(tmp_path: Path, page: str) -> None:
    make_clone(tmp_path)
    unpack_server(tmp_path)
    write_script(tmp_path / ".venv" / "bin" / "trino", f'exec {java()} {" ".join(QUIET)} -jar {command_line()} "$@"')
    with private_network("with the pages that need Trino"), Player.of_page(tmp_path, ENTRIES[page]) as player:
        for block in blocks_of(page):
            player.play(block, entry_of(block, ENTRIES[page]))
