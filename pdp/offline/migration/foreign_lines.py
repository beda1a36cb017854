"""Lines and steps of files of other programs, as each program reads them, and texts of manifests."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from pdp.config.quarkus.yaml_text import pairs_of, position_of, scalar
from pdp.errors import Place, PolicyError

LINE_OF_VARIABLE: Final = re.compile(
    r"\s*(?:export\s+|-e\s+|ENV\s+)?(?P<name>[^\s=#][^\s=]*)\s*=[ \t]*(?P<value>.*)", re.DOTALL
)
"""Line `NAME=value` of a file of variables, or of a script."""
PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES: Final[Mapping[str, str]] = {
    **{f"\\{sign}": text for sign, text in zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)},
    "\\\\": "\\", '\\"': '"', r"\$": "$$",
}  # fmt: skip
"""Escape between double quotes, as docker compose reads it."""


def quoted_words(text: str) -> list[str]:
    """Return the options as Java splits them: quotes hold blanks, and go away."""
    words = re.findall(r"""(?:"[^"]*"|'[^']*'|[^\s"']|["'])+""", text)
    return [re.sub(r""""([^"]*)"|'([^']*)'""", lambda match: match[1] or match[2] or "", word) for word in words]


def _of_docker(line: str) -> str | None:
    """Return a value by the rules of `docker run --env-file` and kustomize: all behind `=`; None for a bad line."""
    name, separator, value = line.lstrip().partition("=")
    return value if separator and name and not re.search(r"\s", name) else None


def _of_compose(line: str) -> str | None:
    """Return a value by the rules of docker compose: without quotes, or up to a comment; None with a variable."""
    match = LINE_OF_VARIABLE.fullmatch(line)
    if match is None or not re.fullmatch(r"[\w.\[\]-]+", match["name"]):
        return None
    value = match["value"]
    quoted = re.fullmatch(r"""(['"])((?:\\.|(?!\1).)*)\1\s*(?:#.*)?""", value, re.DOTALL)
    if quoted is None:
        return None if value[:1] in ("'", '"') else _expanded(value.partition(" #")[0].rstrip())
    if quoted[1] == "'":
        return quoted[2].replace("\\'", "'")
    text = re.sub(r'\\(?:[abcfnrtv$"\\]|0\d{0,3})', lambda found: _ESCAPES.get(found[0], found[0]), quoted[2])
    return None if r"\0" in text else _expanded(text)


def _expanded(text: str) -> str | None:
    """Return a text with a dollar for two; None with a variable inside."""
    return None if "$" in text.replace("$$", "") else text.replace("$$", "$")


def _of_systemd(line: str) -> str | None:
    """Return a value by the rules of systemd: quotes end anywhere, a comment inside a line is text, names are words."""
    name, separator, rest = line.strip(" \t").partition("=")
    if not separator or not PLAIN_NAME.fullmatch(name.rstrip()):
        return None
    return unquoted_by_systemd(rest)


def unquoted_by_systemd(rest: str) -> str | None:
    value, blanks, quote, is_value, signs = "", "", "", False, iter(rest)
    for sign in signs:
        if quote == "'" or (quote and sign not in ('"', "\\")):
            quote, value = ("", value) if sign == quote else (quote, value + sign)
        elif quote and sign == '"':
            quote = ""
        elif sign == "\\":
            escaped = next(signs, "")
            value, blanks = value + blanks + ("\\" if quote and escaped not in '"\\`$' else "") + escaped, ""
            is_value = is_value or not quote
        elif not is_value and sign in ("'", '"'):
            quote = sign
        elif sign in " \t":
            blanks += sign if is_value else ""
        else:
            value, blanks, is_value = value + blanks + sign, "", True
    return None if quote else value


READERS: Final[Mapping[str, Callable[[str], str | None]]] = {
    "docker": _of_docker, "compose": _of_compose, "systemd": _of_systemd,
}  # fmt: skip
"""Program -> reader of a line of its env files."""


_MOST_FILES: Final = 1000


def is_left_out(file: Path, source: str, lines: Sequence[str]) -> bool:
    """Tell whether a line of `.dockerignore` fits a file of a copy. Exceptions with `!` do not count."""
    folder = file.parent.resolve()
    patterns = [_ignored(line.strip("/")) for line in lines if line.strip("/") and line[0] not in "#!"]
    start = (folder / source.lstrip("/")).resolve()
    below = list(islice(start.rglob("*"), _MOST_FILES)) if patterns and start.is_dir() else []
    inside = [one.relative_to(folder) for one in (start, *below) if one.is_relative_to(folder)]
    paths = {str(path) for one in inside for path in (one, *one.parents)} - {"."}
    return any(pattern.fullmatch(path) for pattern in patterns for path in paths)


def _ignored(line: str) -> re.Pattern[str]:
    """Return the paths of a line of `.dockerignore`; any path for signs with other meanings."""
    if re.search(r"[\[\\]", line):
        return re.compile(".*", re.DOTALL)
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", line.removeprefix("./"))
    signs = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(signs.get(part, re.escape(part)) for part in parts), re.DOTALL)


_HARMLESS: Final = frozenset(
    """true echo date uname id apt apt-get apk dnf microdnf yum rpm dpkg update-ca-certificates useradd groupadd
    adduser addgroup usermod groupmod""".split()  # noqa: SIM905
)
"""Programs without an effect on files of settings."""
_OF_FILES: Final = frozenset({"mkdir", "chmod", "chown", "chgrp", "rm", "touch"})
_HARMLESS_WORD: Final = re.compile(
    r"(?!.*(?:nessie|lakekeeper|config|polic|root))-?-?[\w:.,+=-]*|\+[\w,]+|/[\w-]+\.\w+"
    r"|/(?:var|tmp|usr|etc/ssl|etc/pki)(?:/(?!\.\.?(?:/|$))[\w.+@-]+)*(?:/\*?)?"
)
"""Argument without a variable, and without a path to settings."""


def is_harmless(words: Sequence[str]) -> bool:
    """Tell whether a command changes no file of settings. Names of files are absolute, other words have no slash."""
    name, *rest = words
    if name == "set":
        return all(re.fullmatch(r"-[eux]+|-o|pipefail", one) for one in rest)
    paths = [one for one in rest if not one.startswith("-")]
    of_files = paths[1:] if name in ("chmod", "chown", "chgrp") else paths
    named = name not in _OF_FILES or all(one.startswith("/") for one in of_files)
    return name in (_HARMLESS | _OF_FILES) and named and all(map(_HARMLESS_WORD.fullmatch, rest))


HEREDOC: Final = re.compile(r"\d*<<(?P<dash>-?)(?P<quote>['\"]?)(?P<name>[^\s<'\"\\$`]+)(?P=quote)")
"""Word of a step that begins a heredoc, as BuildKit reads it."""
_QUOTED: Final = re.compile(r"""\$\(\(.*?\)\)|"(?:\\.|[^"\\])*"|'[^']*'""")
_WORD: Final = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\])+""")
_MARK: Final = re.compile(r"(?<!<)<<(?!<)")
_ESCAPE: Final = re.compile(r"#\s*escape\s*=\s*(?P<sign>\S+)", re.IGNORECASE)
_CONTINUES: Final = re.compile(r"(?<!\\)\\[ \t]*$")
_WITHHEREDOCS: Final = ("RUN", "COPY", "ADD", "ONBUILD")


class DockerStep(NamedTuple):
    """Instruction of a Dockerfile, with the texts of its heredocs."""

    word: str
    rest: str
    bodies: str
    place: tuple[int, int]


def docker_steps(text: str, file: Path) -> Iterator[DockerStep]:
    """Yield the instructions. A backslash at the end joins the next line, without a blank."""
    lines = iter(enumerate(re.split(r"\r\n|\r|\n", text), 1))
    number, joined = 0, ""
    for at, line in lines:
        escape = _ESCAPE.fullmatch(line.strip())
        if escape and escape["sign"] != "\\":
            message = "`escape` gives another sign to continue lines, which is not read: write backslashes"
            raise PolicyError(message, Place(str(file), at))
        if line.lstrip().startswith("#") or not line.strip():
            continue
        number = number if joined else at
        joined += _CONTINUES.sub("", line)
        if not _CONTINUES.search(line):
            yield _step(joined.strip(), Place(str(file), number), lines)
            joined = ""
    if joined.strip():
        yield _step(joined.strip(), Place(str(file), number), lines)


def _step(line: str, place: Place, lines: Iterator[tuple[int, str]]) -> DockerStep:
    """Return an instruction, and take the bodies of its heredocs from the lines."""
    word, *rest = line.split(maxsplit=1)
    text = rest[0] if rest else ""
    bodies = ""
    for match in _heredocs(text, place) if word.upper() in _WITHHEREDOCS else ():
        body = _body(match, lines)
        if body is None:
            raise PolicyError(f"the heredoc `{match['name']}` has no end", place)
        bodies += body
    return DockerStep(word.upper(), text, bodies, (place.line or 1, 1))


def _heredocs(text: str, place: Place) -> Sequence[re.Match[str]]:
    """Return the heredocs that a step begins; raise PolicyError for one that may be none."""
    found = [match for word in _WORD.findall(text) if (match := HEREDOC.fullmatch(word))]
    if len(found) != len(_MARK.findall(_QUOTED.sub("''", text))):
        raise PolicyError("`<<` that may begin a heredoc: write blanks around, and a plain name behind", place)
    return found


def _body(match: re.Match[str], lines: Iterator[tuple[int, str]]) -> str | None:
    """Return the lines of a heredoc; None without its end."""
    found = ""
    for _, line in lines:
        if (line.lstrip("\t") if match["dash"] else line) == match["name"]:
            return found
        found += f"{line}\n"
    return None


def decoded_texts(pairs: Mapping[str, Any], file: str, setting: re.Pattern[str]) -> dict[str, Any]:
    """Return the `data` of a Kubernetes object as texts, by key; raise PolicyError for a setting in bytes."""
    found = {}
    for key, value in pairs.items():
        try:
            text = b64decode("".join(value.value.split()), validate=True).decode()
        except UnicodeDecodeError:
            if setting.fullmatch(key):
                raise PolicyError(f"`{key}` is no text in UTF-8", Place(file, *position_of(value))) from None
            continue  # a key store, no configuration
        except (ValueError, TypeError, AttributeError):
            message = f"`{key}` is no base64"
            raise PolicyError(message, Place(file, *position_of(value))) from None
        found[key] = yaml.ScalarNode(value.tag, text, value.start_mark, value.end_mark)
    return found


ASSIGNED: Final = re.compile(r"(?P<name>[A-Za-z_][\w.%-]*)=(?P<value>.*)", re.DOTALL)
"""Item of a list of variables."""


def unused_texts(
    root: Any, used: Collection[int], is_extension: Callable[[str, str], bool]
) -> Iterator[tuple[str, Any]]:
    """Yield the texts of extensions of docker compose, apart from texts with an anchor in a service.

    With each text, yield the keys above, or the variable. `used`: ids of the nodes of services.
    """
    walked: set[tuple[int, bool]] = set()
    stack: list[tuple[Any, str, bool]] = [(root, "", False)]
    while stack:
        node, above, is_below = stack.pop()
        is_unused = is_below and id(node) not in used
        if (id(node), is_unused) in walked:
            continue
        walked.add((id(node), is_unused))
        pairs = pairs_of(node)
        if "name" in pairs and "value" in pairs:
            stack.append((pairs["value"], f"{above}.{scalar(pairs['name'])}", is_unused))
        elif isinstance(node, yaml.MappingNode):
            named = [(str(key.value), value) for key, value in reversed(node.value)]
            stack += [(value, f"{above}.{key}", is_unused or is_extension(key, above)) for key, value in named]
        elif isinstance(node, yaml.SequenceNode):
            matches = [(item, ASSIGNED.fullmatch(scalar(item))) for item in reversed(node.value)]
            stack += [(item, f"{above}.{one['name']}" if one else above, is_unused) for item, one in matches]
        elif is_unused:
            yield above, node
