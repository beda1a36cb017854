"""Extension `strings`. Positions count code points, and the length of every result is bounded.

Source: the string extension of cel-go (`ext/README.md`, "Strings") and its conformance tests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from pdp.cel.arithmetic import string_from_bool, string_from_double
from pdp.cel.containers import map_keys
from pdp.cel.functions import FunctionRow, Overload
from pdp.cel.times import format_duration, format_timestamp
from pdp.cel.types import DYN, INT, STRING, Type, list_of
from pdp.cel.values import KINDS, RuleError, Value

MAX_TEXT: Final = 1 << 20
"""Most characters of a result of this extension."""
_MAX_PRECISION: Final = 100
_WHITESPACE: Final = (
    "\t\n\v\f\r \u0085\u00a0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_LOWER: Final = {code - 32: code for code in _UPPER}
_QUOTE_ESCAPES: Final = str.maketrans(
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


def _check_size(size: int) -> None:
    if size > MAX_TEXT:
        raise RuleError(f"text longer than {MAX_TEXT} characters")


def _check_position(text: str, index: int) -> int:
    if not 0 <= index <= len(text):
        raise RuleError("index out of range")
    return index


def char_at(text: str, index: int) -> str:
    """Compute `text.charAt(index)`; "" at the end. Raise RuleError for an index out of range."""
    return text[_check_position(text, index) : index + 1]


def index_of(text: str, part: str, start: int = 0) -> int:
    """Compute `text.indexOf(part, start)`, -1 if absent. Raise RuleError for a start out of range."""
    return text.find(part, _check_position(text, start))


def last_index_of(text: str, part: str, start: int | None = None) -> int:
    """Compute `text.lastIndexOf(part, start)`: the last occurrence that begins at or before `start`, or -1.

    Raise RuleError for a start out of range.
    """
    end = len(text) if start is None else _check_position(text, start) + len(part)
    return text.rfind(part, 0, end)


def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    """Compute `text.replace(old, new, limit)`; a negative limit means all. Raise RuleError beyond MAX_TEXT."""
    count = text.count(old) if limit < 0 else min(limit, text.count(old))
    _check_size(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, count)


def split(text: str, separator: str, limit: int = -1) -> tuple[str, ...]:
    """Compute `text.split(separator, limit)` into at most `limit` texts. A negative limit means no limit."""
    if limit == 0:
        return ()
    if separator:
        return tuple(text.split(separator, limit - 1 if limit > 0 else -1))
    if limit < 0 or limit >= len(text):
        return tuple(text)
    return (*text[: limit - 1], text[limit - 1 :])


def substring(text: str, start: int, end: int | None = None) -> str:
    """Compute `text.substring(start, end)`. Raise RuleError for a position out of range or an end before the start."""
    stop = len(text) if end is None else _check_position(text, end)
    if _check_position(text, start) > stop:
        raise RuleError("the substring ends before it starts")
    return text[start:stop]


def join(items: tuple[Value, ...], separator: str = "") -> str:
    """Compute `items.join(separator)`. Raise RuleError for an item that is no string, or beyond MAX_TEXT."""
    if not all(type(item) is str for item in items):
        raise RuleError("no such overload: join of a list that holds other than strings")
    _check_size(sum(map(len, items)) + len(separator) * len(items))
    return separator.join(items)


def quote(text: str) -> str:
    """Compute `strings.quote(text)`, a CEL string literal. A lone surrogate becomes U+FFFD."""
    return f'"{text.translate(_QUOTE_ESCAPES)}"'


def format_value(value: Value) -> str:
    """Format any value for the clause `%s`. Maps are in the order of the texts of their keys."""
    kind = KINDS[type(value)]
    if kind == "list":
        return f"[{', '.join(map(format_value, value))}]"
    if kind == "map":
        pairs = sorted(
            (format_value(key), format_value(item)) for key, item in zip(map_keys(value), value.values(), strict=True)
        )
        return f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}"
    return _FORMATTERS[kind](value)


def _format_double(value: float) -> str:
    return _format_special(value) or string_from_double(value)


def _format_special(value: float) -> str:
    """Return the text of NaN or an infinity, or "" for any other number."""
    if math.isfinite(value):
        return ""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


_FORMATTERS: Final[dict[str, Callable[[Any], str]]] = {
    "string": str,
    "int": str,
    "uint": str,
    "double": _format_double,
    "bool": string_from_bool,
    "null_type": lambda value: "null",
    "bytes": lambda value: value.decode("utf-8", "replace"),
    "timestamp": format_timestamp,
    "duration": format_duration,
    "type": lambda value: value.name,
}


def _format_decimal(value: Value, precision: int) -> str:
    if type(value) is float and _format_special(value):
        return _format_special(value)
    return str(_require_kind(value, "int", "uint"))


def _require_kind(value: Value, *kinds: str) -> Any:
    if KINDS[type(value)] not in kinds:
        raise RuleError(f"the formatting clause does not format {KINDS[type(value)]}")
    return value


def _format_fixed(value: Value, precision: int) -> str:
    number = float(_require_kind(value, "int", "uint", "double"))
    return _format_special(number) or f"{number:.{precision}f}"


def _format_scientific(value: Value, precision: int) -> str:
    number = float(_require_kind(value, "int", "uint", "double"))
    return _format_special(number) or f"{number:.{precision}e}"


def _format_hexadecimal(value: Value, precision: int) -> str:
    _require_kind(value, "int", "uint", "string", "bytes")
    if isinstance(value, int):
        return f"{int(value):x}"
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return data.hex()


_CLAUSES: Final[dict[str, Callable[[Value, int], str]]] = {
    "s": lambda value, precision: format_value(value),
    "d": _format_decimal,
    "f": _format_fixed,
    "e": _format_scientific,
    "b": lambda value, precision: f"{int(_require_kind(value, 'int', 'uint', 'bool')):b}",
    "o": lambda value, precision: f"{int(_require_kind(value, 'int', 'uint')):o}",
    "x": _format_hexadecimal,
    "X": lambda value, precision: _format_hexadecimal(value, precision).upper(),
}


def format_text(template: str, args: tuple[Value, ...]) -> str:
    """Compute `template.format(args)`, as in `'%s and %d'.format([...])`.

    Raise RuleError for an unknown clause, too few arguments, an argument of a wrong kind, or beyond MAX_TEXT.
    """
    parts, last, used, size = [], 0, 0, 0
    for match in _CLAUSE.finditer(template):
        parts.append(template[last : match.start()])
        last = match.end()
        if match[0] == "%%":
            parts.append("%")
            continue
        parts.append(_format_clause(match, args, used))
        used += 1
        size += len(parts[-1])
        _check_size(size)
    return "".join([*parts, template[last:]])


def _format_clause(match: re.Match[str], args: tuple[Value, ...], used: int) -> str:
    formatter = _CLAUSES.get(match[2] or "")
    if formatter is None:
        raise RuleError("unrecognized formatting clause")
    if used >= len(args):
        raise RuleError("more formatting clauses than values")
    precision = int(match[1] or 6)
    if precision > _MAX_PRECISION:
        raise RuleError(f"precision above {_MAX_PRECISION}")
    return formatter(args[used], precision)


def string_functions() -> Iterable[FunctionRow]:
    """Yield the overloads of the extension, one per number of optional arguments."""
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
        ("trim", (STRING,), 0, STRING, lambda text: text.strip(_WHITESPACE)),
        ("reverse", (STRING,), 0, STRING, lambda text: text[::-1]),
    )
    for name, params, optional, result, run in signatures:
        for count in range(len(params) - optional, len(params) + 1):
            yield name, True, Overload(params[:count], result, run, costly=True)
    yield "strings.quote", False, Overload((STRING,), STRING, quote, costly=True)
