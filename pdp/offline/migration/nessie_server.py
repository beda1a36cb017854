"""Configuration of a Nessie server in manifests and env files, as sources of Quarkus.

Reads variables, system properties of Java, files inside ConfigMaps and values of Nessie's Helm chart. Names each text
that looks like authorization and is none of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    chooses_keys,
    looks_like_settings,
)
from pdp.errors import Place, PolicyError
from pdp.offline.migration.host_files import UNKNOWN, mark_unknown, quoted_words, split_words
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
    KEEP_ONE,
    OF_HOOKS,
    OF_OTHERS,
    REPLACED,
    SEVERAL,
    UNUSED,
    ManifestContent,
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


@dataclass
class NessieServer:
    """Configuration of a server. `sources` are those beside files: system properties, and values of a chart.

    `unread`: texts of parts that are left, which may replace rules. `setters`: names whose value is not certain.
    `contents`: of all manifests and env files. `doubtful`: properties of Java that may not reach the server.
    """

    variables: list[ConfigEntry] = field(default_factory=list)
    files: list[ConfigFile] = field(default_factory=list)
    sources: list[ConfigSource] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    setters: list[str] = field(default_factory=list)
    contents: Sequence[ManifestContent] = ()
    doubtful: Sequence[ConfigEntry] = ()

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
    properties = _JavaProperties(read, migration)
    differing = differing_variables(read, _of_variable)
    alone = _variables_of_one_server(read, differing, migration)
    charts = [(one.file, node) for one in read for entry, node in one.values if entry.key == "authorization"]
    sections = {yaml.serialize(node, Dumper=yaml.SafeDumper): file for file, node in charts}
    doubt = (_JOINED if len(set(sections.values())) > 1 else SEVERAL) if len(sections) > 1 else ""
    for one in read:
        for entry in _add_variables(one.variables, alone, differing, server):
            migration.add("left", entry.key_place, f"variable `{entry.key}`", differing[spelling(entry.key)])
        for entry in one.variables:
            properties.read_variable(entry, SEVERAL if (entry.key, entry.text) in alone else "")
        for entry in one.commands:
            properties.read_command(entry, SEVERAL if (entry.key, entry.text) in alone else "")
        server.sources += _chart_sources(one, doubt, migration)
        dropped = (entry for entry, message in one.dropped if message in (REPLACED, UNUSED))
        unread = (*one.elsewhere, *one.rest, *dropped, *(reference.entry for reference in one.references))
        server.unread += [f"{entry.key}={entry.text}" for entry in unread]
        options = [entry for entry in (*one.commands, *one.variables) if entry in one.commands or entry.key in _OPTIONS]
        server.setters += [name for entry in options for name in _SETS.findall(entry.text)]
        server.setters += [entry.key for entry in (*one.elsewhere, *one.variables) if entry in one.elsewhere or
                           spelling(entry.key).startswith("%")]  # fmt: skip
        _report_elsewhere(one, migration)
        _report_rest(one, migration)
    held = [entry._replace(key=str(CONFIG / PurePosixPath(entry.key).name)) for one in read for entry in one.files]
    server.files += _mounted_files([*held, *(entry for one in read for entry in one.mounted)], server, migration)
    server.unread += properties.unread
    server.doubtful = properties.doubtful
    if any(entry.key == "config_ordinal" for entry in server.doubtful):
        server.unread += [f"{entry.key}={entry.text}" for entry in properties.entries]
    server.setters += [name for name, _ in variables_of_some(read, lambda entry: entry.key, IMAGE)]
    if properties.entries:
        server.sources.append(ConfigSource(ordinal_of(properties.entries, _PROPERTIES), properties.entries))
    report_references(migration, read, [*files, *others])
    report_named_files(migration, read, [*files, *others])
    return server


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
            if OWN_NAME.search(entry.key) or entry.key in _OPTIONS:
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
    is_text = entry.key in _OPTIONS or "\0" in entry.text
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


def _chart_sources(one: ManifestContent, several: str, migration: Migration) -> Iterator[ConfigSource]:
    """Yield the entries that Nessie's Helm chart writes into `application.properties` for its values."""
    written: dict[str, ConfigEntry] = {}
    is_moved = any(reference.entry.key == "configDir" for reference in one.references)
    for entry, node in sorted(one.values, key=lambda pair: pair[0].key == "advancedConfig"):
        is_section = entry.key == "authorization"
        pairs = _authorization(entry, node, several, migration) if is_section else flat_values(node)
        for name, key, text in pairs:
            start, is_rule = position_of(key), name.startswith(f"{AUTHORIZATION}rules.")
            doubt = _TEMPLATE if "{{" in text else several
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
_JOINED: Final = "is in one file of values of several, which Helm joins: migrate the output of `helm template`"


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
        if _OWN_SPELLING in spelt or spelt in CHOICES or entry.key in _OPTIONS or LOOKS_LIKE_RULES.search(entry.key):
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
        is_own = OWN_NAME.search(entry.key.removeprefix("-D")) or entry.key in _OPTIONS
        if not is_own and (LOOKS_LIKE_RULES.search(entry.key) or LOOKS_LIKE_RULES.search(entry.text)):
            message = "looks like authorization, and Nessie reads no such variable"
            migration.add("left", entry.key_place, f"variable `{entry.key}`", message)


_OPTIONS: Final[Mapping[str, Callable[[str], list[str]]]] = {
    "JAVA_OPTS": str.split, "JAVA_OPTIONS": str.split, "JAVA_OPTS_APPEND": str.split,
    "JAVA_TOOL_OPTIONS": quoted_words, "JDK_JAVA_OPTIONS": quoted_words, "_JAVA_OPTIONS": quoted_words,
    "JAVA_ARGS": str.split,
}  # fmt: skip
"""Variable with options of Java -> reader of its words. The start script of Nessie's image knows no quotes."""
_WITH_VALUE: Final = frozenset({"-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules", "-m"})
_SCRIPT: Final = re.compile(r"(?:^|[\s/;&])java\s")
"""Script of a shell that starts Java."""
_LOADS: Final = re.compile(
    r"(?:^|[\s;&|(])(?:source|\.|export|eval|envdir|envsubst|envconsul|set\s+-a)\s+\S|\$\(\s*(?:cat\b|<)|--env-file"
)
"""Script of a shell that reads variables."""
_BLANK: Final = "a blank ends an option of Java here, so its value is cut off: write it without blanks"
_ARGUMENT: Final = "Java gives this to the program, which does not read it: write it before `-jar`, or in JAVA_OPTS"
_EXPANDED: Final = "has a variable of a shell or of another program inside: write its value"
_SETS: Final = re.compile(r"(?:-D)?([\w.%-]+)=(?!=)")
"""Name in a command or an option that sets a property or a variable."""
_OF_SHELL: Final = re.compile(r"[$`]")
_STARTED_TWICE: Final = "the command starts Java more than once, and which one is the server is not known: keep one"
_OVERRULED: Final = "the image does not read JAVA_OPTS_APPEND beside JAVA_OPTS: write all options into one of them"


class _JavaProperties:
    """System properties of command lines and variables. A property that does not reach Nessie becomes `false`."""

    def __init__(self, read: Sequence[ManifestContent], migration: Migration) -> None:
        self._migration = migration
        self._has_options = any(entry.key == "JAVA_OPTS" for one in read for entry in (*one.variables, *one.elsewhere))
        self._known: dict[str, ConfigEntry] = {}
        self._sure: dict[str, ConfigEntry] = {}
        self._doubtful: dict[str, ConfigEntry] = {}
        self._cut: dict[str, ConfigEntry] = {}
        self.unread: list[str] = []
        self.doubtful: list[ConfigEntry] = []

    @property
    def entries(self) -> Sequence[ConfigEntry]:
        """Return the properties. One without a known text replaces all of its name, one out of reach none."""
        return list({**self._doubtful, **self._sure, **self._cut}.values())

    def read_variable(self, entry: ConfigEntry, doubt: str) -> None:
        """Read a variable with options of Java."""
        if entry.key.startswith("-D"):
            self._add(f"{entry.key}={entry.text}", entry, doubt)
        elif entry.key in _OPTIONS:
            words = _OPTIONS[entry.key](entry.text)
            replaced = entry.key == "JAVA_OPTS_APPEND" and self._has_options
            doubt = doubt or (_OVERRULED if replaced else _ARGUMENT if entry.key == "JAVA_ARGS" else "")
            for at, word in enumerate(words):
                is_cut = words[at + 1 : at + 2] and not words[at + 1].startswith(("-", "@"))
                self._add(word, entry, doubt or (_BLANK if is_cut and word not in _WITH_VALUE else ""))

    def read_command(self, entry: ConfigEntry, doubt: str) -> None:
        """Read the words of a command line, also within `sh -c`."""
        words = []
        for word in entry.text.split("\0"):
            if _LOADS.search(word):
                message = "may set variables from elsewhere: write them into a file"
                self._migration.add("left", entry.place(), "script of a command", message)
            in_shell = split_words(word) if _SCRIPT.search(word) else []
            words += [mark_unknown(one, _OF_SHELL) for one in in_shell] or [word]
        is_option, before = False, ""
        doubt = doubt or (_STARTED_TWICE if sum(Path(word).name == "java" for word in words) > 1 else "")
        for word in words:
            if Path(word).name == "java":
                is_option = True
            elif is_option and before not in _WITH_VALUE:
                is_option = word.lstrip(UNKNOWN).startswith(("-", "$", "@")) and word != "-jar"
            before = word
            if word.startswith("-D"):
                self._add(word, entry, doubt or ("" if is_option else _ARGUMENT))
            elif LOOKS_LIKE_RULES.search(word):
                self.unread.append(word)
                message = "looks like authorization, and Nessie reads it from no such place"
                self._migration.add("left", entry.place(), f"`{word.partition('=')[0]}` of a command", message)

    def _add(self, word: str, entry: ConfigEntry, doubt: str = "") -> None:
        """Add a property of Nessie or Quarkus."""
        name, _, text = word.removeprefix("-D").partition("=")
        is_choice = chooses_keys(name)
        if not word.startswith("-D") or not (is_choice or OWN_NAME.search(name)):
            if LOOKS_LIKE_RULES.search(word):
                message = "looks like authorization, and is no property of Nessie"
                self._migration.add("left", entry.place(), f"`{name}` of `{entry.key}`", message)
            return
        doubt = _EXPANDED if UNKNOWN in text else doubt
        text = text.replace(UNKNOWN, "")
        is_own = _OWN_SPELLING in spelling(name)
        if doubt and (is_own or (is_choice and doubt != SEVERAL)):  # profiles of several servers are compared apart
            self._migration.add("left", entry.place(), f"property `{name}`", doubt)
            if name.removeprefix(AUTHORIZATION).startswith("rules."):
                known = self._cut if doubt in (_EXPANDED, _BLANK, SEVERAL) else self._doubtful
                known.setdefault(name, _property(name, shut_text(text), entry))
            elif not is_own:
                self.doubtful.append(_property(name, text, entry))
            return
        self._check_unique(name, text, entry)
        self._sure[name] = _property(name, text, entry)

    def _check_unique(self, name: str, text: str, entry: ConfigEntry) -> None:
        earlier = self._known.setdefault(name, _property(name, text, entry))
        if earlier.text != text:
            raise PolicyError(f"`{name}` has another value at {earlier.place()}: {KEEP_ONE}", entry.place())


def _property(name: str, text: str, entry: ConfigEntry) -> ConfigEntry:
    return entry._replace(key=name, text=text, locate=unknown_positions(entry.start))
