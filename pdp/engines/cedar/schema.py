"""Schema of policies and entities: pdp's own, replaced or extended, and the groups of each action.

Owns the texts of Cedar files with the places of their characters, and the import of the package cedarpy, which comes
when a Cedar engine is built and not before.
"""

from __future__ import annotations

import importlib
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import cache, cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from pdp.config.names import NameCheck
from pdp.config.regular_files import read_regular
from pdp.engines.cedar.actions import ACTION, Uid
from pdp.engines.cedar.tokens import TOO_DEEP, CedarToken, find_depth, tokens_of
from pdp.errors import ConfigError, Place, PolicyError, SchemaInvalid


def load_cedarpy() -> ModuleType:
    """Return the package; raise ConfigError with the command that installs it."""
    try:
        return importlib.import_module("cedarpy")
    except ImportError:
        raise ConfigError("the engine `cedar` needs the package cedarpy: pip install 'lakehouse-pdp[cedar]'") from None


class SourceText(msgspec.Struct, frozen=True, dict=True):
    """Text of a file. `file` serves messages alone."""

    text: str
    file: str = Place().file

    def place(self, offset: int = 0) -> Place:
        """Return the place of a character."""
        line = bisect_right(self._line_starts, offset)
        return Place(self.file, line, offset - self._line_starts[line - 1] + 1)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.text))]


class CedarSources(msgspec.Struct, frozen=True):
    """All texts that a Cedar engine is made of.

    `schema` replaces the schema of pdp, `fragment` adds to the schema; None for neither. `names` is the judgement of
    names; None: names are not judged, as for policies that decided before.
    """

    policies: tuple[SourceText, ...]
    entities: tuple[SourceText, ...] = ()
    schema: SourceText | None = None
    fragment: SourceText | None = None
    names: NameCheck | None = None

    @property
    def warehouses(self) -> frozenset[str] | None:
        """Return the warehouses that ids may name; None without a configuration."""
        return self.names.known.warehouses if self.names else None


def read_sources(paths: Iterable[Path]) -> tuple[SourceText, ...]:
    """Return the texts of files; raise PolicyError for a file that cannot be read or is not UTF-8."""
    return tuple(SourceText(_read(path), str(path)) for path in paths)


def _read(path: Path) -> str:
    try:
        data = read_regular(path)
    except OSError as error:
        raise PolicyError(f"cannot be read: {(error.strerror or str(error)).lower()}", Place(str(path), 0)) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PolicyError("not UTF-8", Place(str(path), data.count(b"\n", 0, error.start) + 1)) from None


_COMMENT: Final = re.compile(r"//[^\r\n]*")
_ENTITY: Final = re.compile(
    r"\bentity\s+(\w+(?:\s*,\s*\w+)*)(?:\s+in\s+(\[[^\]]*\]|[\w:]+))?\s*(?=[=;{]|tags\b|enum\b)"
)
"""Declaration of entity types, with the types of their parents."""
GENERATIONS: Final = 2
"""Remembered schemas, policies and models: those in use and the next ones. Old ones take memory after each reload."""
OWN_FILE: Final = Path(__file__).with_name("lakekeeper.cedarschema")


class CedarSchema(msgspec.Struct, frozen=True, eq=False):
    """Schema in force. `handle` is cedarpy's; `groups` maps each action to all groups that contain the action."""

    text: str
    handle: Any
    groups: Mapping[Uid, tuple[Uid, ...]]


def load_schema(replacement: SourceText | None, fragment: SourceText | None) -> CedarSchema:
    """Return the schema in force; raise SchemaInvalid with the file that is wrong."""
    text = own_text() if replacement is None else replacement.text
    schema = _parsed(text, replacement or SourceText(text, str(OWN_FILE)))
    if fragment is None:
        return schema
    return _parsed(join_schemas(text, fragment.text), fragment)


@cache
def own_text() -> str:
    """Return the text of pdp's own schema."""
    return OWN_FILE.read_text("utf-8")


@lru_cache(maxsize=GENERATIONS)
def _known(text: str) -> CedarSchema:
    library = load_cedarpy()
    handle = library.Schema.from_str(text)
    return CedarSchema(text, handle, _groups(library, handle))


def _parsed(text: str, blamed: SourceText) -> CedarSchema:
    at = find_depth(blamed.text)
    if at is not None:
        raise SchemaInvalid(TOO_DEEP, blamed.place(at))
    try:
        return _known(text)
    except ValueError as error:
        cause = str(error).removeprefix("error parsing schema: ")
        raise SchemaInvalid(f"not a Cedar schema: {cause}", Place(blamed.file, 1)) from None


def _groups(library: Any, handle: Any) -> dict[Uid, tuple[Uid, ...]]:
    """Return the groups of actions: cedarpy adds the actions of a schema to entities."""
    entities = json.loads(str(library.Entities.from_json_str("[]", handle)))
    return {
        (entity["uid"]["type"], entity["uid"]["id"]): tuple(
            sorted((parent["type"], parent["id"]) for parent in entity["parents"])
        )
        for entity in entities
    }


def action_uid(action: str) -> Uid:
    """Return the uid of an action."""
    return ACTION, action


def join_schemas(schema: str, fragment: str) -> str:
    """Return a schema with a fragment.

    Cedar takes each namespace once. So the declarations of a namespace that the schema has, too, go into that block.
    """
    added = []
    for name, body in _blocks(fragment):
        known = dict(_blocks(schema)).get(name) if name else None
        if known is None:
            added.append(f"namespace {name} {{{body}}}" if name else body)
        else:
            schema = schema.replace(known, f"{known}\n{body}", 1)
    return "\n".join([schema, *added])


def _blocks(text: str) -> list[tuple[str, str]]:
    """Return the namespaces of a schema with their bodies; text outside of namespaces has an empty name."""
    tokens = list(tokens_of(text))
    blocks, outside, at, last = [], [], 0, 0
    while at < len(tokens):
        if tokens[at].text != "namespace":
            at += 1
            continue
        opening = _next(tokens, at, "{")
        closing = _closing(tokens, opening)
        if closing >= len(tokens):
            break
        name = "".join(token.text for token in tokens[at + 1 : opening])
        blocks.append((name, text[tokens[opening].start + 1 : tokens[closing].start]))
        outside.append(text[last : tokens[at].start])
        at, last = closing + 1, tokens[closing].start + 1
    outside.append(text[last:])
    rest = "".join(outside)
    return [*blocks, ("", rest)] if rest.strip() else blocks


@lru_cache(maxsize=GENERATIONS)
def parent_types(text: str) -> Mapping[str, frozenset[str]]:
    """Return the types of direct parents that a schema allows, for each entity type that the schema declares."""
    found: dict[str, frozenset[str]] = {}
    for namespace, body in _blocks(text):
        prefix = f"{namespace}::" if namespace else ""
        for names, parents in _ENTITY.findall(_COMMENT.sub("", body)):
            allowed = (name.strip() for name in parents.strip("[] \n\r\t").split(","))
            types = frozenset(name if "::" in name else f"{prefix}{name}" for name in allowed if name)
            found |= {f"{prefix}{name.strip()}": types for name in names.split(",")}
    return found


def _next(tokens: list[CedarToken], at: int, sign: str) -> int:
    return next((place for place in range(at, len(tokens)) if tokens[place].text == sign), len(tokens) - 1)


def _closing(tokens: list[CedarToken], opening: int) -> int:
    depth = 0
    for place in range(opening, len(tokens)):
        depth += (tokens[place].text == "{") - (tokens[place].text == "}")
        if depth == 0:
            return place
    return len(tokens)
