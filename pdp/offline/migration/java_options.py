"""Command lines of servers, and options of Java: system properties, and options in place of others."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Final

from pdp.config.quarkus.expressions import spelling
from pdp.config.quarkus.properties import ConfigEntry, unknown_positions
from pdp.engines.cel.nessie_keys import AUTHORIZATION, LOOKS_LIKE_RULES, OWN_NAME, chooses_keys, is_of_nessie
from pdp.errors import PolicyError
from pdp.offline.migration.foreign_lines import READERS, quoted_words
from pdp.offline.migration.host_files import UNKNOWN, mark_unknown, split_words
from pdp.offline.migration.report import Migration, missing_references, shut_text
from pdp.offline.migration.variables import (
    BUILT,
    IMAGE,
    KEEP_ONE,
    SEVERAL,
    Container,
    ManifestContent,
    variables_by_container,
)

OF_JAVA: Final[Mapping[str, Callable[[str], list[str]]]] = {
    "JAVA_OPTS": str.split, "JAVA_OPTIONS": str.split, "JAVA_OPTS_APPEND": str.split,
    "JAVA_TOOL_OPTIONS": quoted_words, "JDK_JAVA_OPTIONS": quoted_words, "_JAVA_OPTIONS": quoted_words,
    "JAVA_ARGS": str.split, "GC_CONTAINER_OPTIONS": str.split,
}  # fmt: skip
"""Variable with options of Java -> reader of its words. The start script of Nessie's image knows no quotes."""
_STARTED: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(texts) for name, texts in {
        "JAVA_APP_JAR": "/deployments/quarkus-run.jar", "JAVA_APP_DIR": "/deployments",
        **dict.fromkeys(("JAVA_CLASSPATH", "JAVA_MAIN_CLASS", "JAVA_LIB_DIR"), ""),
        "JAVA_HOME": r"(?:/(?:usr/lib/jvm|opt/java)(?:/(?!\.)[\w.-]+)*)?",
        "PATH": r"(?:(?:^|:)(?:(?:/usr(?:/local)?)?/s?bin|/usr/lib/jvm(?:/(?!\.)[\w.-]+)*/bin))+",
        "JAVA_VERSION": r"[\w.+-]*", "JAVA_APP_NAME": r"[\w-]*", "NO_PROXY": r"\S*", "no_proxy": r"\S*",
    }.items()
}  # fmt: skip
"""Variable of the system or of the start script of the image -> texts that run the program of the image."""
_OF_START: Final = re.compile(
    r"_?(?:JAVA|JDK)_.*|(?:GC|CONTAINER|AB|JBOSS|S2I|JOLOKIA|BASH|LD|DYLD|GLIBC|OPA)_.*|MAVEN_OPTS|CLASSPATH|PATH|ENV"
    r"|IFS|SHELLOPTS|BASHOPTS|PS4|CDPATH|GLOBIGNORE|POSIXLY_CORRECT|(?i:https?|no)_(?i:proxy)"
)
"""Name of a variable that the system, a shell, Java, OPA or the start script of the image may read."""
_PLAIN_SETTING: Final = re.compile(r"(?:[\d.]+[kKmMgG%]?|true|false)?")
_SIZED: Final = re.compile(r"(?:JAVA|GC|CONTAINER|AB|JOLOKIA)_.*")
"""Name of a variable of the start script, harmless with a number or a switch."""


def is_of_start(name: str) -> bool:
    """Tell whether a variable may change which program starts, or with which options."""
    return bool(_OF_START.fullmatch(name))


def changes_start(entry: ConfigEntry) -> bool:
    """Tell whether a variable may start another program or bring options. Only known harmless texts do not."""
    if entry.key in OF_JAVA or not is_of_start(entry.key):
        return False
    known = _STARTED.get(entry.key) or (_PLAIN_SETTING if _SIZED.fullmatch(entry.key) else re.compile(""))
    if entry.key.lower() in ("http_proxy", "https_proxy"):
        known = _STARTED["NO_PROXY"]
    return not known.fullmatch(entry.text)


_WITH_VALUE: Final = frozenset(
    """-cp -classpath --class-path --add-modules --add-opens --add-exports --add-reads --enable-native-access
    --limit-modules""".split()  # noqa: SIM905
)
"""Options of Java whose value is the next word."""
_SCRIPT: Final = re.compile(r"(?:^|[\s/;&])java\s")
"""Script of a shell that starts Java."""
_LOADS: Final = re.compile(
    r"(?:^|[\s;&|(])(?:source|\.|export|unset|eval|envdir|envsubst|envconsul|set\s+-a)\s+\S|\benv\s+-"
    r"|\$\(\s*(?:cat\b|<)|--env-file"
)
"""Script of a shell that reads variables."""
_BLANK: Final = "a blank ends an option of Java here, so its value is cut off: write it without blanks"
_ARGUMENT: Final = "Java gives this to the program, which does not read it: write it before `-jar`, or in JAVA_OPTS"
_EXPANDED: Final = "has a variable of a shell or of another program inside: write its value"
SETS: Final = re.compile(r"(?:-D)?([\w.%-]+)=(?!=)")
"""Name in a command or an option that sets a property or a variable."""
_OF_SHELL: Final = re.compile(r"[$`]")
_WHICH: Final = "another command may run in its place, so which one is the server is not known: keep one of them"
_NO_SCRIPT: Final = "the command may not run the start script of the image, which reads this: write it into the command"
_OF_SCRIPT: Final = frozenset({"JAVA_OPTS", "JAVA_OPTIONS", "JAVA_OPTS_APPEND", "JAVA_ARGS"})
"""Variables that Java itself does not read."""
_KNOWN_OPTION: Final = re.compile(
    r"-X(?:m[nsx]|ss)\d+[kKmMgG]?|-X(?:log|loggc):.*|-X(?:int|mixed|rs|batch|debug|noclassgc|share:\w+)"
    r"|-XX:(?:[+-](?!ReadVMOptionsFile)\w+|\w+=[\d.]+[kKmMgGtT%]?|(?:HeapDumpPath|ErrorFile)=.*)"
    r"|-(?:agentlib:|Xrun)jdwp\b.*|-(?:ea|da|esa|dsa|server|client|d64|showversion)|-verbose(?::\w+)?|--enable-preview"
    r"|--(?:add-opens|add-exports|add-reads|add-modules|limit-modules|enable-native-access|illegal-access"
    r"|sun-misc-unsafe-memory-access)(?:=.*)?"
    r"|-D(?!(?:java|javax|jdk|sun|user|com\.sun)\.).*"
    r"|-D(?:user\.(?:timezone|language|country|region|name|home)|java\.net\.prefer\w+|java\.awt\.headless|java\.io\.tmpdir"
    r"|java\.util\.logging\.manager|java\.util\.concurrent\.ForkJoinPool\.common\.\w+|java\.security\.egd"
    r"|(?:com\.)?sun\.(?:net|management)\..*|jdk\.(?:tls|http|httpclient)\..*)(?:=.*)?",
    re.DOTALL,
)
"""Option of Java that brings neither options, nor programs, nor another folder. Any other one may."""
_BRINGS: Final = "brings options or a program from elsewhere, which may set every rule: write its options here"
_PROGRAMS: Final = frozenset({"java", "run-java.sh"})
_NOT_WHOLE: Final = (
    "does more than start `java` or the script of the image, and may set or replace every rule: start these alone, and "
    "write settings into a file"
)
_CLASSES: Final = re.compile(r"-cp|-classpath|--class-path(?:=.*)?")
_STARTED_TWICE: Final = "the command starts Java more than once, and which one is the server is not known: keep one"
_OVERRULED: Final = "the image does not read JAVA_OPTS_APPEND beside JAVA_OPTS: write all options into one of them"


_CERTAIN: Final = (_EXPANDED, _BLANK, SEVERAL, _WHICH, _NO_SCRIPT)
"""Doubts under which the other parts of a rule do not count either."""


def _runs_script(command: ConfigEntry) -> bool:
    """Tell whether a command starts the script of the image, or is only its arguments."""
    return "run-java.sh" in command.text or command.text.startswith("-")


_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash"})
_STARTERS: Final = frozenset({"exec", "tini", "dumb-init", "nohup"})
"""Programs to start another one without changes."""
_QUIET: Final = frozenset({"echo", "sleep", "true", ":", "date"})
_SET_OPTIONS: Final = re.compile(r"[-+][eux]+|-o|pipefail")
"""Options of `set` that change no variable."""
_SCRIPT_OPTION: Final = re.compile(r"-[eux]*c")


def starts_only(words: Sequence[str], programs: Collection[str]) -> bool:
    """Tell whether a command line is known whole: it starts one of some programs, or is arguments for the image's own.

    A shell may also print, wait, and set options. Anything else may change variables or files before the start.
    """
    rest = list(words)
    while rest and PurePosixPath(rest[0]).name in _STARTERS:
        rest = rest[2:] if rest[1:2] == ["--"] else rest[1:]
    if not rest:
        return not words
    if PurePosixPath(rest[0]).name in _SHELLS:
        return len(rest) > 2 and bool(_SCRIPT_OPTION.fullmatch(rest[1])) and _script_starts_only(rest[2], programs)
    return PurePosixPath(rest[0]).name in programs or words[0].startswith("-")


def has_unknown(command: ConfigEntry) -> bool:
    """Tell whether words of a command come from unknown variables. The value of a property in a list may."""
    words = command.text.split("\0")
    is_shell = any(PurePosixPath(word).name in _SHELLS for word in words)
    sure = (re.sub(rf"{UNKNOWN}\$\([\w.-]+\)", "", word) if _PROPERTY.match(word) else word for word in words)
    return any(UNKNOWN in word or (is_shell and _OF_SHELL.search(word)) for word in sure)


_PROPERTY: Final = re.compile(r"-D[\w.%-]+=")


def script_commands(script: str) -> Sequence[Sequence[str]] | None:
    """Return the words of each command of a shell's script; None for a script with other signs than `;` and `&&`."""
    lexer = shlex.shlex(script.replace("\\\n", " ").replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.commenters, lexer.whitespace_split = "", True
    try:
        tokens = list(lexer)
    except ValueError:
        return None
    if re.search(r"`|\$\(|<\(", script) or any(map(_is_operator, tokens)):
        return None
    return [list(group) for is_end, group in groupby(tokens, lambda one: one in (";", "&&")) if not is_end]


def _script_starts_only(script: str, programs: Collection[str]) -> bool:
    """Tell whether a script of a shell starts one of some programs, and changes nothing."""
    commands = script_commands(script)
    return commands is not None and all(_is_quiet(one) or starts_only(one, programs) for one in commands)


def _is_operator(token: str) -> bool:
    """Tell whether a token joins commands, or redirects, in an unknown way."""
    return set(token) <= set("();<>|&") and token not in (";", "&&", "")


def _is_quiet(words: Sequence[str]) -> bool:
    """Tell whether a command of a script changes nothing."""
    return words[0] in _QUIET or (words[0] == "set" and all(map(_SET_OPTIONS.fullmatch, words[1:])))


_OF_LAKEKEEPER: Final = frozenset({"lakekeeper", "serve", "migrate", "opa", "run"})
"""Programs of Lakekeeper and its bridge, and first arguments of their images."""
_OF_OPA: Final = re.compile(
    r"(?!.*://)[^-].*|-[sabw]|--(?:server|watch|h2c|disable-telemetry|skip-version-check|bundle(?:=(?!.*://).*)?"
    r"|(?:log-level|log-format|addr)(?:=.*)?)"
)
"""Arguments of the bridge that bring no policies from a page, and no settings."""


_STARTS_MORE: Final = "does more than start the server, and may set or take away every variable: start it alone"


def doubtful_commands(
    read: Sequence[ManifestContent], is_own: Callable[[str], bool]
) -> Iterator[tuple[ConfigEntry, str]]:
    """Yield the commands of Lakekeeper and of the bridge with unknown parts, with a message.

    `is_own` knows the names of variables.
    """
    found = variables_by_container(read).values()
    own = [one for one in found if any(is_own(entry.key) for entry in one)]
    others = {id(entry) for one in found if own and one not in own for entry in one}
    for entry in (entry for one in read for entry in one.commands if id(entry) not in others):
        words = [one for word in entry.text.split("\0") for one in (word.split() if " " in word else [word])]
        rest = words[2:] if PurePosixPath(words[0]).name in _SHELLS else words
        is_bridge = any(PurePosixPath(word).name in ("opa", "run") for word in words)
        is_plain = not is_bridge or all(map(_OF_OPA.fullmatch, rest))
        if not is_plain or has_unknown(entry) or not starts_only(entry.text.split("\0"), _OF_LAKEKEEPER):
            yield entry, _STARTS_MORE
    for one in read:
        for entry in one.variables:
            if changes_start(entry) and id(entry) not in others:
                yield entry, _BRINGS
        yield from ((entry, _BRINGS) for entry in one.elsewhere if is_of_start(entry.key))


def replacing_parts(read: Sequence[ManifestContent], files: Sequence[Path]) -> Iterator[tuple[ConfigEntry, str]]:
    """Yield the parts not at hand that may replace or take away any variable of a manifest, with a message.

    Objects and files of variables, volumes and images do not: the variables of a container win over theirs.
    """
    for one in missing_references(read, files):
        is_below = one.is_volume or one.form in READERS or one.kind in ("ConfigMap", "Secret")
        if not (is_below or one.is_ignored or one.message in (IMAGE, BUILT)) and one.entry.key:
            yield one.entry, one.message


class JavaProperties:
    """System properties of command lines and variables. A property that does not reach Nessie becomes `false`."""

    def __init__(self, read: Sequence[ManifestContent], migration: Migration, servers: Collection[Container]) -> None:
        self._migration = migration
        containers = variables_by_container(read)
        own = {*servers, *(name for name, entries in containers.items() if any(map(is_of_nessie, entries)))}
        self._others = [one for name, entries in containers.items() for one in entries if own and name not in own]
        self._has_options = any(entry.key == "JAVA_OPTS" for one in read for entry in (*one.variables, *one.elsewhere))
        self._known: dict[str, ConfigEntry] = {}
        self._sure: dict[str, ConfigEntry] = {}
        self._doubtful: dict[str, ConfigEntry] = {}
        self._cut: dict[str, ConfigEntry] = {}
        self._commands = [entry for one in read for entry in one.commands]
        self._elsewhere = {entry.key for one in read for entry in one.elsewhere}
        self._containers = list(containers.values())
        self.is_opaque = False
        self.unread: list[str] = []
        self.doubtful: list[ConfigEntry] = []

    @property
    def entries(self) -> Sequence[ConfigEntry]:
        """Return the properties. One without a known text replaces all of its name, one out of reach none."""
        return list({**self._doubtful, **self._sure, **self._cut}.values())

    def read_variable(self, entry: ConfigEntry, doubt: str) -> None:
        """Read a variable with options of Java."""
        if changes_start(entry):
            self._migration.add("left", entry.key_place, f"variable `{entry.key}`", _BRINGS)
            self.is_opaque = True
        elif entry.key.startswith("-D"):
            self._add(f"{entry.key}={entry.text}", entry, doubt)
        elif entry.key in OF_JAVA:
            words = OF_JAVA[entry.key](entry.text)
            starts_otherwise = not all(map(_runs_script, self._beside(entry)))
            doubt = doubt or (_NO_SCRIPT if entry.key in _OF_SCRIPT and starts_otherwise else "")
            replaced = entry.key == "JAVA_OPTS_APPEND" and self._has_options
            doubt = doubt or (_OVERRULED if replaced else _ARGUMENT if entry.key == "JAVA_ARGS" else "")
            for at, word in enumerate(words):
                if word.startswith(("-", "@")):
                    self._read_opaque(word, entry)
                is_cut = words[at + 1 : at + 2] and not words[at + 1].startswith(("-", "@"))
                self._add(word, entry, doubt or (_BLANK if is_cut and word not in _WITH_VALUE else ""))

    def read_command(self, command: ConfigEntry, doubt: str) -> None:
        """Read the words of a command line, also within `sh -c`."""
        words = []
        entry = command._replace(text=self._with_values(command))
        for word in entry.text.split("\0"):
            if _LOADS.search(word):
                message = "may set variables from elsewhere: write them into a file"
                self._migration.add("left", entry.place(), "script of a command", message)
                self.is_opaque = True
            in_shell = split_words(word) if _SCRIPT.search(word) else []
            words += [mark_unknown(one, _OF_SHELL) for one in in_shell] or [word]
        is_other = any(one is command for one in self._others)
        if not is_other and (has_unknown(entry) or not starts_only(entry.text.split("\0"), _PROGRAMS)):
            self._migration.add("left", entry.place(), "a command", _EXPANDED if has_unknown(entry) else _NOT_WHOLE)
            self.is_opaque = True
        is_option, before = False, ""
        doubt = doubt or (_WHICH if len({one.text for one in self._beside(command)}) > 1 else "")
        doubt = doubt or (_STARTED_TWICE if sum(Path(word).name == "java" for word in words) > 1 else "")
        for word in words:
            if Path(word).name == "java":
                is_option = True
            elif is_option and before not in _WITH_VALUE:
                is_option = word.lstrip(UNKNOWN).startswith(("-", "$", "@")) and word != "-jar"
                self._read_opaque("" if is_option or word == "-jar" else "--class-path", entry)
            is_value, before = before in _WITH_VALUE, word
            if is_option and not is_value and Path(word).name != "java":
                self._read_opaque("" if _CLASSES.fullmatch(word) and "-jar" in words else word, entry)
            if word.startswith("-D"):
                self._add(word, entry, doubt or ("" if is_option else _ARGUMENT))
            elif LOOKS_LIKE_RULES.search(word):
                self.unread.append(word)
                message = "looks like authorization, and Nessie reads it from no such place"
                self._migration.add("left", entry.place(), f"`{word.partition('=')[0]}` of a command", message)

    def _read_opaque(self, word: str, entry: ConfigEntry) -> None:
        """Note an option that may bring others."""
        if word and not (_KNOWN_OPTION.fullmatch(word) or (_CLASSES.fullmatch(word) and entry.key in OF_JAVA)):
            self._migration.add("left", entry.place(), f"`{re.split('[=:]', word)[0]}` of `{entry.key}`", _BRINGS)
            self.is_opaque = True

    def _with_values(self, command: ConfigEntry) -> str:
        """Return the text of a command with the values of variables, where each has one plain text in the container."""
        texts: dict[str, set[str]] = {}
        for found in self._containers:
            for entry in found if any(one is command for one in found) else ():
                texts.setdefault(entry.key, set()).add(entry.text)
        for name in self._elsewhere:
            texts.pop(name, None)

        def value(match: re.Match[str]) -> str:
            found = texts.get(next(filter(None, match.groups())), {"$"})
            text = min(found) if len(found) == 1 else "$"
            return text if _PLAIN.fullmatch(text) else match[0]

        words = command.text.split("\0")
        is_shell = any(PurePosixPath(word).name in _SHELLS for word in words)
        if command.key in ("Exec", "ExecStart") and not is_shell:
            words = [part for word in words for part in _of_systemd(word, value)]
        elif command.key == "command":
            words = [_OF_KUBERNETES.sub(value, word) for word in words]
        is_plain = is_shell and not re.search(r"['\\]", command.text)
        return "\0".join(_IN_SHELL.sub(value, word) if is_plain else word for word in words)

    def _beside(self, entry: ConfigEntry) -> Sequence[ConfigEntry]:
        """Return the commands that may run with an entry: those of its containers, and those of no known container."""
        own = [found for found in self._containers if any(one[:2] == entry[:2] for one in found)]
        held = [one for found in own or self._containers for one in found if one in self._commands]
        known = [one for found in self._containers for one in found]
        return [*held, *(one for one in self._commands if one not in known)]

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
        is_own = spelling(AUTHORIZATION) in spelling(name)
        if doubt and (is_own or (is_choice and doubt != SEVERAL)):  # profiles of several servers are compared apart
            self._migration.add("left", entry.place(), f"property `{name}`", doubt)
            if name.removeprefix(AUTHORIZATION).startswith("rules."):
                known = self._cut if doubt in _CERTAIN else self._doubtful
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


_PLAIN: Final = re.compile(r"[\w./:=,@%+ -]*")
_OF_KUBERNETES: Final = re.compile(rf"{UNKNOWN}\$\(([\w.-]+)\)")
_IN_SHELL: Final = re.compile(rf"(?<!{UNKNOWN})\$(?:(\w+)|\{{(\w+)\}})")
_IN_UNIT: Final = re.compile(rf"{UNKNOWN}\$(?:(\w+)|\{{(\w+)\}})")


def _of_systemd(word: str, value: Callable[[re.Match[str]], str]) -> Sequence[str]:
    """Return a word of a unit with values: `$NAME` alone is as many words as its value has, `${NAME}` one."""
    text = _IN_UNIT.sub(value, word)
    match = _IN_UNIT.fullmatch(word)
    return text.split() if match and match[1] and text != word else [text]


def _property(name: str, text: str, entry: ConfigEntry) -> ConfigEntry:
    return entry._replace(key=name, text=text, locate=unknown_positions(entry.start))
