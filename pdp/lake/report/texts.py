"""Texts of the page: names from the audit made safe and short, numbers and times for people, boxes and labels.

Names come from clients. Control characters and signs that change the direction of writing become visible escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from itertools import takewhile
from typing import Any, Final, NamedTuple

from markupsafe import Markup

NOTHING: Final = "\u2013"
"""Dash in the place of a missing value."""
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_KIND: Final = re.compile(r"user:[a-z0-9-]+~|role:|(?:namespace|table|view|generic_table|dataset):[^/]+/|warehouse:")
_LONGEST: Final = 600
"""Characters of a text that the page shows."""


def show(value: Any) -> Any:
    """Return a value for the page: of a text, control characters as escapes, and not more than the first characters.

    Markup of the templates stays as it is. The environment escapes the result for HTML.
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return escape(value if len(value) <= _LONGEST else value[:_LONGEST] + "…")


def escape(text: str) -> str:
    """Return a text with control characters, and signs that change the direction of writing, as visible escapes."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    code = ord(sign)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def clip(text: str, most: int) -> str:
    """Return a text of at most this many characters, with its end, which tells names apart."""
    shown = str(show(text))
    return shown if len(shown) <= most else f"{shown[: most // 3]}…{shown[len(shown) - (most - most // 3 - 1) :]}"


def number(value: float | None) -> str:
    """Return a number with separators."""
    return NOTHING if value is None else f"{value:,.0f}"


def share(value: float | None) -> str:
    """Return a share as a percentage that hides no small part."""
    if value is None:
        return NOTHING
    percent = value * 100
    return f"{percent:.2f} %" if percent and (percent < 1 or 99 < percent < 100) else f"{percent:.0f} %"


def day(value: date | None) -> str:
    """Return a day such as `1 Oct 2026`."""
    if value is None:
        return NOTHING
    value = value.astimezone(UTC) if isinstance(value, datetime) else value
    return f"{value.day} {_MONTHS[value.month - 1]} {value.year}"


def moment(value: datetime | None) -> str:
    """Return a time such as `1 Oct 2026, 08:15`, in UTC."""
    return NOTHING if value is None else f"{day(value)}, {value.astimezone(UTC):%H:%M}"


def duration(micros: float) -> str:
    """Return a short time such as `79 µs` or `1.2 ms`."""
    return (
        f"{micros:.0f} µs"
        if micros < 1000
        else f"{micros / 1000:.2g} ms"
        if micros < 100_000
        else f"{micros / 1e6:.2g} s"
    )


def plural(count: int, noun: str, several: str = "") -> str:
    """Return a count with its noun, such as `1 grant` or `2,000 grants`."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def name_parts(name: str) -> tuple[str, str]:
    """Return a name in two parts: the kind with what most names share, and the rest."""
    found = _KIND.match(name)
    return (found[0], name[found.end() :]) if found else ("", name)


class ShortNames:
    """Short forms of names: without the parts that all names of the report share, as long as they stay different."""

    def __init__(self, principals: Iterable[str], objects: Iterable[str]) -> None:
        known = [name for name in principals if name]
        self._user = _shared([name for name in known if name.startswith("user:")], "~")
        paths = [name.partition(":")[2] for name in objects if name and ":" in name]
        self._warehouse = _shared(paths, "/")

    def principal(self, name: str | None) -> str:
        """Return the short form of a principal."""
        return (name or "").removeprefix(self._user) if self._user else (name or "")

    def object(self, name: str | None) -> str:
        """Return the short form of an object: the path, without the warehouse if there is one alone."""
        return self.path((name or "").partition(":")[2] or (name or ""))

    def path(self, path: str) -> str:
        """Return the short form of a path."""
        return path.removeprefix(self._warehouse) if self._warehouse else path


def _shared(names: list[str], end: str) -> str:
    """Return the beginning up to `end` that all names share; empty if there is none."""
    first, last = min(names, default=""), max(names, default="")
    common = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False)))
    return common[: common.find(end) + 1] if end in common else ""


WIDTH: Final = 960
"""Width of a drawing."""


class Box(NamedTuple):
    """Rectangle with a class of its colour, and a text for the pointer."""

    x: float
    y: float
    width: float
    height: float
    style: str = ""
    title: str = ""
    text: str = ""


class Label(NamedTuple):
    """Text at a place."""

    x: float
    y: float
    text: str


class Tick(NamedTuple):
    """Line of a scale."""

    y: float
    text: str
