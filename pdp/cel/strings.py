"""CEL's `strings` extension, positions in code points; results are bounded, whatever is asked for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from pdp.cel.arithmetic import string_from_bool, string_from_double
from pdp.cel.functions import FunctionKey, Overload
from pdp.cel.times import show_duration, show_timestamp
from pdp.cel.types import DYN, INT, STRING, Type, list_of
from pdp.cel.values import KINDS, RuleError, Value, keys

MAX_TEXT: Final = 1 << 20
"""Characters of any result of this extension."""
_MAX_PRECISION: Final = 100
_SPACE: Final = (
    "\t\n\v\f\r \u0085\u00a0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_LOWER: Final = {code - 32: code for code in _UPPER}
_QUOTED: Final = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
    | {chr(code): "\ufffd" for code in range(0xD800, 0xE000)}
)
_CLAUSE: Final = re.compile(r"%(?:%|(?:\.([0-9]{1,6}))?(.)|())", re.DOTALL)


def _bounded(size: int) -> None:
    if size > MAX_TEXT:
        raise RuleError(f"text longer than {MAX_TEXT} characters")


def _position(text: str, index: int) -> int:
    if not 0 <= index <= len(text):
        raise RuleError(f"index out of range: {index}")
    return index


def char_at(text: str, index: int) -> str:
    return text[_position(text, index) : index + 1]


def index_of(text: str, part: str, start: int = 0) -> int:
    return text.find(part, _position(text, start))


def last_index_of(text: str, part: str, start: int | None = None) -> int:
    """The last occurrence that begins at or before `start`."""
    end = len(text) if start is None else _position(text, start) + len(part)
    return text.rfind(part, 0, end)


def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old) if limit < 0 else min(limit, text.count(old))
    _bounded(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, count)


def split(text: str, separator: str, limit: int = -1) -> tuple[str, ...]:
    if limit == 0:
        return ()
    if separator:
        return tuple(text.split(separator, limit - 1 if limit > 0 else -1))
    if limit < 0 or limit >= len(text):
        return tuple(text)
    return (*text[: limit - 1], text[limit - 1 :])


def substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else _position(text, end)
    if _position(text, start) > stop:
        raise RuleError(f"invalid substring range: {start}, {stop}")
    return text[start:stop]


def join(items: tuple[Value, ...], separator: str = "") -> str:
    if not all(type(item) is str for item in items):
        raise RuleError("no such overload: join of a list that holds other than strings")
    _bounded(sum(map(len, items)) + len(separator) * len(items))
    return separator.join(items)


def quote(text: str) -> str:
    return f'"{text.translate(_QUOTED)}"'


def show(value: Value) -> str:
    """`%s` of any value; maps in the order of their keys' text."""
    kind = KINDS[type(value)]
    if kind == "list":
        return f"[{', '.join(map(show, value))}]"
    if kind == "map":
        pairs = sorted((show(key), show(item)) for key, item in zip(keys(value), value.values(), strict=True))
        return f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}"
    return _SHOW[kind](value)


def _double(value: float) -> str:
    return _special(value) or string_from_double(value)


def _special(value: float) -> str:
    if math.isfinite(value):
        return ""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_SHOW: Final[dict[str, Callable[[Any], str]]] = {
    "string": str,
    "int": str,
    "uint": str,
    "double": _double,
    "bool": string_from_bool,
    "null_type": lambda value: "null",
    "bytes": lambda value: value.decode("utf-8", "replace"),
    "timestamp": show_timestamp,
    "duration": show_duration,
    "type": lambda value: value.name,
}


def _decimal(value: Value, precision: int) -> str:
    if type(value) is float and _special(value):
        return _special(value)
    return str(_only(value, "d", "int", "uint"))


def _only(value: Value, clause: str, *kinds: str) -> Any:
    if KINDS[type(value)] not in kinds:
        raise RuleError(f"%{clause} does not format {KINDS[type(value)]}")
    return value


def _fixed(value: Value, precision: int) -> str:
    number = float(_only(value, "f", "int", "uint", "double"))
    return _special(number) or f"{number:.{precision}f}"


def _scientific(value: Value, precision: int) -> str:
    number = float(_only(value, "e", "int", "uint", "double"))
    return _special(number) or f"{number:.{precision}e}"


def _hexadecimal(value: Value, precision: int) -> str:
    _only(value, "x", "int", "uint", "string", "bytes")
    if isinstance(value, int):
        return f"{int(value):x}"
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return data.hex()


_CLAUSES: Final[dict[str, Callable[[Value, int], str]]] = {
    "s": lambda value, precision: show(value),
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": lambda value, precision: f"{int(_only(value, 'b', 'int', 'uint', 'bool')):b}",
    "o": lambda value, precision: f"{int(_only(value, 'o', 'int', 'uint')):o}",
    "x": _hexadecimal,
    "X": lambda value, precision: _hexadecimal(value, precision).upper(),
}


def format_text(template: str, args: tuple[Value, ...]) -> str:
    """`'%s and %d'.format([...])`."""
    parts, last, used, size = [], 0, 0, 0
    for match in _CLAUSE.finditer(template):
        parts.append(template[last : match.start()])
        last = match.end()
        if match[0] == "%%":
            parts.append("%")
            continue
        parts.append(_clause(match, args, used))
        used += 1
        size += len(parts[-1])
        _bounded(size)
    return "".join([*parts, template[last:]])


def _clause(match: re.Match[str], args: tuple[Value, ...], used: int) -> str:
    show_one = _CLAUSES.get(match[2] or "")
    if show_one is None:
        raise RuleError(f"unrecognized formatting clause `{match[0]}`")
    if used >= len(args):
        raise RuleError(f"index {used} out of range")
    precision = int(match[1] or 6)
    if precision > _MAX_PRECISION:
        raise RuleError(f"precision above {_MAX_PRECISION}")
    return show_one(args[used], precision)


def rows() -> Iterable[tuple[str, bool, Overload]]:
    """The extension's part of the function table."""
    words = list_of(STRING)
    signatures: tuple[tuple[str, tuple[Type, ...], int, Type, Callable[..., Value]], ...] = (
        ("charAt", (STRING, INT), 0, STRING, char_at),
        ("indexOf", (STRING, STRING, INT), 1, INT, index_of),
        ("lastIndexOf", (STRING, STRING, INT), 1, INT, last_index_of),
        ("replace", (STRING, STRING, STRING, INT), 1, STRING, replace),
        ("split", (STRING, STRING, INT), 1, words, split),
        ("substring", (STRING, INT, INT), 1, STRING, substring),
        ("join", (words, STRING), 1, STRING, join),
        ("format", (STRING, list_of(DYN)), 0, STRING, format_text),
        ("lowerAscii", (STRING,), 0, STRING, lambda text: text.translate(_LOWER)),
        ("upperAscii", (STRING,), 0, STRING, lambda text: text.translate(_UPPER)),
        ("trim", (STRING,), 0, STRING, lambda text: text.strip(_SPACE)),
        ("reverse", (STRING,), 0, STRING, lambda text: text[::-1]),
    )
    for name, params, optional, result, run in signatures:
        for count in range(len(params) - optional, len(params) + 1):
            yield name, True, Overload(params[:count], result, run, costly=True)
    key: FunctionKey = ("strings.quote", False)
    yield *key, Overload((STRING,), STRING, quote, costly=True)
