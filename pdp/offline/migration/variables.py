"""Environment variables in files: env files, and manifests of docker compose, Kubernetes and Helm."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from pdp.config.foreign_files import advice_for
from pdp.config.quarkus.entries import ConfigEntry, positions_of
from pdp.config.quarkus.yaml_text import YamlText
from pdp.errors import InvalidArgument, Place, PolicyError

_LINE: Final = re.compile(r"\s*(?:export\s+|-e\s+|ENV\s+)?(?P<name>[^\s=#][^\s=]*)\s*=[ \t]*(?P<value>.*?)\s*\\?")
_ASSIGNED: Final = re.compile(r"(?P<name>[A-Za-z_][\w.%-]*)=(?P<value>.*)", re.DOTALL)
_NAME: Final = re.compile(r"_?[A-Z][A-Z0-9]*_[A-Z0-9_<>-]*[A-Z0-9_>]")
_MAX_DEPTH: Final = 32
_MANIFEST: Final = (".yaml", ".yml", ".json")


class Variables(NamedTuple):
    """Variables with their texts, and variables with a value that stands elsewhere, such as in a secret."""

    entries: Sequence[ConfigEntry]
    elsewhere: Sequence[ConfigEntry]


def read_variables(file: Path) -> Variables:
    """Return the variables of a file; of a manifest, those of all containers. A variable may have several values.

    Raise PolicyError for a line that is no assignment.
    """
    advice = advice_for(file.suffix)
    if advice:
        raise InvalidArgument(f"`{file}`: {advice}")
    text = _text(file)
    found = list(_in_manifest(text, file) if file.suffix in _MANIFEST else _in_env_file(text, file))
    entries: dict[tuple[str, str], ConfigEntry] = {}
    for entry, known in found:
        if known:
            entries.setdefault((entry.key, entry.text), entry)
    return Variables(list(entries.values()), [entry for entry, known in found if not known])


def check_unique(entries: Sequence[ConfigEntry]) -> None:
    """Raise PolicyError if a variable has two values."""
    first: dict[str, ConfigEntry] = {}
    for entry in entries:
        if first.setdefault(entry.key, entry) is not entry:
            raise entry.error(f"`{entry.key}` has another value at {first[entry.key].key_place}: keep one of them")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidArgument(f"cannot read `{file}`: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"cannot read `{file}`: not UTF-8") from None


def _in_env_file(text: str, file: Path) -> Iterator[tuple[ConfigEntry, bool]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise PolicyError("not `NAME=value`", Place(str(file), number))
        start = (number, match.start("value") + 1)
        yield _entry(match["name"], _unquoted(match["value"]), file, start), True


def _unquoted(value: str) -> str:
    if value[:1] in ("'", '"') and value.count(value[0]) == 2 and value.endswith(value[0]):
        return value[1:-1]
    return re.split(r"\s#", value, maxsplit=1)[0].rstrip()


def _entry(name: str, text: str, file: Path, start: tuple[int, int]) -> ConfigEntry:
    return ConfigEntry(name, text, str(file), start, partial(positions_of, text, *start), (start[0], 1))


def _in_manifest(text: str, file: Path) -> Iterator[tuple[ConfigEntry, bool]]:
    document = YamlText(text, str(file))
    for root in document.documents:
        yield from _in_node(root, file)


def _in_node(node: Any, file: Path, depth: int = 0) -> Iterator[tuple[ConfigEntry, bool]]:
    """Yield variables below a node: `name` with `value`, `NAME: value`, and `NAME=value` in lists."""
    if depth > _MAX_DEPTH:
        raise PolicyError("nested too deeply", Place(str(file), *_position(node)))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            match = _ASSIGNED.fullmatch(item.value) if isinstance(item, yaml.ScalarNode) else None
            if match:
                yield _entry(match["name"], match["value"], file, _position(item)), True
            else:
                yield from _in_node(item, file, depth + 1)
    elif isinstance(node, yaml.MappingNode):
        pairs = {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}
        named = pairs.get("name")
        if isinstance(named, yaml.ScalarNode) and {"value", "valueFrom"} & pairs.keys():
            value = pairs.get("value")
            known = isinstance(value, yaml.ScalarNode)
            yield _entry(named.value, value.value if known else "", file, _position(named)), known  # type: ignore[union-attr]
            return
        for key, value in node.value:
            if isinstance(value, yaml.ScalarNode) and _NAME.fullmatch(str(key.value)):
                yield _entry(key.value, value.value, file, _position(value)), True
            else:
                yield from _in_node(value, file, depth + 1)


def _position(node: Any) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
