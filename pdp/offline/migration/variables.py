"""Configuration of a server in the files of a deployment: variables, held files, and references.

Owns `ManifestContent`, filled by readers of all kinds of files, and joins the contents of several files: objects of
Kubernetes and configs of docker compose become variables and files of their containers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, TypeAlias

from pdp.config.quarkus.properties import ConfigEntry, positions_of
from pdp.config.quarkus.yaml_text import items_of, scalar
from pdp.errors import InvalidArgument

NOT_GIVEN: Final = "may hold settings, and was not given: give it, too"
OF_OTHERS: Final = "belongs to a container of another program"
OF_EXTENSION: Final = "docker compose ignores `x-` parts, and no service uses this one: write it below `environment`"
OF_HOOKS: Final = "belongs to a program beside the server, which does not read it: write it where the server does"
EACH_ALONE: Final = (
    "migrate the files of each server alone, or, of files that are joined, the output of `docker compose config` or "
    "`kustomize build`"
)
"""Advice about several servers."""
SEVERAL: Final = f"is a rule of one server of several: {EACH_ALONE}"
IMAGE: Final = "is an image that may hold settings, which are not read: write them into a file"
BUILT: Final = "makes the image, which may have more variables, and was not given: give it, too"
KEEP_ONE: Final = "keep one of them, or migrate the files of each server alone"
ELSEWHERE: Final = "its value stands in a secret or in another object, or needs quotes"
"""Message about a variable."""

Container: TypeAlias = tuple[str, ...]
"""Workload and name of a container; empty without one."""


class Reference(NamedTuple):
    """Part of a deployment outside of a file, with possible settings.

    `kind`: of an object (`ConfigMap`, `Secret`, `config`), `file`, or "" for a part nobody can give. `form`: the
    reader of an env file, or the stage of a Dockerfile. `is_volume`: cannot set a variable. `is_ignored`: holds no
    settings. `target`: the path of the file in `container`. `held`: kind, name and key of the object made of the file.
    `is_copy`: a step of an image.
    """

    entry: ConfigEntry
    kind: str = ""
    message: str = NOT_GIVEN
    form: str = ""
    is_volume: bool = False
    is_ignored: bool = False
    target: str = ""
    container: Container = ()
    held: tuple[str, str, str] | None = None
    is_copy: bool = False


class StoredObject(NamedTuple):
    """ConfigMap, Secret, or config of docker compose, with texts."""

    kind: str
    name: str
    entries: Sequence[ConfigEntry]
    namespace: str = ""


_RELEASES: Final = frozenset({"HelmRelease", "HelmChart", "HelmChartConfig", "Application", "ApplicationSet"})
"""Kinds that bring containers to a namespace other than their own."""


def is_in_reach(container: Container, stored: StoredObject) -> bool:
    """Tell whether a container may read an object: no namespace is known to differ."""
    own = container[3] if len(container) > 3 and container[1] not in _RELEASES else ""
    return not own or not stored.namespace or own == stored.namespace


class Use(NamedTuple):
    """Use of an object by a container: all texts as variables behind a prefix, or as files below a path.

    `items`: key -> path below `path`; None for all keys under their own names. `sub_path`: the file
    mounted at `path`. `key`: the text used as the value of `variable`.
    """

    kind: str
    name: str
    prefix: str | None = None
    path: str = ""
    items: Mapping[str, str] | None = None
    sub_path: str = ""
    key: str = ""
    variable: ConfigEntry | None = None
    container: Container = ()


@dataclass
class ManifestContent:
    """Configuration in an env file, or in all documents of a manifest.

    `elsewhere`: variables with a value in a secret or in another variable. `files`: files inside the manifest, name
    and text. `mounted`: the same, with the path in a container. `commands`: words of a command line, joined
    by NUL. `values`: sections of a Helm chart, with the node of each. `chart`: keys of a chart for variables.
    `references`: parts outside. `rest`: all other texts, with the keys above. `dropped`: parts out of reach for the
    server, with the reason. `containers`: variables and commands by workload and container. `images`: of containers.
    `notes`: parts to look at. `is_compose`: of docker compose. `is_filled`: another program replaces
    `${NAME}` in all files. `roots`: the documents.
    """

    file: Path = field(default_factory=Path)
    variables: list[ConfigEntry] = field(default_factory=list)
    elsewhere: list[ConfigEntry] = field(default_factory=list)
    files: list[ConfigEntry] = field(default_factory=list)
    mounted: list[ConfigEntry] = field(default_factory=list)
    commands: list[ConfigEntry] = field(default_factory=list)
    values: list[tuple[ConfigEntry, Any]] = field(default_factory=list)
    chart: list[ConfigEntry] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    objects: list[StoredObject] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    has_containers: bool = False
    containers: dict[Container, list[ConfigEntry]] = field(default_factory=dict)
    images: dict[Container, str] = field(default_factory=dict)
    rest: list[ConfigEntry] = field(default_factory=list)
    dropped: list[tuple[ConfigEntry, str]] = field(default_factory=list)
    notes: list[tuple[ConfigEntry, str]] = field(default_factory=list)
    is_compose: bool = False
    is_filled: bool = False
    roots: list[Any] = field(default_factory=list)


HELD_FILE: Final = re.compile(r"(?:.*/)?[\w.,-]+\.(?:properties|ya?ml)")
"""Name of a configuration file."""
OF_COMPOSE: Final = re.compile(r"(?<!\$)(?:\$\$)*\$(?!\$)|\{\{")
"""Variable of docker compose or of systemd inside a text, or a template."""
OF_KUBERNETES: Final = re.compile(r"(?<!\$)\$\([\w.-]+\)|\{\{")
"""Variable of Kubernetes inside a text, or a template of Helm."""
VARIABLE: Final = re.compile(r"_?[A-Z][A-Z0-9]*_[A-Z0-9_<>-]*[A-Z0-9_>]")
_IN_ENVIRONMENT: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
"""Name that Kubernetes takes for a variable."""
REPLACED: Final = "has a variable of docker compose inside: write its value, or two dollars for one of the text"
NOT_HELD: Final = "stands where no container has it as a file: give the ConfigMap or Secret that holds it"
NOT_LOADED: Final = "stands in a file that no container loads as variables: name it in `env_file`, or leave it out"
_ENV_OF_QUARKUS: Final = "/deployments/.env"
UNUSED: Final = "no container of these files uses the object: give the manifest that does"


def references_to(file: Path, contents: Sequence[ManifestContent]) -> list[Reference]:
    """Return the references to a given file: to the path, else to a missing path with the name."""
    named = [(one.file.parent / reference.entry.key, reference) for one in contents for reference in one.references
             if reference.kind == "file" and reference.entry.key]  # fmt: skip
    own, present = file.resolve(), [pair for pair in named if exists(pair[0], pair[1].entry.key)]
    exact = [reference for path, reference in present if own.is_relative_to(path.resolve())]
    missing = [pair[1] for pair in named if pair not in present]
    return exact or [one for one in missing if PurePosixPath(one.entry.key).name == file.name]


def join_contents(contents: Sequence[ManifestContent], own: re.Pattern[str], image: re.Pattern[str]) -> None:
    """Turn the objects of files into variables and files of their containers.

    `own` matches the names of the server's variables, `image` its image. Raise PolicyError for two objects with the
    same name.
    """
    servers = servers_by_image(contents, image)
    uses = [use for content in contents for use in content.uses]
    has_containers = any(content.has_containers for content in contents)
    given = _objects_of(contents, uses)
    for content, stored in given:
        found = [use for use in uses if _reads(use, stored)]
        for use in found:
            is_other = servers and use.container and not is_part(use.container, servers)
            if is_other and not use.variable and use.prefix is None:
                content.dropped += [(entry, OF_OTHERS) for entry in stored.entries]
            else:
                _use(stored, use, content)
        if not found and has_containers:
            content.dropped += [(entry, UNUSED) for entry in stored.entries]
        elif not found:
            _without_use(stored, content, own)
    for content in contents:
        valued = [use for use in content.uses if use.variable and not any(_reads(use, one) for _, one in given)]
        content.elsewhere += [use.variable for use in valued if use.variable]
        unique = {(entry.key, entry.text): entry for entry in reversed(content.variables)}
        content.variables = list(reversed(unique.values()))


def _reads(use: Use, stored: StoredObject) -> bool:
    return (use.kind, use.name) == stored[:2] and is_in_reach(use.container, stored)


def _objects_of(contents: Sequence[ManifestContent], uses: Sequence[Use]) -> list[tuple[ManifestContent, StoredObject]]:
    """Return the objects, each once; raise PolicyError if a container may read two with other texts."""
    first: dict[tuple[str, str, str], tuple[ManifestContent, StoredObject]] = {}
    for content in contents:
        for one in content.objects:
            first.setdefault((one.kind, one.name, one.namespace), (content, one))
            for _, other in [pair for pair in first.values() if pair[1][:2] == one[:2]]:
                is_one = "" in (one.namespace, other.namespace) or one.namespace == other.namespace
                is_one = is_one or any(_reads(use, one) and _reads(use, other) for use in uses)
                if is_one and [entry[:2] for entry in other.entries] != [entry[:2] for entry in one.entries]:
                    differing = (*one.entries, *other.entries)[0]
                    message = f"{one.kind} `{one.name}` has other texts in another place: give one of each name"
                    raise differing.error(message)
    return list(first.values())


def _use(stored: StoredObject, use: Use, content: ManifestContent) -> None:
    """Add the texts of an object for a container."""
    texts = {entry.key: entry for entry in stored.entries}
    if use.variable:
        entry = texts.get(use.key)
        if entry is None:
            content.elsewhere.append(use.variable)
        else:
            _add_variable(entry._replace(key=use.variable.key), use, content)
    elif use.prefix is not None:
        for entry in stored.entries:
            name = f"{use.prefix}{entry.key}"
            if _IN_ENVIRONMENT.fullmatch(name):
                _add_variable(entry._replace(key=name), use, content)
            else:
                content.rest.append(entry._replace(key=name))
    else:
        paths = use.items if use.items is not None else {key: key for key in texts}
        found = {key: path for key, path in paths.items() if key in texts}
        content.mounted += [texts[key]._replace(key=mounted_path(use, path)) for key, path in found.items()]
        left = (texts[key] for key in texts.keys() - found.keys())
        content.dropped += [(entry, "is not among the `items` of the volume") for entry in left]


def _add_variable(entry: ConfigEntry, use: Use, content: ManifestContent) -> None:
    content.variables.append(entry)
    if use.container:
        content.containers.setdefault(use.container, []).append(entry)


def mounted_path(use: Use, path: str) -> str:
    """Return the path of a file in a container; a path below `?` if the mount does not show the file."""
    if not use.path or not path:
        return use.path or f"?/{path}"
    if not use.sub_path:
        return str(PurePosixPath(use.path, path))
    below = PurePosixPath(use.sub_path)
    if PurePosixPath(path) == below:
        return use.path
    return (
        str(PurePosixPath(use.path, *PurePosixPath(path).parts[len(below.parts) :]))
        if (PurePosixPath(path).is_relative_to(below))
        else f"?/{path}"
    )


def _without_use(stored: StoredObject, content: ManifestContent, own: re.Pattern[str]) -> None:
    """Add the texts of an object without known containers."""
    for entry in stored.entries:
        if HELD_FILE.fullmatch(entry.key):
            content.files.append(entry)
        elif VARIABLE.fullmatch(entry.key) or own.search(entry.key):
            content.variables.append(entry)
        else:
            content.rest.append(entry._replace(key=f".data.{entry.key}"))


def place_variables(content: ManifestContent, contents: Sequence[ManifestContent], *, is_image: bool) -> None:
    """Give the variables of a file to the containers and the objects that name the file.

    Variables of a file of no container count for every server; those of other programs' files for none. The same holds
    for a file without a program to load the variables. Of `.env`, docker compose alone reads them.
    """
    references = references_to(content.file, contents)
    own = [one for one in references if is_image or one.form or one.target == _ENV_OF_QUARKUS]
    is_of_compose = not is_image and content.file.name == ".env" and any(one.is_compose for one in contents)
    if all(one.is_ignored for one in own) if references else is_of_compose:
        is_other = references and all(one.is_ignored for one in references)
        left = (*content.variables, *content.elsewhere)
        content.dropped += [(entry, OF_OTHERS if is_other else NOT_LOADED) for entry in left]
        content.variables, content.elsewhere = [], []
    for container in {one.container for one in references if one.container and not one.is_ignored}:
        content.containers.setdefault(container, []).extend((*content.variables, *content.commands))
    held = {one.held[:2] for one in references if one.held}
    stored = [one for content in contents for one in content.objects if (one.kind, one.name) in held]
    for one in stored:
        content.objects.append(one._replace(entries=[*one.entries, *content.variables]))
    for other in contents if stored else ():
        other.objects = [one for one in other.objects if one not in stored]
    content.variables = [] if stored else content.variables


def exists(path: Path, text: str) -> bool:
    """Tell whether the path of a reference is there."""
    try:
        return bool(text) and path.exists()
    except (OSError, ValueError):
        return False


_BASE: Final = re.compile(r"(?:ghcr\.io|quay\.io|docker\.io)?/?(?:projectnessie|lakekeeper|openpolicyagent)/")
"""Images whose settings are the stock ones."""
_OTHER_PROGRAMS: Final = frozenset(
    """alertmanager azurite bitnami-postgresql cassandra cockroach clickhouse-server dex etcd gitea grafana haproxy
    jaeger jupyter kafka keycloak localstack loki mailhog mariadb mc memcached minio mongo mongo-express mongodb mysql
    nginx openfga openldap otel-collector pgadmin4 postgres postgresql postgresql-repmgr prometheus pyspark-notebook
    rabbitmq redis redpanda seaweedfs spark superset traefik trino valkey vault zookeeper authelia""".split()  # noqa: SIM905
)
"""Last part of the name of an image that is neither Nessie, Lakekeeper nor the bridge."""


def is_other_image(image: str) -> bool:
    """Tell whether an image is that of another program, by the name."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0] in _OTHER_PROGRAMS


_OF_SERVER: Final = re.compile(r"nessie|lakekeeper|catalog|iceberg|(?:^|[/_.-])opa(?:[/_.:@-]|$)|[${]", re.IGNORECASE)
"""Part of the name of an image that may be a server's."""


def runs_another(pairs: Mapping[str, Any]) -> bool:
    """Tell whether a container runs another program than a server, by the name of the image."""
    image = scalar(pairs.get("image"))
    return bool(image) and "build" not in pairs and (is_other_image(image) or not _OF_SERVER.search(image))


COMMANDS: Final = ("entrypoint", "entryPoint", "command", "args")
_BESIDE: Final = re.compile(r"\.(?:extra|additional)\w*Containers$|\.sidecar(?:s|Containers)$")
"""Key of a chart for containers beside the server."""


def is_beside(pairs: Mapping[str, Any], above: str) -> bool:
    """Tell whether a container runs another program, or only prepares the database of Lakekeeper."""
    words = (scalar(node) for name in COMMANDS for node in items_of(pairs.get(name)))
    return runs_another(pairs) or bool(_BESIDE.search(above)) or "migrate" in words


def is_stock_image(image: str) -> bool:
    """Tell whether an image is of the makers of Nessie, Lakekeeper or the bridge, without settings of its own."""
    return bool(_BASE.match(image))


def servers_by_image(read: Sequence[ManifestContent], image: re.Pattern[str]) -> set[Container]:
    """Return the containers whose image is the server's."""
    return {container for one in read for container, name in one.images.items() if image.search(name)}


def is_part(container: Container, servers: Collection[Container]) -> bool:
    """Tell whether a container is a server, or of the same name in another file, which may be joined.

    A workload may add volumes without a container to mount them.
    """
    return any(container[1:] in (one[1:], (*one[1:-1], "")) for one in servers)


def variables_by_container(read: Sequence[ManifestContent]) -> Mapping[Container, Sequence[ConfigEntry]]:
    """Return the variables and commands of each container in all files."""
    containers: dict[Container, list[ConfigEntry]] = {}
    for one in read:
        for container, entries in one.containers.items():
            containers.setdefault(container, []).extend(entries)
    return containers


def has_entry(held: ConfigEntry, entry: ConfigEntry) -> bool:
    """Tell whether a variable or a command of a container is an entry, or sets a property of Java."""
    words = re.split(r"[\0\s'\"]+", f"{held.key}={held.text}" if held.key.startswith("-D") else held.text)
    return held[:2] == entry[:2] or f"-D{entry.key}={entry.text}" in words


_CHOSEN_NAMES: Final = re.compile(r"\.(?:services|networks|volumes|configs|secrets|models|services\.[^.]+\.depends_on)")
"""Keys of docker compose with names below."""


def is_extension(key: str, above: str) -> bool:
    """Tell whether docker compose ignores a key: every key `x-...` that is no name of a user's choice."""
    return key.startswith("x-") and not _CHOSEN_NAMES.fullmatch(above)


def check_unique(entries: Sequence[ConfigEntry]) -> None:
    """Raise PolicyError if a variable has two values."""
    first: dict[str, ConfigEntry] = {}
    for entry in entries:
        if first.setdefault(entry.key, entry).text != entry.text:
            raise entry.error(f"`{entry.key}` has another value at {first[entry.key].key_place}: {KEEP_ONE}")


def read_text(file: Path) -> str:
    """Return the text of a file; raise InvalidArgument if the file cannot be read."""
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InvalidArgument(f"cannot read `{file}`: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"cannot read `{file}`: not UTF-8") from None


def entry_of(name: str, text: str, file: Path, start: tuple[int, int]) -> ConfigEntry:
    """Return an entry with the key at the beginning of the line."""
    return ConfigEntry(name, text, str(file), start, partial(positions_of, text, *start), (start[0], 1))
