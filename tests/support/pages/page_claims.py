"""Claims of pages that need no run: each block has a way to be played, each written file a reader, each option a command."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

import click
from support.pages.page_player import Player, way_of
from support.pages.pages import Block, blocks_of, entry_of
from support.paths import ROOT

from pdp.cli.main import cli

_REASON_WORDS: Final = 3
_COMMAND: Final = re.compile(r"^(?:.* )?(?:pdp|job\.py) ([a-z][\w-]*(?: .*)?)$")


def unplayed(block: Block, entry: Mapping[str, Any]) -> str:
    """Return why a block is neither played nor marked with a reason; empty if it is."""
    if way_of(block, entry) is None:
        return f"{block}: a block in `{block.language}` needs an entry in tests/pages.yaml"
    for key in entry.keys() & {"not_run", "unchecked"}:
        if len(str(entry[key]).split()) < _REASON_WORDS:
            return f"{block}: `{key}` needs a reason in words"
    if "test" in entry and not _is_of_page(entry["test"], block.page):
        return f"{block}: `{entry['test']}` is no test that names the page"
    return ""


def _is_of_page(test: str, page: str) -> bool:
    file = ROOT / test
    return file.is_file() and PurePath(page).name in file.read_text()


def unread_files(page: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the files that blocks of a page write and that nothing played reads. A pdp.yaml is read when it is written."""
    played = [(block, entry_of(block, settings)) for block in blocks_of(page)]
    unread: list[str] = []
    for block, entry in played:
        name = PurePath(entry.get("file") or block.file_name).name
        is_checked = name == "pdp.yaml" and "unchecked" not in entry
        if not name or is_checked or way_of(block, entry) not in (Player.write, Player.run):
            continue
        others = "\n".join(other.text for other, its in played if other is not block and "not_run" not in its)
        entries = json.dumps([{key: its[key] for key in its if key != "file"} for _, its in played])
        names = rf"{re.escape(name)}\b" + (rf"|{PurePath(name).stem}[: ]" if name.endswith(".py") else "")
        if not re.search(rf"(?<![\w.])(?:{names})", others + entries):
            unread.append(f"{block}: {name}")
    return unread


def commands_of(text: str) -> Iterator[str]:
    """Yield the arguments of each command `pdp` in a script: also behind `job.py`, and over several lines."""
    for line in text.replace("\\\n", " ").splitlines():
        found = _COMMAND.match(line.strip())
        if found:
            yield found[1]


def _words(arguments: str) -> list[str]:
    """Return the words of a command up to a pipe, a redirection or a quoted text that goes on in the next line."""
    words: list[str] = []
    lexer = shlex.shlex(arguments, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        for word in lexer:
            if set(word) <= set("|&;<>()"):
                break
            words.append(word)
    except ValueError:  # no closing quotation
        pass
    return words


def unknown_in(arguments: str) -> str:
    """Return what the command line does not know of the arguments of `pdp`; empty if all names are known.

    Values are not read, and an option at the end may lack its value: a page names `pdp lint -c`, too.
    """
    command: click.Command = cli
    context = click.Context(cli)
    rest: Sequence[str] = _words(arguments)
    while rest and isinstance(command, click.Group) and not rest[0].startswith("-"):
        name, *rest = rest
        found = command.get_command(context, name.rstrip(","))
        if found is None:
            return f"no command `{name}`"
        if name.endswith(","):  # a list of commands
            continue
        command, context = found, click.Context(found, parent=context, info_name=name)
    if isinstance(command, click.Group):
        return ""
    try:
        command.make_parser(context).parse_args(list(rest))
    except click.BadOptionUsage as error:
        return "" if str(error.option_name) == rest[-1] else error.format_message()
    except click.UsageError as error:
        return error.format_message()
    return ""
