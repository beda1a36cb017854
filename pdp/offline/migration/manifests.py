"""Configuration in files of a deployment: env files, and manifests of docker compose, Kubernetes and Helm.

`read_variables` returns environment variables alone, `read_deployment` all that a manifest says.
"""

from __future__ import annotations

import re
import shlex
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
NOT_GIVEN: Final = "has more variables, and was not given: give it, too"
"""Message about an object or a file."""
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
    found = [_resolved_pair(*pair, is_compose=_is_compose(root)) for root in documents for pair in _in_node(root, file)]
    if file.suffix not in _MANIFEST:
        found = list(_in_env_file(text, file))
    entries: dict[tuple[str, str], ConfigEntry] = {}
    for entry, known in found:
        if known:
            entries.setdefault((entry.key, entry.text), entry)
    elsewhere = [entry for entry, known in found if not known]
    return Variables(list(entries.values()), elsewhere, [key for root in documents for key in _chart_keys(root, file)])


@dataclass
class ManifestContent:
    """Configuration in an env file, or in all documents of a manifest.

    `elsewhere`: variables with a value that stands in a secret or in another variable. `files`: files that the manifest
    holds, name and text. `commands`: words of a command line, joined by NUL. `values`: sections of a Helm chart, with
    the node of each. `references`: names of objects and files with further variables. `objects`: names of the objects
    here. `rest`: all other texts, below the keys around them.
    """

    variables: list[ConfigEntry] = field(default_factory=list)
    elsewhere: list[ConfigEntry] = field(default_factory=list)
    files: list[ConfigEntry] = field(default_factory=list)
    commands: list[ConfigEntry] = field(default_factory=list)
    values: list[tuple[ConfigEntry, Any]] = field(default_factory=list)
    references: list[ConfigEntry] = field(default_factory=list)
    objects: set[str] = field(default_factory=set)
    rest: list[ConfigEntry] = field(default_factory=list)


def _resolved_pair(entry: ConfigEntry, known: bool, *, is_compose: bool) -> tuple[ConfigEntry, bool]:
    """Return a variable as docker compose or Kubernetes gives the value to a container."""
    unknown = _OF_COMPOSE if is_compose else _OF_KUBERNETES
    text = entry.text.replace("$$", "$") if is_compose else entry.text.replace("$$(", "$(")
    return entry._replace(text=text), known and not unknown.search(entry.text)


def missing_references(contents: Sequence[ManifestContent], files: Sequence[Path]) -> Iterator[ConfigEntry]:
    """Yield the objects and files with variables that manifests name, without those at hand. `files` are given."""
    objects = {name for one in contents for name in one.objects}
    given = {file.name for file in files}
    for entry in (entry for one in contents for entry in one.references):
        if entry.key not in objects and Path(entry.key).name not in given:
            yield entry


def read_deployment(file: Path, own: re.Pattern[str]) -> ManifestContent:
    """Return everything in a file about a server. `own` matches the names of the server's variables in any case.

    Raise PolicyError for a line that is no assignment.
    """
    advice = advice_for(file.suffix)
    if advice:
        raise InvalidArgument(f"`{file}`: {advice}")
    deployment = ManifestContent()
    if file.suffix not in _MANIFEST:
        deployment.variables += [entry for entry, _ in _in_env_file(read_text(file), file)]
    else:
        for root in YamlText(read_text(file), str(file)).documents:
            _ManifestReader(file, own, deployment, is_compose=_is_compose(root)).read(root)
    unique: dict[tuple[str, str], ConfigEntry] = {}
    for entry in deployment.variables:
        unique.setdefault((entry.key, entry.text), entry)
    deployment.variables = list(unique.values())
    return deployment


def _is_compose(root: Any) -> bool:
    return isinstance(root, yaml.MappingNode) and any(key.value == "services" for key, _ in root.value)


_HELD_FILE: Final = re.compile(r"(?:.*/)?[\w.,-]+\.(?:properties|ya?ml)")
_SECTIONS: Final[Mapping[str, frozenset[str]]] = {
    "authorization": frozenset({"enabled", "rules"}),
    "advancedConfig": frozenset(),
}
"""Section of a chart -> keys. A section has at least one."""
_ENCODED: Final = (("Secret", "data"), ("ConfigMap", "binaryData"))
"""Kinds of objects, with the key of texts in base64."""
_COPY: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation with a copy of the object."""
_OF_OTHERS: Final = frozenset({"envFrom", "env_file"})
_COMMANDS: Final = ("entrypoint", "command", "args")
_OF_COMPOSE: Final = re.compile(r"(?<!\$)(?:\$\$)*\$(?!\$)|\{\{")
"""Variable of docker compose inside a text, or a template."""
_OF_KUBERNETES: Final = re.compile(r"(?<!\$)\$\([\w.-]+\)|\{\{")
"""Variable of Kubernetes inside a text, or a template of Helm."""


class _ManifestReader:
    """Reader of a document of a manifest, at every depth."""

    def __init__(self, file: Path, own: re.Pattern[str], deployment: ManifestContent, *, is_compose: bool) -> None:
        self._file = file
        self._own = own
        self._to = deployment
        self._is_compose = is_compose

    def read(self, node: Any, above: str = "", depth: int = 0) -> None:
        """Read a node below some keys."""
        if depth > _MAX_DEPTH:
            raise PolicyError("nested too deeply", Place(str(self._file), *position_of(node)))
        if isinstance(node, yaml.ScalarNode):
            self._to.rest.append(self._entry(above, node))
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                match = _ASSIGNED.fullmatch(item.value) if isinstance(item, yaml.ScalarNode) else None
                if match:
                    self._add_variable(match["name"], match["value"], item)
                else:
                    self.read(item, above, depth + 1)
        elif isinstance(node, yaml.MappingNode):
            self._read_mapping(node, above, depth)

    def _read_mapping(self, node: Any, above: str, depth: int) -> None:
        pairs = {str(key.value): value for key, value in node.value}
        named = pairs.get("name")
        if isinstance(named, yaml.ScalarNode) and {"value", "valueFrom"} & pairs.keys():
            value = pairs.get("value")
            known = isinstance(value, yaml.ScalarNode)
            self._add_variable(named.value, value.value if known else None, named)  # type: ignore[union-attr]
            return
        kind = getattr(pairs.get("kind"), "value", "")
        if kind in ("ConfigMap", "Secret"):
            self._to.objects.add(_name_of(pairs))
        self._add_command([pairs[name] for name in _COMMANDS if name in pairs], node)
        for key, value in node.value:
            if str(key.value) not in _COMMANDS:
                content = _decoded(value, self._file) if (kind, key.value) in _ENCODED else value
                self._read_pair(key, content, above, depth)

    def _read_pair(self, key: Any, value: Any, above: str, depth: int) -> None:
        name = str(key.value)
        if name == _COPY:
            return
        below = {str(one.value) for one, _ in value.value} if isinstance(value, yaml.MappingNode) else set()
        if name in _SECTIONS and below and (below & _SECTIONS[name] or not _SECTIONS[name]) and not _is_quarkus(above):
            self._to.values.append((self._entry(name, key), value))
        elif name in _OF_OTHERS:
            self._add_references(value)
        elif not isinstance(value, yaml.ScalarNode):
            self.read(value, f"{above}.{name}", depth + 1)
        elif _HELD_FILE.fullmatch(name):
            self._to.files.append(self._entry(name, value))
        elif _NAME.fullmatch(name) or self._own.search(name):
            self._add_variable(name, None if value.tag.endswith(":null") else value.value, value)
        else:
            self._to.rest.append(self._entry(f"{above}.{name}", value))

    def _add_variable(self, name: str, text: str | None, node: Any) -> None:
        entry = _entry(name, text or "", self._file, position_of(node))
        entry, known = _resolved_pair(entry, text is not None, is_compose=self._is_compose)
        (self._to.variables if known else self._to.elsewhere).append(entry)

    def _add_command(self, nodes: Sequence[Any], place: Any) -> None:
        words: list[str] = []
        for node in nodes:
            if isinstance(node, yaml.SequenceNode):
                words += [str(item.value) for item in node.value if isinstance(item, yaml.ScalarNode)]
            elif isinstance(node, yaml.ScalarNode):
                words += split_words(node.value)
            else:
                self.read(node, "command", 1)
        if words:
            text = "\0".join(self._resolved(word) for word in words)
            self._to.commands.append(_entry("command", text, self._file, position_of(nodes[0] if nodes else place)))

    def _resolved(self, text: str) -> str:
        return text.replace("$$", "$") if self._is_compose else text.replace("$$(", "$(")

    def _add_references(self, value: Any) -> None:
        """Add the objects of `envFrom`, or the files of `env_file`."""
        for node in value.value if isinstance(value, yaml.SequenceNode) else [value]:
            pairs = {str(key.value): one for key, one in node.value} if isinstance(node, yaml.MappingNode) else {}
            inner = [pairs[key] for key in ("configMapRef", "secretRef") if key in pairs]
            if isinstance(node, yaml.ScalarNode):
                self._to.references.append(self._entry(str(node.value), node))
            elif inner and "prefix" not in pairs:
                names = {str(key.value): str(one.value) for key, one in inner[0].value}
                self._to.references.append(self._entry(names.get("name", ""), inner[0]))
            else:
                path = pairs.get("path")
                self._to.references.append(self._entry(str(getattr(path, "value", "")), node))

    def _entry(self, name: str, node: Any) -> ConfigEntry:
        text = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
        return _entry(name, text, self._file, position_of(node))


def _is_quarkus(above: str) -> bool:
    return above.replace('"', "").endswith("nessie.server")


def _name_of(pairs: Mapping[str, Any]) -> str:
    metadata = getattr(pairs.get("metadata"), "value", ())
    return next((str(value.value) for key, value in metadata if key.value == "name"), "")


def _decoded(node: Any, file: Path) -> Any:
    """Return the `data` of a Kubernetes object as texts."""
    pairs = []
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        try:
            text = b64decode(value.value, validate=True).decode()
        except UnicodeDecodeError:  # a key store, no configuration
            continue
        except (ValueError, TypeError):
            message = f"`{key.value}` is no base64"
            raise PolicyError(message, Place(str(file), *position_of(value))) from None
        pairs.append((key, yaml.ScalarNode(value.tag, text, value.start_mark, value.end_mark)))
    return yaml.MappingNode(node.tag, pairs, node.start_mark, node.end_mark)


def split_words(text: str) -> list[str]:
    """Return the words of a command line as a shell reads them; the whole text if no shell could."""
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


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
