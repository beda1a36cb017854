"""Configuration of a Nessie server in manifests and env files, as sources of Quarkus.

Reads variables, system properties of Java, files inside ConfigMaps and values of Nessie's Helm chart. Names each text
that looks like authorization and is none of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from pdp.config.quarkus.expressions import spelling
from pdp.config.quarkus.profiles import ConfigFile, ConfigSource, ordinal_of
from pdp.config.quarkus.properties import ConfigEntry, continued, read_properties, unknown_positions
from pdp.config.quarkus.yaml_text import YamlText, flat_values, position_of, printed_text
from pdp.engines.cel.nessie_keys import (
    AUTHORIZATION,
    CHOICES,
    LOOKS_LIKE_RULES,
    NAMES_FILE,
    OWN_NAME,
    SWITCHES,
    looks_like_settings,
    names_source,
)
from pdp.errors import Place, PolicyError
from pdp.offline.migration.host_files import JOINED, differing_values
from pdp.offline.migration.java_options import OF_JAVA, SETS, JavaProperties, is_of_start
from pdp.offline.migration.manifests import read_deployment
from pdp.offline.migration.report import (
    Migration,
    differing_variables,
    report_named_files,
    report_references,
    shut_text,
    variables_of_some,
)
from pdp.offline.migration.variables import (
    ELSEWHERE,
    NOT_HELD,
    NOT_LOADED,
    OF_HOOKS,
    OF_OTHERS,
    REPLACED,
    SEVERAL,
    UNUSED,
    ManifestContent,
    servers_by_image,
)
from pdp.offline.migration.variables import (
    IMAGE as IMAGE_OF_OTHERS,
)

_MICROPROFILE: Final = "microprofile-config.properties"
_PROPERTIES: Final = 400
"""Ordinal of system properties."""
_OF_CHART: Final = 260
"""Ordinal of the file that the chart writes, `application.properties` in the folder `config`."""
_OWN_SPELLING: Final = spelling(AUTHORIZATION)
_RULE_SPELLING: Final = f"{_OWN_SPELLING}rules_"
CONFIG: Final = PurePosixPath("/deployments/config")
"""Folder where the image of Nessie reads its configuration: the start script goes to the folder above."""
IMAGE: Final = re.compile(r"(?:^|/)projectnessie/nessie(?:-unstable)?(?:[:@]|$)")
"""Name of an image of Nessie's server."""
READ_THERE: Final = re.compile(r"application(?:-[\w-]+)?\.(?:properties|ya?ml)")


def is_read_beside(path: str) -> bool:
    """Tell whether Nessie reads a file in the container beside the others: the file may outrank them."""
    place = PurePosixPath(path)
    return place == CONFIG.parent / ".env" or (place.parent == CONFIG and bool(READ_THERE.fullmatch(place.name)))


def is_of_settings(path: str) -> bool:
    """Tell whether a path is that of settings, or of a folder above."""
    return CONFIG.is_relative_to(path) or bool(READ_THERE.fullmatch(PurePosixPath(path).name))


@dataclass
class NessieServer:
    """Configuration of a server. `sources` are those beside files: system properties, and values of a chart.

    `unread`: texts of parts that are left, which may replace rules. `setters`: names whose value is not certain.
    `contents`: of all manifests and env files. `doubtful`: properties of Java that may not reach the server.
    `is_closed`: a part that is left may replace every rule.
    """

    variables: list[ConfigEntry] = field(default_factory=list)
    files: list[ConfigFile] = field(default_factory=list)
    sources: list[ConfigSource] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    setters: list[str] = field(default_factory=list)
    contents: Sequence[ManifestContent] = ()
    doubtful: Sequence[ConfigEntry] = ()
    is_closed: bool = False

    def may_replace(self, id: str) -> bool:
        """Tell whether a part that is left may set the rule with an id."""
        words = r"[\W_]+".join(re.findall(r"[a-z0-9]+", id.lower()))
        key = re.compile(rf"(?:^|[\W_]){words}[\"'\])}}_]*\s*(?:[:,\n]|=(?!=)|$)", re.IGNORECASE)
        return any(LOOKS_LIKE_RULES.search(text) and key.search(text) for text in self.unread)

    def report_inactive(self, profiles: Sequence[str], migration: Migration) -> None:
        """Report variables about authorization whose profile is not active."""
        active = tuple(spelling(f"%{profile}.{AUTHORIZATION}") for profile in profiles)
        for entry in self.variables:
            spelt = spelling(entry.key)
            if spelt.startswith("%") and _OWN_SPELLING in spelt and not spelt.startswith(active):
                message = f"not in force under the profile `{','.join(profiles)}`"
                migration.add("ignored", entry.key_place, f"variable `{entry.key}`", message)


def read_server(files: Sequence[Path], others: Sequence[Path], migration: Migration) -> NessieServer:
    """Return the configuration in manifests and env files, and report all that is not read. `others` are given, too."""
    read = read_deployment(files, OWN_NAME, IMAGE)
    server = NessieServer(contents=read)
    properties = JavaProperties(read, migration, servers_by_image(read, IMAGE))
    differing = differing_variables(read, _of_variable)
    alone = _variables_of_one_server(read, differing, migration)
    charts = [(one.file, node) for one in read for entry, node in one.values if entry.key == "authorization"]
    sections = {yaml.serialize(node, Dumper=yaml.SafeDumper): file for file, node in charts}
    doubt = (JOINED if len(set(sections.values())) > 1 else SEVERAL) if len(sections) > 1 else ""
    for one in read:
        for entry in _add_variables(one.variables, alone, differing, server):
            migration.add("left", entry.key_place, f"variable `{entry.key}`", differing[spelling(entry.key)])
        for entry in one.variables:
            properties.read_variable(entry, SEVERAL if (entry.key, entry.text) in alone else "")
        for entry in one.commands:
            properties.read_command(entry, SEVERAL if (entry.key, entry.text) in alone else "")
        server.sources += _chart_sources(one, doubt, alone, migration)
        dropped = (entry for entry, message in one.dropped if message in (REPLACED, UNUSED, NOT_HELD, NOT_LOADED))
        unread = (*one.elsewhere, *one.rest, *dropped, *(reference.entry for reference in one.references))
        server.unread += [f"{entry.key}={entry.text}" for entry in unread]
        options = [entry for entry in (*one.commands, *one.variables) if entry in one.commands or entry.key in OF_JAVA]
        server.setters += [name for entry in options for name in SETS.findall(entry.text)]
        server.setters += [entry.key for entry in (*one.elsewhere, *one.variables) if entry in one.elsewhere or
                           spelling(entry.key).startswith("%")]  # fmt: skip
        _report_elsewhere(one, migration)
        _report_rest(one, migration)
    _check_spellings(server.variables)
    held = [entry._replace(key=str(CONFIG / PurePosixPath(entry.key).name)) for one in read for entry in one.files]
    server.files += _mounted_files([*held, *(entry for one in read for entry in one.mounted)], server, migration)
    server.unread += properties.unread
    server.doubtful = properties.doubtful
    server.is_closed = properties.is_opaque
    for entry in differing_values(read):
        migration.add("left", entry.place(), f"`{entry.key}`", JOINED)
        server.is_closed = True
    if any(entry.key == "config_ordinal" for entry in server.doubtful):
        server.unread += [f"{entry.key}={entry.text}" for entry in properties.entries]
    server.setters += [name for name, _ in variables_of_some(read, lambda entry: entry.key, IMAGE)]
    if properties.entries:
        server.sources.append(ConfigSource(ordinal_of(properties.entries, _PROPERTIES), properties.entries))
    left = report_references(migration, read, [*files, *others])
    server.is_closed |= any(not one.is_volume and one.message != IMAGE_OF_OTHERS for one in left)
    server.is_closed |= any(is_of_start(entry.key) for one in read for entry in one.elsewhere)
    report_named_files(migration, read, [*files, *others])
    return server


def _check_spellings(variables: Sequence[ConfigEntry]) -> None:
    """Raise PolicyError if two spellings of a variable have other texts: releases of Quarkus differ in their order."""
    first: dict[str, ConfigEntry] = {}
    for entry in variables:
        earlier = first.setdefault(spelling(entry.key), entry)
        is_own = _OWN_SPELLING in spelling(entry.key)
        if is_own and earlier.key != entry.key and earlier.text != entry.text:
            message = f"`{entry.key}` is another spelling of `{earlier.key}` at {earlier.key_place}: keep one of them"
            raise entry.error(message)


def _variables_of_one_server(
    read: Sequence[ManifestContent], differing: Mapping[str, str], migration: Migration
) -> set[tuple[str, str]]:
    """Return the rules of a part of the servers, and report them: together, the rules permit more than each server."""
    alone = variables_of_some(read, _of_rules, IMAGE)
    for entry in alone.values():
        message = differing.get(spelling(entry.key), SEVERAL)
        migration.add("left", entry.key_place, f"variable `{entry.key}`", message)
    return set(alone)


def _add_variables(
    entries: Sequence[ConfigEntry], alone: set[tuple[str, str]], differing: Mapping[str, str], server: NessieServer
) -> Iterator[ConfigEntry]:
    """Add variables; a rule of a part of the servers is `false`. Yield other settings that differ."""
    for entry in entries:
        spelt = spelling(entry.key)
        if spelt in differing and _RULE_SPELLING not in spelt:
            server.setters.append(entry.key)
            if OWN_NAME.search(entry.key) or entry.key in OF_JAVA:
                yield entry
        elif spelt not in differing or all(spelling(known.key) != spelt for known in server.variables):
            is_known = spelt not in differing and (entry.key, entry.text) not in alone
            server.variables.append(entry if is_known else entry._replace(text=shut_text(entry.text)))


def _of_variable(entry: ConfigEntry) -> str:
    """Return the name of a variable as keys spell it, "" for an option. Profiles and ranks are compared apart."""
    spelt = spelling(entry.key)
    return "" if spelt in SWITCHES or spelt == "config_ordinal" or entry.key.startswith("-D") else spelt


def _of_rules(entry: ConfigEntry) -> str:
    """Return the name of a variable or a command about rules, else ""."""
    is_text = entry.key in OF_JAVA or "\0" in entry.text
    return entry.key if _RULE_SPELLING in spelling(entry.text if is_text else entry.key) else ""


def _mounted_files(entries: Sequence[ConfigEntry], server: NessieServer, migration: Migration) -> Iterator[ConfigFile]:
    """Yield the files in the container's folder of configuration; report files with settings in other places."""
    texts: dict[str, set[str]] = {}
    for entry in entries:
        texts.setdefault(entry.key, set()).add(entry.text)
    for entry in {entry[:3]: entry for entry in entries}.values():
        path = PurePosixPath(entry.key)
        if path.parent != CONFIG or not READ_THERE.fullmatch(path.name):
            if looks_like_settings(entry):
                message = "is mounted where Nessie does not read it by itself"
                migration.add("left", entry.place(), f"`{entry.key}`", message)
                server.unread.append(f"{entry.key}={entry.text}")
        elif len(texts[entry.key]) > 1 or f"?/{path.name}" in texts:
            migration.add("left", entry.place(), f"`{entry.key}`", SEVERAL)
            server.unread.append(f"{entry.key}={entry.text}")
        else:
            yield from _held_file(entry, migration)


def _held_file(entry: ConfigEntry, migration: Migration) -> Iterator[ConfigFile]:
    name = Path(entry.key).name
    if name.startswith("values"):
        message = "holds values of a chart, which are not read there: migrate the output of `helm template`"
        migration.add("left", entry.place(), f"`{name}`", message)
        return
    if not (name.startswith("application") or name == _MICROPROFILE or LOOKS_LIKE_RULES.search(entry.text)):
        return
    place = f"{entry.file}:{entry.start[0]} {name}"
    if name.endswith(".properties"):
        entries = list(read_properties(entry.text, place))
    else:
        document = YamlText(entry.text, place)
        pairs = [pair for root in document.documents for pair in document.pairs(root)]
        entries = [one for pair in pairs for one in document.flatten(*pair)]
    if "{{" in entry.text:
        migration.add("left", entry.place(), f"`{name}`", _TEMPLATE)
        entries = [one._replace(text=shut_text(one.text)) if "rules." in one.key else one for one in entries]
    yield ConfigFile(place, str(CONFIG), name, entries)


def _chart_sources(
    one: ManifestContent, several: str, alone: set[tuple[str, str]], migration: Migration
) -> Iterator[ConfigSource]:
    """Yield the entries that Nessie's Helm chart writes into `application.properties` for its values."""
    written: dict[str, ConfigEntry] = {}
    is_moved = any(reference.entry.key == "configDir" for reference in one.references)
    for entry, node in sorted(one.values, key=lambda pair: pair[0].key == "advancedConfig"):
        is_section = entry.key == "authorization"
        pairs = _authorization(entry, node, several, migration) if is_section else flat_values(node)
        for name, key, text in pairs:
            start, is_rule = position_of(key), f"{AUTHORIZATION}rules." in name
            doubt = _TEMPLATE if "{{" in text else several or (SEVERAL if (name, text) in alone else "")
            if is_rule and doubt:
                migration.add("left", Place(entry.file, *start), f"`{name}`", doubt)
            if is_rule and (doubt or is_moved):
                text = shut_text(text)  # noqa: PLW2901
            # the chart writes the text as it is, so escapes and line ends are those of a properties file
            for found in read_properties(f"{name}={continued(text)}", entry.file):
                written[found.key] = found._replace(start=start, locate=unknown_positions(start), key_start=start)
    if written:
        entries = list(written.values())
        yield ConfigSource(ordinal_of(entries, _OF_CHART), entries)


_TEMPLATE: Final = "is a template: migrate the output of `helm template`"


def _authorization(entry: ConfigEntry, node: Any, several: str, migration: Migration) -> Iterator[tuple[str, Any, str]]:
    keys = {str(key.value): (key, value) for key, value in node.value}
    for name, (key, _) in keys.items():
        if name not in ("enabled", "rules"):
            place = Place(entry.file, *position_of(key))
            migration.add("left", place, f"`authorization.{name}`", "Nessie's chart has no such value")
    enabled = keys.get("enabled")
    if not several and (
        enabled is None or printed_text(enabled[1]).lower() in ("", "false", "0")
    ):  # of several, another section may turn the rules on
        message = "is not true, so the chart writes no rules: set it, and migrate again, or give the rules in a file"
        migration.add("left", entry.place(), "`authorization.enabled`", message)
        return
    if enabled is not None:
        yield f"{AUTHORIZATION}enabled", enabled[0], printed_text(enabled[1])
    rules = keys.get("rules", (None, None))[1]
    for key, value in rules.value if isinstance(rules, yaml.MappingNode) else ():
        if not isinstance(value, yaml.ScalarNode):
            raise PolicyError(f"rule `{key.value}` is not text", Place(entry.file, *position_of(value)))
        yield f"{AUTHORIZATION}rules.{key.value}", key, printed_text(value)
    if isinstance(rules, yaml.SequenceNode):
        raise PolicyError("`authorization.rules` is a list: a rule has an id", Place(entry.file, *position_of(rules)))


def _report_elsewhere(one: ManifestContent, migration: Migration) -> None:
    for entry in one.elsewhere:
        spelt = spelling(entry.key)
        if _OWN_SPELLING in spelt or spelt in CHOICES or is_of_start(entry.key) or LOOKS_LIKE_RULES.search(entry.key):
            migration.add("left", entry.key_place, f"variable `{entry.key}`", f"{ELSEWHERE}: write it into a file")
    known = {(entry.key, entry.text) for entry in one.variables}
    for entry, message in one.dropped:
        is_known = message in (OF_OTHERS, OF_HOOKS) and (entry.key, entry.text) in known
        if ((message == OF_HOOKS and NAMES_FILE.search(entry.text)) or looks_like_settings(entry)) and not is_known:
            migration.add("left", entry.place(), f"`{entry.key}`", message)


def _report_rest(one: ManifestContent, migration: Migration) -> None:
    for entry in one.rest:
        if LOOKS_LIKE_RULES.search(entry.key) or LOOKS_LIKE_RULES.search(entry.text):
            name = entry.key.lstrip(".") or "a text"
            message = "looks like authorization, and stands where Nessie does not read it: give it in a form of Quarkus"
            migration.add("left", entry.place(), f"`{name}`", message)
    for entry in one.variables:
        is_own = OWN_NAME.search(entry.key.removeprefix("-D")) or entry.key in OF_JAVA
        if not is_own and (LOOKS_LIKE_RULES.search(entry.key) or LOOKS_LIKE_RULES.search(entry.text)):
            message = "looks like authorization, and Nessie reads no such variable"
            migration.add("left", entry.key_place, f"variable `{entry.key}`", message)


def report_sources(migration: Migration, sources: Sequence[ConfigSource], read: NessieServer) -> None:
    """Report keys that name further sources of configuration."""
    message = "names a further source of configuration: give its texts in files"
    entries = (*read.variables, *(entry for source in sources for entry in source.entries))
    for entry in filter(names_source, entries):
        migration.add("left", entry.key_place, f"key `{entry.key}`", message)
        read.is_closed = True
