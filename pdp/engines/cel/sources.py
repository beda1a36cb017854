"""Readers of rule files: from `.properties` and YAML to texts with the line and column of every character.

Properties files, and YAML files with nested keys, are read as in Quarkus: profiles, expressions, continuations, escapes
and UTF-8. YAML files may also have a mapping `rules:` from id to expression. For usual mistakes in rules that were
pasted from a manual there is a mended text. Compiles nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pdp.cel.syntax import CompileError
from pdp.config.quarkus.profiles import PROD, ConfigSource
from pdp.config.quarkus.properties import ConfigEntry, Position, positions_of, read_properties
from pdp.config.quarkus.yaml_text import YamlText
from pdp.config.regular_files import MAX_FILE_BYTES, advice_for, read_regular
from pdp.engines.cel.nessie_keys import NessieConfig, read_nessie
from pdp.engines.cel.program import compile_program
from pdp.errors import Notice, Place, PolicyError

PROFILE_VARIABLE: Final = "QUARKUS_PROFILE"
"""Variable that chooses the profile of Quarkus."""
YAML_SUFFIXES: Final = (".yaml", ".yml")


class RuleText(NamedTuple):
    """A rule of a file. `start` is the position of the first character.

    `locate` returns the position of each character, and of the end of the text. Only errors need these positions, so
    they are not kept. Where the positions inside are unknown, there is only the position of the beginning.
    """

    id: str
    text: str
    file: str
    start: Position
    locate: Callable[[], Sequence[Position]]

    def place(self, offset: int = 0) -> Place:
        """Return the place of the character at `offset`."""
        return ConfigEntry(*self).place(offset)


class RuleFile(NamedTuple):
    """The rules of a file, and warnings about other keys."""

    rules: list[RuleText]
    warnings: list[Notice]


def read_rule_file(path: Path, profiles: Sequence[str] = PROD) -> RuleFile:
    """Read the rules of a `.properties`, `.yaml` or `.yml` file that are in force under some profiles.

    Raise PolicyError if the file cannot be read, is no rule file, or has a key that could be a rule and is none.
    """
    entries, own = read_entries(path)
    config = read_nessie([ConfigSource(0, entries)], profiles)
    refuse_foreign_decisions(config, profiles)
    return RuleFile([*own, *(RuleText(id, *rule[1:5]) for id, rule in config.rules)], config.notices)


def read_entries(path: Path) -> tuple[Sequence[ConfigEntry], Sequence[RuleText]]:
    """Return the entries of a file, and the rules of its mapping `rules:`.

    Raise PolicyError if the file cannot be read or is no rule file.
    """
    if path.suffix == ".properties":
        return list(read_properties(_text(path), str(path))), ()
    if path.suffix in YAML_SUFFIXES:
        return _yaml(YamlText(_text(path), str(path)))
    text = _text(path) if path.suffix == ".sql" else ""
    message = advice_for(path.suffix, text) or "neither .properties nor .yaml"
    if path.suffix.lower() in (".properties", *YAML_SUFFIXES):
        message = f"write the ending in lower case: `{path.suffix.lower()}`"
    raise PolicyError(f"not a rule file: {message}", Place(str(path)))


def refuse_foreign_decisions(config: NessieConfig, profiles: Sequence[str]) -> None:
    """Raise PolicyError if a file turns authorization off, or takes its profile or further keys from elsewhere."""
    if config.disabled:
        raise config.disabled.error(
            f"`{config.disabled.key}` is false, so Nessie asks no rule and allows everything; pdp always asks: remove "
            "the key to enforce the rules, or keep the single rule `everything=true`"
        )
    if config.profile and config.profile.text != ",".join(profiles):
        raise config.profile.error(
            f"the file asks for the profile `{config.profile.text}`, and `{','.join(profiles)}` is in force: "
            "set `policies.profiles`"
        )
    variable = os.environ.get(PROFILE_VARIABLE, "")
    if config.inactive and variable and variable != ",".join(profiles):
        name, entry = config.inactive[0]
        raise entry.error(
            f"`{name}` is not in force, and the environment asks for the profile `{variable}` ({PROFILE_VARIABLE}): "
            "set `policies.profiles`, or unset the variable"
        )
    for entry in config.elsewhere:
        message = f"`{entry.key}` names further keys, which are not read here: `pdp migrate nessie` joins several files"
        raise entry.error(message)


def inline_rule(id: str, text: str) -> RuleText:
    """Return a rule given as text, not in a file."""
    return RuleText(id, text, Place().file, (1, 1), partial(positions_of, text, 1, 1))


def _text(path: Path) -> str:
    try:
        data = read_regular(path, MAX_FILE_BYTES)
    except OSError as error:
        raise PolicyError(f"cannot read: {error.strerror}", Place(str(path))) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        lines = data[: error.start].count(b"\n")
        raise PolicyError("not UTF-8", Place(str(path), lines + 1)) from None


def _yaml(document: YamlText) -> tuple[Sequence[ConfigEntry], Sequence[RuleText]]:
    entries: list[ConfigEntry] = []
    rules: list[RuleText] = []
    for root in document.documents:
        for key, value in document.pairs(root):
            if key.value == "rules":
                rules += _own_rules(document, value)
            else:
                entries += document.flatten(key, value)
    return entries, rules


def _own_rules(document: YamlText, rules: object) -> Iterator[RuleText]:
    for id, rule in document.pairs(rules):
        if not hasattr(rule, "style") or not isinstance(rule.value, str):
            raise PolicyError(f"rule `{id.value}` is not text", document.mark(rule))
        if not id.value:
            raise PolicyError("a rule without an id", document.mark(id))
        yield RuleText(*document.entry(id.value, id, rule)[:5])


_PLACEHOLDER: Final = re.compile(r"<[^<>]+>")


def mended_text(text: str, extensions: frozenset[str] = frozenset()) -> str | None:
    """Return the text with the usual mistakes mended; None if the result does not compile.

    The mistakes are a backtick for a quote, a bracket too many at the end, and a single backslash in a pattern.
    """
    for mended in _candidates(text):
        try:
            compile_program(mended, extensions)
        except CompileError:
            continue
        return mended
    return None


def _candidates(text: str) -> Iterator[str]:
    quoted = text.replace("`", "'")
    for one in (quoted, text):
        if one != text:
            yield one
        if one.rstrip().endswith(")"):
            yield one.rstrip().removesuffix(")")
    if "\\" in text:
        yield text.replace("\\", "\\\\")


def advice_for_rule(text: str, file: str, extensions: frozenset[str] = frozenset()) -> str:
    """Return advice for a rule that does not compile, in the escapes of its file; "" without advice."""
    if _PLACEHOLDER.fullmatch(text.strip()):
        return f"`{text.strip()}` is a placeholder: write an expression such as `op=='VIEW_REFERENCE' && ref=='main'`"
    mended = mended_text(text, extensions)
    if mended is None:
        return ""
    shown = mended.replace("\\", "\\\\") if file.endswith(".properties") else mended
    return f"write `{' '.join(shown.split())}`"
