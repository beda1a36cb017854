"""Files that start a server on a host, and places of settings in manifests and charts.

Readers of env files differ in quotes, comments and `export`. A line is read by the rules of the program named for the
file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from pdp.config.quarkus.properties import ConfigEntry, positions_of
from pdp.config.quarkus.yaml_text import flat_values, items_of, pairs_of, position_of, scalar
from pdp.errors import Place, PolicyError
from pdp.offline.migration.foreign_lines import LINE_OF_VARIABLE, PLAIN_NAME, READERS
from pdp.offline.migration.variables import (
    OF_COMPOSE,
    OF_HOOKS,
    ManifestContent,
    Reference,
    entry_of,
)

UNKNOWN: Final = "\x01"
"""Mark in a word of a command, in front of a variable that another program replaces."""
_NEWLINE: Final = re.compile(r"\r\n|\r|\n")
_OF_COMPOSE: Final = re.compile(r"\$(?:\$|\{|[A-Za-z_])")
"""Variable or escaped dollar inside a value."""


def mark_unknown(text: str, pattern: re.Pattern[str]) -> str:
    """Return a text with a mark in front of each variable."""
    return pattern.sub(lambda match: UNKNOWN + match[0], text)


def split_words(text: str) -> list[str]:
    """Return the words of a command line as a shell reads them; the whole text if no shell could."""
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


_SERVER: Final = r"[\w-]*(?:nessie|lakekeeper|catalog|opa)[\w-]*"
"""Name of a part of a chart that is a server."""
_NAMES_SERVER: Final = re.compile(r"nessie|lakekeeper")
_CHART: Final = re.compile(r"(?:.*/)?[\w.-]*(?:nessie|lakekeeper|opa)[\w.-]*(?::.*)?")
"""Name or path of a chart of a server."""
_VALUES_AT: Final[Mapping[str, str]] = {
    "": r"(?:\.values)?",
    "HelmRelease": r"\.spec\.values",
    "Application": r"\.spec\.sources?\.helm\.valuesObject",
    "ApplicationSet": r"\.spec\.template\.spec\.sources?\.helm\.valuesObject",
    "Kustomization": r"\.helmCharts\.valuesInline",
    "Nessie": r"\.spec",
}
"""Kind of a document -> keys above the values of a chart. A file of values has no kind."""
_WORKLOADS: Final = frozenset(
    """Pod PodTemplate Deployment DeploymentConfig StatefulSet DaemonSet ReplicaSet ReplicationController Job CronJob
    Rollout Service""".split()  # noqa: SIM905
)
_GROUPS: Final = frozenset({"ConfigMap", "Secret", "Template", "Component", "HelmChart", "HelmChartConfig"})
_OF_POD: Final = r"(?:\.(?:spec|template|jobTemplate))*\.(?:initC|ephemeralC|c)ontainers\.env"
_OF_TASK: Final = r"(?:\.\w+)*\.containerDefinitions\.environment"


class DocumentPlace(NamedTuple):
    """Kind of the document around a mapping, the keys above inside of it, and the chart with values there."""

    kind: str
    above: str
    chart: str = ""

    def part(self, key: str = "") -> str | None:
        """Return the keys from the values of a server's chart down to `key`; None elsewhere, and in another chart."""
        root = _VALUES_AT.get(self.kind)
        match = re.fullmatch(rf"{root}((?:\.{_SERVER})*?){key}", self.above) if root is not None else None
        if match is None or (self.chart and not _CHART.fullmatch(self.chart) and not _NAMES_SERVER.search(match[1])):
            return None
        return match[1]

    def holds_section(self) -> bool:
        """Tell whether a section of Nessie's chart counts here."""
        part = self.part()
        return part is not None and (not part or "nessie" in part)

    def holds_variables(self) -> bool:
        """Tell whether variables here reach a server. Other lists of names and values are anything."""
        if self.kind == "compose":
            return bool(re.fullmatch(r"|\.services\.[^.]+\.environment", self.above))
        of_pod = self.kind in _WORKLOADS or not self.kind
        if of_pod and re.fullmatch(_OF_POD if self.kind else rf"|{_OF_POD}|{_OF_TASK}", self.above):
            return True
        return self.part(IN_VALUES) is not None


IN_VALUES: Final = r"\.(?:env|environment|extraEnv|(?<=catalog\.)config)"
"""Last key above the variables of a server in values of a chart."""


def is_known_kind(kind: str, version: str) -> bool:
    """Tell whether an object of a kind can bring settings to a server in a known place."""
    if kind == "Nessie":
        return version.startswith("nessie.projectnessie.org/")
    return kind in _VALUES_AT or kind in _WORKLOADS or kind in _GROUPS or kind.endswith("List")


def section_keys(name: str, node: Any, file: Path) -> Iterator[ConfigEntry]:
    """Yield the keys of Nessie of a section of the chart."""
    for key, place, text in flat_values(node):
        path = f"nessie.server.authorization.{key}" if name == "authorization" else key
        yield entry_of(path, text, file, position_of(place))


def chart_name(pairs: Mapping[str, Any]) -> str | None:
    """Return the chart of the values in a mapping, "" for an unknown chart; None without values."""
    if "helm" in pairs:
        return scalar(pairs.get("chart", pairs.get("path")))
    if "valuesInline" in pairs:
        return scalar(pairs.get("name"))
    if "values" not in pairs or not {"chart", "chartRef"} & pairs.keys():
        return None
    spec = pairs_of(pairs_of(pairs.get("chart")).get("spec"))
    return scalar(spec.get("chart")) or scalar(pairs_of(pairs.get("chartRef")).get("name"))


OF_VALUES: Final = ("", "values", "", "")
"""Workload of the files of values of a chart: they are joined."""


def join_values(contents: Sequence[ManifestContent]) -> None:
    """Give the settings in files of values to the only release of a chart among the files."""
    workloads = {name[:4] for one in contents for name in one.containers if name[1:2] and name[1] in _VALUES_AT}
    for one in contents if len(workloads) == 1 else ():
        for name in [name for name in one.containers if name[:4] == OF_VALUES]:
            one.containers.setdefault((*min(workloads), *name[4:]), []).extend(one.containers.pop(name))


SECTIONS: Final[Mapping[str, frozenset[str]]] = {
    "authorization": frozenset({"enabled", "rules"}),
    "advancedConfig": frozenset(),
}
"""Section of a chart -> keys. A section has at least one."""
CHART: Final[Mapping[str, frozenset[str]]] = {
    "auth": frozenset({"oauth2", "k8s"}),
    "authn": frozenset(),
    "authz": frozenset({"backend", "openfga", "cedar"}),
    "OPABridge": frozenset(),
}
"""Keys of the values of Lakekeeper's Helm chart that its templates turn into variables -> keys below, at any depth."""
OF_CHART: Final = frozenset({*SECTIONS, *CHART, "extraEnv", "catalog"})
CHARTS: Final = frozenset({"", "values", "catalog", "nessie", "lakekeeper"})
"""Keys beside the image of a server in a chart, and keys above."""
_HARMLESS: Final = re.compile(
    r"(?:\.[\w-]+)?\.(?:image\.tag|image\.pullPolicy|replicaCount|replicas|resources|nodeSelector|tolerations|affinity"
    r"|service|ingress|serviceMonitor|autoscaling|logLevel|log|nameOverride|fullnameOverride)(?:\..*)?"
    r"|.*\.authorization\.rules\.[^.]+"
)
"""Values of a chart that bring no settings of authorization, and rules, which are compared apart."""
JOINED: Final = "is in one file of values of several, which Helm joins: migrate the output of `helm template`"
_NO_VALUES: Final = frozenset({"apiVersion", "kind", "services", "include", "containerDefinitions"})
_VALUES: Final = frozenset({"values", "valuesObject", "valuesInline"})


def differing_values(contents: Sequence[ManifestContent]) -> Iterator[ConfigEntry]:
    """Yield the values of a chart with another value elsewhere. Helm joins mappings alone, in an unknown order."""
    found = [(one.file, node) for one in contents for root in one.roots for node in _values_of(root)]
    for (file, node), (_, other) in combinations(found, 2):
        for path, place in _differing(node, other, ""):
            if not _HARMLESS.fullmatch(path):
                yield entry_of(path.lstrip("."), "", file, position_of(place))


def _values_of(node: Any, depth: int = 8) -> Iterator[Any]:
    """Yield the values of a chart in a document: all of it, or parts of a release."""
    pairs = pairs_of(node)
    if depth == 8 and _NO_VALUES.isdisjoint(pairs):
        yield node
        return
    for key, value in pairs.items() if depth else ():
        if key in _VALUES and pairs_of(value):
            yield value
        for one in items_of(value) if key not in _VALUES else ():
            yield from _values_of(one, depth - 1)


def _differing(first: Any, second: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield path and node of what two values do not join as mappings."""
    pairs, others = (pairs_of(one) for one in (first, second))
    if isinstance(first, yaml.MappingNode) and isinstance(second, yaml.MappingNode):
        for key in pairs.keys() & others.keys():
            yield from _differing(pairs[key], others[key], f"{path}.{key}")
    elif yaml.serialize(first, Dumper=yaml.SafeDumper) != yaml.serialize(second, Dumper=yaml.SafeDumper):
        yield path, first


def read_env_file(text: str, file: Path, form: str, content: ManifestContent) -> None:
    """Read lines `NAME=value` as the program `form` does; for "", as docker compose, and note other readings.

    Raise PolicyError for a line without an assignment.
    """
    different: list[int] = []
    for number, line in _logical_lines(text, file, form):
        match = LINE_OF_VARIABLE.fullmatch(line)
        if match is None:
            if re.fullmatch(r"\s*[\w.-]+\s*", line) and form in ("docker", "compose"):
                content.elsewhere.append(entry_of(line.strip(), "", file, (number, 1)))
                continue
            raise PolicyError("not `NAME=value`", Place(str(file), number))
        name = match["name"]
        if not form and line.rstrip().endswith("\\"):
            line = line.rstrip()[:-1].rstrip()  # noqa: PLW2901  a line of a script
        read = {one: reader(line) for one, reader in READERS.items()}
        value = read[form] if form else _of_any(read)
        if not form and (value is None or len({one for one in read.values() if one is not None}) > 1):
            different.append(number)
        start = (number, match.start("value") + 1 + len(match["value"]) - len(match["value"].lstrip("'\"")))
        entry = ConfigEntry(
            name, value or "", str(file), start, partial(positions_of, value or "", *start), (number, 1)
        )
        (content.elsewhere if value is None else content.variables).append(entry)
    if different:
        lines = ", ".join(map(str, different))
        message = (
            f"is read as docker compose reads it; `docker run --env-file` keeps quotes and comments, systemd comments: "
            f"lines {lines}"
        )
        content.notes.append((entry_of(file.name, "", file, (different[0], 1)), message))


def _of_any(read: Mapping[str, str | None]) -> str | None:
    """Return the value of a line without a known reader: of docker compose, or of docker if compose refuses the line.

    Docker compose expands a variable, and docker keeps the text: then no text is known to be in force.
    """
    docker = read["docker"]
    if read["compose"] is not None:
        return read["compose"]
    return None if docker is None or _OF_COMPOSE.search(docker) else docker


def _logical_lines(text: str, file: Path, form: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with text. Some programs join the lines of a value in quotes."""
    lines = enumerate(_NEWLINE.split(text), 1)
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith(("#", ";") if form == "systemd" else ("#",)):
            continue
        whole = line
        while form != "docker" and _is_open(whole, form):
            following = next(lines, None)
            if following is None:
                raise PolicyError("a value in quotes, or continued, without an end", Place(str(file), number))
            whole = (whole[:-1] if form == "systemd" and whole.endswith("\\") else f"{whole}\n") + following[1]
        yield number, whole


def _is_open(line: str, form: str) -> bool:
    value = line.partition("=")[2].lstrip()
    if form == "systemd" and line.endswith("\\"):
        return True
    if value[:1] not in ("'", '"'):
        return False
    escaped = re.sub(r"\\.", "", value, flags=re.DOTALL)
    return form in ("systemd", "compose") and escaped.count(value[0]) % 2 == 1


def read_unit(text: str, file: Path, content: ManifestContent) -> None:
    """Read a unit of systemd, a drop-in, or a container unit of podman."""
    unit, sections = _unit_of(file)
    section = ""
    for number, line in _continued(text, ("#", ";")):
        key, separator, value = (part.strip() for part in line.partition("="))
        place = (number, 1)
        section = line if line.startswith("[") else section
        if not separator or line.startswith("["):
            continue
        if section not in sections and (key in ("Environment", "EnvironmentFile", *_HOLDERS) or key.startswith("Exec")):
            _drop(key, value, file, place, content)
            continue
        if not value and key in ("Environment", "EnvironmentFile", "ExecStart"):
            message = f"`{key}=` takes away what other lines set: remove these lines, and this one"
            raise PolicyError(message, Place(str(file), number))
        if key == "Environment":
            _read_environment(value, file, place, content)
        elif key == "EnvironmentFile":
            path = value.lstrip("-").strip("'\"")
            content.references += [Reference(entry_of(path, "", file, place), "file", form="systemd")] if path else []
        elif key.startswith(("Exec", "Health")):
            _read_program(key, value, file, place, content)
        elif key in _HOLDERS:
            message = f"`{key}` may give the server settings, which are not read: write them into a file"
            name, text = (key, value) if key in _WITH_VALUES else (value, "")
            content.references.append(Reference(entry_of(name, text, file, place), "", message))
        else:
            content.rest.append(entry_of(f".{key}", value, file, place))
    if unit:
        content.containers[unit] = [*content.variables, *content.commands]
        content.references = [one._replace(container=unit) for one in content.references]
    _name_drop_ins(file, content)


def _read_program(key: str, value: str, file: Path, place: tuple[int, int], content: ManifestContent) -> None:
    """Read the command of the server; a program before, beside or after the server is another one."""
    marked = mark_unknown(mark_unknown(value, OF_COMPOSE), _SPECIFIER)
    words = split_words(marked.replace("%%", "%").replace("$$", "$").lstrip("@-:+!"))
    entry = entry_of(key, "\0".join(words), file, place)
    if key in ("Exec", "ExecStart"):
        content.commands.append(entry)
    else:
        content.dropped.append((entry, OF_HOOKS))


def _unit_of(file: Path) -> tuple[tuple[str, ...], Sequence[str]]:
    """Return folder and name of the unit of a file, empty for a drop-in of any unit, and the sections to read."""
    folder = file.parent
    if file.suffix == ".conf" and folder.suffix != ".d":
        return (), ("[Service]", "[Container]")
    unit = folder.with_suffix("") if file.suffix == ".conf" else file
    return (str(unit.parent), unit.name), (f"[{_SECTIONS.get(unit.suffix, 'Service')}]",)


def _name_drop_ins(file: Path, content: ManifestContent) -> None:
    folder = file.with_name(f"{file.name}.d")
    for drop_in in sorted(folder.glob("*.conf")) if folder.is_dir() else ():
        content.references.append(Reference(entry_of(f"{folder.name}/{drop_in.name}", "", file, (1, 1)), "file"))


_SECTIONS: Final[Mapping[str, str]] = {".container": "Container", ".pod": "Pod"}
"""Kind of a unit -> section with its settings. Others have `Service`."""
_NOT_THERE: Final = "stands in a section where no program reads it: write it below `[Service]`, or remove it"


def _drop(key: str, value: str, file: Path, place: tuple[int, int], content: ManifestContent) -> None:
    """Keep a key of another section as one without effect."""
    found = ManifestContent(file)
    if key == "Environment":
        _read_environment(value, file, place, found)
    entries = [*found.variables, *found.elsewhere] or [entry_of(key, value, file, place)]
    content.dropped += [(entry, _NOT_THERE) for entry in entries]


_HOLDERS: Final = frozenset(
    """PassEnvironment UnsetEnvironment LoadCredential LoadCredentialEncrypted SetCredential SetCredentialEncrypted
    ImportCredential BindPaths BindReadOnlyPaths Entrypoint Volume Secret Mount EnvironmentHost PodmanArgs""".split()  # noqa: SIM905
)
"""Keys of a unit that bring files or variables from elsewhere."""
_WITH_VALUES: Final = frozenset({"SetCredential", "SetCredentialEncrypted", "PodmanArgs"})
"""Those with values of variables and secrets, which no report shows."""
_SPECIFIER: Final = re.compile(r"(?<!%)(?:%%)*%(?!%)")


def _read_environment(value: str, file: Path, place: tuple[int, int], content: ManifestContent) -> None:
    for word in split_words(value):
        name, separator, text = word.replace("%%", "%").partition("=")
        entry = entry_of(name, text, file, place)
        if not separator or "\\" in value or _SPECIFIER.search(value):
            content.elsewhere.append(entry)
        elif PLAIN_NAME.fullmatch(name):
            content.variables.append(entry)
        else:
            content.dropped.append((entry, "systemd drops a variable of such a name: write it in capitals"))


def _continued(text: str, comments: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield lines; a backslash at the end joins the next line, and a comment between is skipped."""
    number, joined = 0, ""
    for at, line in enumerate(_NEWLINE.split(text), 1):
        if line.lstrip().startswith(comments):
            continue
        number = number if joined else at
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1] + " "
        elif (joined + line).strip():
            yield number, (joined + line).strip()
            joined = ""
    if joined.strip():
        yield number, joined.strip()


def read_as_text(text: str, file: Path, content: ManifestContent) -> None:
    """Keep the lines of a file of another tool, and name the file, because no settings are read there."""
    content.rest += [entry_of("", line, file, (number, 1)) for number, line in enumerate(_NEWLINE.split(text), 1)]
    message = "is not read: migrate the manifests or variables that come of it"
    content.references.append(Reference(entry_of(file.name, "", file, (1, 1)), "", message))
