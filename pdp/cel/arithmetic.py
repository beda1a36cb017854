"""Arithmetic within 64 bits, and conversions between types.

Every function raises RuleError for invalid arguments and lets no other exception out. Source: the CEL specification
(langdef.md), "Overflow", "Arithmetic Operators" and "Types and Conversions".
"""

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


def _check_int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise RuleError(_OVERFLOW)


def _check_uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise RuleError("unsigned integer overflow")


def add_int(a: int, b: int) -> int:
    """Compute `a + b` of ints. Raise RuleError on overflow."""
    return _check_int(a + b)


def sub_int(a: int, b: int) -> int:
    """Compute `a - b` of ints. Raise RuleError on overflow."""
    return _check_int(a - b)


def mul_int(a: int, b: int) -> int:
    """Compute `a * b` of ints. Raise RuleError on overflow."""
    return _check_int(a * b)


def div_int(a: int, b: int) -> int:
    """Compute `a / b` of ints, rounded towards zero. Raise RuleError on overflow or division by zero."""
    if b == 0:
        raise RuleError("division by zero")
    # Python's `//` rounds down, so the quotient is of the absolute values.
    return _check_int(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def mod_int(a: int, b: int) -> int:
    """Compute `a % b` of ints, with the sign of `a`. Raise RuleError for modulus zero, or if `a / b` overflows."""
    if b == 0:
        raise RuleError("modulus by zero")
    if a == INT_MIN and b == -1:
        raise RuleError(_OVERFLOW)
    # Python's `%` has the sign of the divisor, so the remainder is of the absolute values.
    return -(-a % abs(b)) if a < 0 else a % abs(b)


def neg_int(a: int) -> int:
    """Compute `-a` of an int. Raise RuleError for the smallest int."""
    return _check_int(-a)


def add_uint(a: int, b: int) -> Uint:
    """Compute `a + b` of uints. Raise RuleError on overflow."""
    return _check_uint(int(a) + int(b))


def sub_uint(a: int, b: int) -> Uint:
    """Compute `a - b` of uints. Raise RuleError below zero."""
    return _check_uint(int(a) - int(b))


def mul_uint(a: int, b: int) -> Uint:
    """Compute `a * b` of uints. Raise RuleError on overflow."""
    return _check_uint(int(a) * int(b))


def div_uint(a: int, b: int) -> Uint:
    """Compute `a / b` of uints, rounded down. Raise RuleError on division by zero."""
    if b == 0:
        raise RuleError("division by zero")
    return Uint(int(a) // int(b))


def mod_uint(a: int, b: int) -> Uint:
    """Compute `a % b` of uints. Raise RuleError for modulus zero."""
    if b == 0:
        raise RuleError("modulus by zero")
    return Uint(int(a) % int(b))


def div_double(a: float, b: float) -> float:
    """Compute `a / b` of doubles as IEEE 754 defines: division by zero gives NaN or an infinity."""
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def int_from_uint(value: int) -> int:
    """Compute `int(uint)`. Raise RuleError on overflow."""
    return _check_int(int(value))


def int_from_double(value: float) -> int:
    """Compute `int(double)`, rounded towards zero. Raise RuleError outside the range.

    The range excludes the smallest and the largest int ("Overflow"): as doubles, these are equal to numbers out of
    range.
    """
    if not INT_MIN < value < float(INT_MAX):
        raise RuleError("integer out of range")
    return int(value)


def int_from_string(text: str) -> int:
    """Compute `int(string)` of decimal digits with an optional sign. Raise RuleError for other texts or overflow."""
    if len(text) > 32 or not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        raise RuleError("not an integer")
    return _check_int(int(text))


def uint_from_int(value: int) -> Uint:
    """Compute `uint(int)`. Raise RuleError below zero."""
    return _check_uint(value)


def uint_from_double(value: float) -> Uint:
    """Compute `uint(double)`, rounded towards zero. Raise RuleError below zero and from 2**64."""
    if not 0 <= value < float(UINT_MAX):
        raise RuleError("unsigned integer out of range")
    return Uint(int(value))


def uint_from_string(text: str) -> Uint:
    """Compute `uint(string)` of decimal digits. Raise RuleError for other texts or overflow."""
    if len(text) > 32 or not re.fullmatch(r"\d+", text, re.ASCII):
        raise RuleError("not an unsigned integer")
    return _check_uint(int(text))


def double_from_string(text: str) -> float:
    """Compute `double(string)` of a decimal number, `nan`, `inf` or `infinity`. Raise RuleError for other texts."""
    if len(text) <= 512 and (_DECIMAL.fullmatch(text) or _SPECIAL.fullmatch(text)):
        return float(text)
    raise RuleError("not a double")


def bool_from_string(text: str) -> bool:
    """Compute `bool(string)` of the texts that Go's `strconv.ParseBool` accepts. Raise RuleError for other texts."""
    if text not in _BOOLS:
        raise RuleError("not a boolean")
    return _BOOLS[text]


def string_from_bytes(data: bytes) -> str:
    """Compute `string(bytes)`. Raise RuleError for invalid UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RuleError("invalid UTF-8") from None


def bytes_from_string(text: str) -> bytes:
    """Compute `bytes(string)`, the UTF-8 of the text. Raise RuleError for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise RuleError("invalid UTF-8: a lone surrogate") from None


def string_from_double(value: float) -> str:
    """Compute `string(double)`: the shortest text that reads back as the same double.

    The text has an exponent below 1e-4 and from 1e21, as in Go.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if 1e16 <= abs(value) < 1e21:
        return f"{value:.0f}"
    return repr(value).removesuffix(".0")


def string_from_bool(value: bool) -> str:
    """Compute `string(bool)`."""
    return "true" if value else "false"
