"""Arithmetic within 64 bits, and conversions between the types; both raise RuleError, never anything of Python's."""

from __future__ import annotations

import math
import re
from typing import Final

from pdp.cel.values import INT_MAX, INT_MIN, UINT_MAX, RuleError, Uint

_OVERFLOW: Final = "integer overflow"
_DECIMAL: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_SPECIAL: Final = re.compile(r"([+-]?)(nan|inf|infinity)", re.IGNORECASE | re.ASCII)
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "false", "FALSE", "False"), False),
}


def _int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise RuleError(_OVERFLOW)


def _uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise RuleError("unsigned integer overflow")


def add_int(a: int, b: int) -> int:
    return _int(a + b)


def sub_int(a: int, b: int) -> int:
    return _int(a - b)


def mul_int(a: int, b: int) -> int:
    return _int(a * b)


def div_int(a: int, b: int) -> int:
    """Truncates towards zero."""
    if b == 0:
        raise RuleError("division by zero")
    return _int(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def mod_int(a: int, b: int) -> int:
    """Takes the sign of the dividend; overflows where the division would."""
    if b == 0:
        raise RuleError("modulus by zero")
    if a == INT_MIN and b == -1:
        raise RuleError(_OVERFLOW)
    return -(-a % abs(b)) if a < 0 else a % abs(b)


def neg_int(a: int) -> int:
    return _int(-a)


def add_uint(a: int, b: int) -> Uint:
    return _uint(int(a) + int(b))


def sub_uint(a: int, b: int) -> Uint:
    return _uint(int(a) - int(b))


def mul_uint(a: int, b: int) -> Uint:
    return _uint(int(a) * int(b))


def div_uint(a: int, b: int) -> Uint:
    if b == 0:
        raise RuleError("division by zero")
    return Uint(int(a) // int(b))


def mod_uint(a: int, b: int) -> Uint:
    if b == 0:
        raise RuleError("modulus by zero")
    return Uint(int(a) % int(b))


def div_double(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def int_from_uint(value: int) -> int:
    return _int(int(value))


def int_from_double(value: float) -> int:
    """Truncates; the range excludes both ends, which no double tells from what lies beyond."""
    if not INT_MIN < value < float(INT_MAX):
        raise RuleError("integer out of range")
    return int(value)


def int_from_string(text: str) -> int:
    if len(text) > 32 or not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        raise RuleError(f"not an integer: `{text:.40}`")
    return _int(int(text))


def uint_from_int(value: int) -> Uint:
    return _uint(value)


def uint_from_double(value: float) -> Uint:
    if not -1 < value < float(UINT_MAX) or value < 0:
        raise RuleError("unsigned integer out of range")
    return Uint(int(value))


def uint_from_string(text: str) -> Uint:
    if len(text) > 32 or not re.fullmatch(r"\d+", text, re.ASCII):
        raise RuleError(f"not an unsigned integer: `{text:.40}`")
    return _uint(int(text))


def double_from_string(text: str) -> float:
    if len(text) <= 512 and (_DECIMAL.fullmatch(text) or _SPECIAL.fullmatch(text)):
        return float(text)
    raise RuleError(f"not a double: `{text:.40}`")


def bool_from_string(text: str) -> bool:
    if text not in _BOOLS:
        raise RuleError(f"not a boolean: `{text:.40}`")
    return _BOOLS[text]


def string_from_bytes(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RuleError("invalid UTF-8") from None


def bytes_from_string(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise RuleError("invalid UTF-8: a lone surrogate") from None


def string_from_double(value: float) -> str:
    """The shortest text that reads back, with an exponent below 1e-4 and from 1e21, as Go has it."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if 1e16 <= abs(value) < 1e21:
        return f"{value:.0f}"
    return repr(value).removesuffix(".0")


def string_from_bool(value: bool) -> str:
    return "true" if value else "false"
