"""Reader of the files of a deployment: manifests of docker compose, Kubernetes and Helm, and files of a host.

`read_deployment` returns the content of each file, joined with the objects in the other files.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from pdp.config.quarkus.properties import ConfigEntry
from pdp.config.quarkus.yaml_text import (
    items_of,
    manifest_documents,
    merged_nodes,
    pairs_of,
    position_of,
    scalar,
    scalars_below,
    value_text,
)
from pdp.config.regular_files import advice_for
from pdp.errors import InvalidArgument, Place, PolicyError
from pdp.offline.migration.dockerfiles import is_compose_file, is_moved, name_compose_files, read_image
from pdp.offline.migration.foreign_lines import ASSIGNED, decoded_texts, unused_texts
from pdp.offline.migration.host_files import (
    CHART,
    CHARTS,
    IN_VALUES,
    OF_CHART,
    OF_VALUES,
    SECTIONS,
    DocumentPlace,
    chart_name,
    is_known_kind,
    join_values,
    mark_unknown,
    read_as_text,
    read_env_file,
    read_unit,
    section_keys,
    split_words,
)
from pdp.offline.migration.references import ReferenceFinder
from pdp.offline.migration.variables import (
    COMMANDS,
    HELD_FILE,
    NOT_HELD,
    OF_COMPOSE,
    OF_EXTENSION,
    OF_HOOKS,
    OF_KUBERNETES,
    OF_OTHERS,
    VARIABLE,
    ManifestContent,
    StoredObject,
    Use,
    entry_of,
    is_beside,
    is_extension,
    is_stock_image,
    join_contents,
    place_variables,
    read_text,
    references_to,
)

_MAX_DEPTH: Final = 32
_MOST_NODES: Final = 1_000_000
"""Nodes of one file. Aliases can make a small file stand for far more."""
MANIFEST_SUFFIXES: Final = (".yaml", ".yml", ".json")
_UNITS: Final = (".service", ".container", ".conf", ".slice", ".pod")
_AS_TEXT: Final = (".tf", ".tfvars", ".hcl", ".nomad", ".bicep", ".j2", ".tpl", ".gotmpl", ".jsonnet", ".cue", ".ps1")
_DOCKERFILE: Final = re.compile(r"(?:.*\.)?(?:Docker|Container)file(?:[.-].*)?", re.IGNORECASE)


def is_host_file(file: Path) -> bool:
    """Tell whether a file is a unit of systemd, a Dockerfile, or of another tool for deployments."""
    names = (".tf.json", *_UNITS, *_AS_TEXT)
    return file.name.endswith(names) or bool(_DOCKERFILE.fullmatch(file.name))


def read_deployment(files: Sequence[Path], own: re.Pattern[str], image: re.Pattern[str]) -> Sequence[ManifestContent]:
    """Return everything in files about a server. `own` matches the names of the server's variables, `image` its image.

    An env file is read by the rules of the program whose manifest names the file.
    Raise PolicyError for a line without an assignment.
    """
    read: dict[Path, ManifestContent] = {}
    env_files = []
    for file in files:
        advice = advice_for(file.suffix)
        if advice:
            raise InvalidArgument(f"`{file}`: {advice}")
        read[file] = content = ManifestContent(file)
        if not _DOCKERFILE.fullmatch(file.name) and not _read_manifest(file, own, content):
            env_files.append(file)
    name_compose_files(list(read.values()), [*env_files, *(file for file in read if file.name.endswith(_UNITS))])
    for file in filter(lambda one: _DOCKERFILE.fullmatch(one.name), read):
        read_image(read[file], list(read.values()))
    for file in env_files:
        forms = {one.form for one in references_to(file, list(read.values())) if one.form}
        if len(forms) > 1:
            readers = " and ".join(sorted(forms))
            raise PolicyError(f"{readers} read this file, each by other rules: give one of them", Place(str(file)))
        read_env_file(read_text(file), file, next(iter(forms), ""), read[file])
    contents = [read[file] for file in dict.fromkeys(files)]
    for content in contents:
        if content.file in env_files or _DOCKERFILE.fullmatch(content.file.name):
            place_variables(content, contents, is_image=content.file not in env_files)
    join_values(contents)
    join_contents(contents, own, image)
    for content in contents if any(one.is_filled for one in contents) else ():
        content.elsewhere += [entry for entry in content.variables if _FILLED in entry.text]
        content.variables = [entry for entry in content.variables if _FILLED not in entry.text]
    return contents


def _read_manifest(file: Path, own: re.Pattern[str], content: ManifestContent) -> bool:
    """Read a file, and return True; return False for an env file."""
    if file.name.endswith((".tf.json", *_AS_TEXT)):
        read_as_text(read_text(file), file, content)
    elif file.name.endswith(_UNITS):
        read_unit(read_text(file), file, content)
    elif file.suffix in MANIFEST_SUFFIXES or file.name == "Kustomization":
        for root in manifest_documents(read_text(file), str(file)):
            content.is_compose |= is_compose_file(root)
            content.roots.append(root)
            _ManifestReader(file, own, content, is_compose=is_compose_file(root)).read_root(root)
    else:
        return False
    return True


_FILLED: Final = "${"
"""Beginning of a name that Flux or OpenShift replaces in all texts."""


_RESETS: Final = frozenset({"!reset", "!override"})
"""Tags of docker compose."""
_ENCODED: Final = (("Secret", "data"), ("ConfigMap", "binaryData"))
"""Kinds of objects, with the key of texts in base64."""
_SETTING: Final = re.compile(f"{HELD_FILE.pattern}|{VARIABLE.pattern}")
_TEXTS: Final = ("data", "stringData", "binaryData")
_COPY: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation with a copy of the object."""
_NO_VARIABLES: Final = re.compile(r"(?:[aA]nnotations|[lL]abels|sysctls|driver_opts)$")
"""Key of names that are no variables."""
_OF_CONTAINER: Final = frozenset({"env", "environment", "envFrom", "env_file", "environmentFiles", "image", "build"})
"""Keys of a container. One is enough."""
_HOOK: Final = re.compile(
    r"\w*(?:[lL]iveness|[rR]eadiness|[sS]tartup)Probe|lifecycle\w*|post_?[sS]tart|pre_?[sS]top|health_?[cC]heck|exec"
)
"""Key of a program that runs in the container of the server, and is another one."""
_KEY_REFS: Final[Mapping[str, str]] = {"configMapKeyRef": "ConfigMap", "secretKeyRef": "Secret"}


class _ManifestReader:
    """Reader of a document of a manifest, at every depth."""

    def __init__(self, file: Path, own: re.Pattern[str], content: ManifestContent, *, is_compose: bool) -> None:
        self._file = file
        self._own = own
        self._to = content
        self._is_compose = is_compose
        self._variables = OF_COMPOSE if is_compose else OF_KUBERNETES
        self._finder = ReferenceFinder(file, content, is_compose=is_compose)
        self._count = itertools.count()
        self._seen: set[int] = set()
        # docker compose joins a file and its override; other files may have another server of the same name
        origin = str(file.with_name(file.name.replace(".override.", "."))) if is_compose else str(file)
        self._workload: tuple[str, ...] = (origin,)
        kind = "Kustomization" if file.stem.lower() == "kustomization" else ""
        self._object = ("compose" if is_compose else kind, "", "", 0)
        self._charts = 0

    def read_root(self, root: Any) -> None:
        """Read a document. Of extensions of docker compose, only parts used by services count; the rest are texts."""
        self._read(root)
        for key, node in unused_texts(root, self._seen, is_extension) if self._is_compose else ():
            parts = key.rpartition(".x-")[2].split(".")
            named = (".".join(parts[at:]) for at in range(1, len(parts)))
            options = re.findall(r"-D([^\s=]+)", scalar(node))
            own = next(filter(self._own.search, (*named, *options)), ".".join(parts[1:] or parts))
            self._to.dropped.append((self._entry(own, node), OF_EXTENSION))

    def _read(self, node: Any, above: str = "", depth: int = 0, *, is_other: bool = False) -> None:
        """Read a node below the keys `above`. `is_other`: inside a container of another program."""
        if depth > _MAX_DEPTH or next(self._count) > _MOST_NODES:
            raise PolicyError("nested too deeply", Place(str(self._file), *position_of(node)))
        self._seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            self._to.rest.append(self._entry(above, node))
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                match = ASSIGNED.fullmatch(item.value) if isinstance(item, yaml.ScalarNode) else None
                self._seen.add(id(item))
                if match and _NO_VARIABLES.search(above):
                    self._to.rest.append(self._entry(f"{above}.{match['name']}", item))
                elif match:
                    self._add_variable(match["name"], match["value"], item, above)
                else:
                    if self._is_compose and above.endswith(".environment") and scalar(item):
                        name = re.split(r"[:\s]", scalar(item), maxsplit=1)[0]  # `NAME: value` has a value to hide
                        self._to.elsewhere.append(self._entry(name, item)._replace(text=""))
                    self._read(item, above, depth + 1, is_other=is_other)
        elif isinstance(node, yaml.MappingNode):
            self._read_mapping(node, above, depth, is_other=is_other)

    def _read_mapping(self, node: Any, above: str, depth: int, *, is_other: bool) -> None:
        pairs = pairs_of(node)
        pairs = {key: pairs[key] for key in pairs if not (self._is_compose and is_extension(key, above))}
        self._seen |= {id(one) for one in merged_nodes(node)}
        named = pairs.get("name")
        if isinstance(named, yaml.ScalarNode) and {"value", "valueFrom"} & pairs.keys():
            self._read_named(named, pairs, above, is_other=is_other)
            return
        kind = scalar(pairs.get("kind"))
        texts = _TEXTS if kind in ("ConfigMap", "Secret") and not is_other else ()
        if set(texts) & pairs.keys():
            self._add_object(kind, pairs)
        known = self._workload, self._object
        is_other = self._enter(kind, pairs, above) or is_other
        self._to.has_containers |= bool(items_of(pairs.get("containers")))
        self._to.is_filled |= bool(pairs_of(pairs.get("postBuild"))) or (kind == "Template" and "parameters" in pairs)
        for value in pairs.values():
            self._refuse_reset(value)
        is_other = is_other or is_beside(pairs, above)
        before = [len(one) for one in self._found()]
        done = self._finder.find(pairs, above, is_other=is_other)
        self._add_command([pairs[name] for name in COMMANDS if name in pairs])
        read = {*COMMANDS, *done, *texts}
        for key, value in node.value:
            name = str(key.value)
            if name not in read and pairs.get(name) is value:
                self._read_pair(key, value, above, depth, is_other=is_other)
        if pairs_of(pairs.get("image")) and (OF_CHART & pairs.keys() or above.rpartition(".")[2] in CHARTS):
            self._finder.add_chart_image(pairs["image"])
        own = {str(key.value) for key, _ in node.value}
        for name, value in pairs.items():
            if name not in own and name not in read:
                key = yaml.ScalarNode("", name, value.start_mark, value.end_mark)
                self._read_pair(key, value, above, depth, is_other=is_other)
        self._keep_container(pairs, above, before, is_other=is_other)
        self._workload, self._object = known
        self._finder.workload = self._workload

    def _enter(self, kind: str, pairs: Mapping[str, Any], above: str) -> bool:
        """Note the object and the chart around a mapping; tell whether the object brings a server no settings."""
        is_object = kind and ({"apiVersion", "metadata"} & pairs.keys() or not above)
        if is_object:
            metadata = pairs_of(pairs.get("metadata"))
            names = (scalar(metadata.get("name")), scalar(metadata.get("namespace")))
            self._workload, self._object = (self._workload[0], kind, *names), (kind, above, "", 0)
        chart = chart_name(pairs)
        if chart is not None:
            self._charts += 1
            self._object = (*self._object[:2], chart, self._charts)
        self._finder.workload = self._workload
        return bool(is_object) and not is_known_kind(kind, scalar(pairs.get("apiVersion")))

    def _place(self, above: str) -> DocumentPlace:
        return DocumentPlace(self._object[0], above[len(self._object[1]) :], self._object[2])

    def _add_to_release(self, entries: Iterable[ConfigEntry], part: str) -> None:
        """Give settings in values of a chart to the release, a server like a container."""
        workload = self._workload if self._object[0] else OF_VALUES
        name = f"{part}#{self._object[3]}" if self._object[3] > 1 else part  # several charts of one document
        self._to.containers.setdefault((*workload, name), []).extend(entries)

    def _found(self) -> tuple[list[Any], ...]:
        return self._to.variables, self._to.commands, self._to.elsewhere, self._to.uses, self._to.references

    def _keep_container(self, pairs: Mapping[str, Any], above: str, before: list[int], *, is_other: bool) -> None:
        """Take away the variables of another program, and note those of a container, with its objects and files."""
        variables, commands, elsewhere, uses, references = map(slice, before, itertools.repeat(None))
        to = self._to
        if is_other:
            found = (*to.variables[variables], *to.commands[commands], *to.elsewhere[elsewhere])
            to.dropped += [(entry, OF_OTHERS) for entry in found]
            del to.variables[variables], to.commands[commands], to.elsewhere[elsewhere]
        elif _OF_CONTAINER & pairs.keys() and not isinstance(pairs.get("image"), yaml.MappingNode):
            name = (*self._workload, scalar(pairs.get("name")) or above.rpartition(".")[2])
            own = [*to.variables[variables], *to.commands[commands]]
            to.containers.setdefault(name, []).extend(own)
            to.images[name] = image = scalar(pairs.get("image"))
            to.uses[uses] = [one._replace(container=one.container or name) for one in to.uses[uses]]
            to.references[references] = [one._replace(container=name) for one in to.references[references]]
            if is_moved(pairs):
                to.uses[uses] = [one._replace(path="") for one in to.uses[uses]]
                named = to.references[references]
                to.references[references] = [one._replace(target=one.target and "?") for one in named]
            if image and not is_stock_image(image) and any(self._own.search(one.key) for one in own):
                self._finder.add_image(pairs["image"])

    def _refuse_reset(self, node: Any) -> None:
        if node.tag in _RESETS:
            message = f"`{node.tag}` takes away what other files set: remove the tag, and what it takes away"
            raise PolicyError(message, Place(str(self._file), *position_of(node)))

    def _read_named(self, named: Any, pairs: Mapping[str, Any], above: str, *, is_other: bool) -> None:
        """Read a variable with the value, or with the name of the object holding the value."""
        self._seen |= {id(one) for one in pairs.values()}
        for key, reference in pairs_of(pairs.get("valueFrom")).items():
            below = pairs_of(reference)
            if key in _KEY_REFS and "name" in below and not is_other:
                entry = self._entry(named.value, named)._replace(text="")
                use = Use(_KEY_REFS[key], scalar(below["name"]), key=scalar(below.get("key")), variable=entry)
                self._to.uses.append(use)
                return
        self._add_variable(named.value, value_text(pairs.get("value")), named, above)

    def _read_pair(self, key: Any, value: Any, above: str, depth: int, *, is_other: bool) -> None:
        name = str(key.value)
        if name == _COPY:
            return
        self._seen.add(id(value))
        below = pairs_of(value).keys()
        in_chart = name in CHART and (not above or (below & CHART[name] if CHART[name] else below))
        if in_chart:
            self._to.chart.append(self._entry(name, key)._replace(text=""))
        place = self._place(above)
        is_section = name in SECTIONS and below and (below & SECTIONS[name] or not SECTIONS[name])
        if is_section and place.holds_section() and not is_other:
            self._to.values.append((self._entry(name, key), value))
            self._add_to_release(section_keys(name, value, self._file), place.part() or "")
        elif _HOOK.fullmatch(name) and not is_other:
            self._read_hook(value, f"{above}.{name}", depth)
        elif not isinstance(value, yaml.ScalarNode):
            self._read(value, f"{above}.{name}", depth + 1, is_other=is_other)
        elif HELD_FILE.fullmatch(name):
            self._to.dropped.append((self._entry(name, value), NOT_HELD))
        elif (
            VARIABLE.fullmatch(name) or self._own.search(name) or above.endswith(".environment")
        ) and not _NO_VARIABLES.search(above):
            self._add_variable(name, value_text(value), value, above)
        else:
            self._to.rest.append(self._entry(f"{above}.{name}", value))

    def _read_hook(self, node: Any, above: str, depth: int) -> None:
        """Read a probe, or another program that runs in the container of the server: nothing counts for the server."""
        to, known = self._to, len(self._to.dropped)
        found = (to.variables, to.commands, to.elsewhere, to.rest, to.files)
        before = list(map(len, found))
        self._read(node, above, depth + 1, is_other=True)
        to.dropped[known:] = [(entry, OF_HOOKS) for entry, _ in to.dropped[known:]]
        for entries, at in zip(found, before, strict=True):
            to.dropped += [(entry, OF_HOOKS) for entry in entries[at:]]
            del entries[at:]

    def _add_object(self, kind: str, pairs: Mapping[str, Any]) -> None:
        entries: dict[str, ConfigEntry] = {}
        for key in _TEXTS:
            node = pairs.get(key)
            is_encoded, texts = (kind, key) in _ENCODED, pairs_of(node)
            found = decoded_texts(texts, str(self._file), _SETTING) if is_encoded else texts
            entries |= {name: self._entry(name, value) for name, value in found.items()}
        templates = [entry for entry in entries.values() if "{{" in entry.text and not HELD_FILE.fullmatch(entry.key)]
        for entry in templates:
            self._to.elsewhere.append(entries.pop(entry.key))
        name, namespace = (scalar(pairs_of(pairs.get("metadata")).get(key)) for key in ("name", "namespace"))
        self._to.objects.append(StoredObject(kind, name, list(entries.values()), namespace))

    def _add_variable(self, name: str, text: str | None, node: Any, above: str) -> None:
        """Add a variable as docker compose or Kubernetes gives the value to a container."""
        place = self._place(above)
        known = text is not None and not self._variables.search(text) and place.holds_variables()
        entry = entry_of(name, self._resolved(text or ""), self._file, position_of(node))
        (self._to.variables if known else self._to.elsewhere).append(entry)
        part = place.part(IN_VALUES)
        if known and part is not None and not above.endswith(".env"):
            self._add_to_release([entry], part)

    def _add_command(self, nodes: Sequence[Any]) -> None:
        words: list[str] = []
        for node in nodes:
            if isinstance(node, yaml.SequenceNode):
                words += [str(item.value) for item in node.value if isinstance(item, yaml.ScalarNode)]
            elif isinstance(node, yaml.ScalarNode):
                words += split_words(node.value)
            else:
                self._read(node, "command", 1)
            self._seen |= {id(one) for one in (node, *scalars_below(node))}
        if words:
            text = "\0".join(self._resolved(mark_unknown(word, self._variables)) for word in words)
            self._to.commands.append(entry_of("command", text, self._file, position_of(nodes[0])))

    def _resolved(self, text: str) -> str:
        return text.replace("$$", "$") if self._is_compose else text.replace("$$(", "$(")

    def _entry(self, name: str, node: Any) -> ConfigEntry:
        text = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
        return entry_of(name, text, self._file, position_of(node))
