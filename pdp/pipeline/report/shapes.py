"""Shapes that several charts have, in places of a drawing. Pure; the templates draw, and the styles colour."""

from __future__ import annotations

from typing import Final, NamedTuple

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
