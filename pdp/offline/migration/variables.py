"""Environment variables in files: env files, and manifests of docker compose, Kubernetes and Helm."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from pdp.config.foreign_files import advice_for
from pdp.config.quarkus.properties import ConfigEntry, positions_of
from pdp.config.quarkus.yaml_text import YamlText, position_of
from pdp.errors import InvalidArgument, Place, PolicyError

_LINE: Final = re.compile(r"\s*(?:export\s+|-e\s+|ENV\s+)?(?P<name>[^\s=#][^\s=]*)\s*=[ \t]*(?P<value>.*?)\s*\\?")
_ASSIGNED: Final = re.compile(r"(?P<name>[A-Za-z_][\w.%-]*)=(?P<value>.*)", re.DOTALL)
_NAME: Final = re.compile(r"_?[A-Z][A-Z0-9]*_[A-Z0-9_<>-]*[A-Z0-9_>]")
_MAX_DEPTH: Final = 32
_CHART: Final = frozenset({"auth", "authn", "authz", "OPABridge"})
"""Keys of the values of Lakekeeper's Helm chart that its templates turn into variables."""
_MANIFEST: Final = (".yaml", ".yml", ".json")


class Variables(NamedTuple):
    """Variables with their texts, and variables with a value that stands elsewhere, such as in a secret.

    `chart`: places of keys that a Helm chart turns into variables.
    """

    entries: Sequence[ConfigEntry]
    elsewhere: Sequence[ConfigEntry]
    chart: Sequence[ConfigEntry] = ()


def read_variables(file: Path) -> Variables:
    """Return the variables of a file; of a manifest, those of all containers. A variable may have several values.

    Raise PolicyError for a line that is no assignment.
    """
    advice = advice_for(file.suffix)
    if advice:
        raise InvalidArgument(f"`{file}`: {advice}")
    text = read_text(file)
    documents = YamlText(text, str(file)).documents if file.suffix in _MANIFEST else []
    found = [pair for root in documents for pair in _in_node(root, file)]
    if file.suffix not in _MANIFEST:
        found = list(_in_env_file(text, file))
    entries: dict[tuple[str, str], ConfigEntry] = {}
    for entry, known in found:
        if known:
            entries.setdefault((entry.key, entry.text), entry)
    elsewhere = [entry for entry, known in found if not known]
    return Variables(list(entries.values()), elsewhere, [key for root in documents for key in _chart_keys(root, file)])


def check_unique(entries: Sequence[ConfigEntry]) -> None:
    """Raise PolicyError if a variable has two values."""
    first: dict[str, ConfigEntry] = {}
    for entry in entries:
        if first.setdefault(entry.key, entry) is not entry:
            raise entry.error(f"`{entry.key}` has another value at {first[entry.key].key_place}: keep one of them")


def read_text(file: Path) -> str:
    """Return the text of a file; raise InvalidArgument if the file cannot be read."""
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


def _chart_keys(root: Any, file: Path) -> Iterator[ConfigEntry]:
    for key, _ in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value in _CHART:
            yield _entry(key.value, "", file, position_of(key))


def _in_secret(secret: Any, file: Path) -> Iterator[tuple[ConfigEntry, bool]]:
    """Yield the variables of a Kubernetes secret, whose `data` are base64."""
    for entry, known in _in_node(secret, file, 1):
        try:
            text = b64decode(entry.text, validate=True).decode()
        except ValueError:
            raise entry.error(f"`{entry.key}` is no base64, as the `data` of a secret are") from None
        yield entry._replace(text=text), known


def _in_node(node: Any, file: Path, depth: int = 0) -> Iterator[tuple[ConfigEntry, bool]]:
    """Yield variables below a node: `name` with `value`, `NAME: value`, and `NAME=value` in lists."""
    if depth > _MAX_DEPTH:
        raise PolicyError("nested too deeply", Place(str(file), *position_of(node)))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            match = _ASSIGNED.fullmatch(item.value) if isinstance(item, yaml.ScalarNode) else None
            if match:
                yield _entry(match["name"], match["value"], file, position_of(item)), True
            else:
                yield from _in_node(item, file, depth + 1)
    elif isinstance(node, yaml.MappingNode):
        pairs = {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}
        if getattr(pairs.get("kind"), "value", "") == "Secret" and "data" in pairs:
            yield from _in_secret(pairs["data"], file)
            node = pairs.get("stringData", yaml.MappingNode("", []))
        named = pairs.get("name")
        if isinstance(named, yaml.ScalarNode) and {"value", "valueFrom"} & pairs.keys():
            value = pairs.get("value")
            known = isinstance(value, yaml.ScalarNode)
            yield _entry(named.value, value.value if known else "", file, position_of(named)), known  # type: ignore[union-attr]
            return
        for key, value in node.value:
            if isinstance(value, yaml.ScalarNode) and _NAME.fullmatch(str(key.value)):
                yield _entry(key.value, value.value, file, position_of(value)), True
            else:
                yield from _in_node(value, file, depth + 1)
