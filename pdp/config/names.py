"""Nearest known names of misspelt ones, and the keys that a section knows."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel

_MOST_SHOWN = 10
"""Most known names in a message."""


def suggest(name: str, known: Collection[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known one, or all if they are few."""
    folded = {each.casefold(): each for each in sorted(known)}
    near = difflib.get_close_matches(name.casefold(), folded, 1)
    if near:
        return f", the nearest known is `{folded[near[0]]}`"
    if not known or len(known) > _MOST_SHOWN:
        return ""
    return f", there {'are' if len(known) > 1 else 'is'} {', '.join(f'`{each}`' for each in sorted(known))}"


def known_keys(model: type[BaseModel], key: Sequence[str | int]) -> frozenset[str]:
    """Return the keys of the section at a path; empty if there is none."""
    annotation: Any = model
    for step in key:
        section = _section(annotation)
        if isinstance(step, str) and section and step in section.model_fields:
            annotation = section.model_fields[step].annotation
        else:  # a name in a map, or a place in a list
            annotation = next((part for part in reversed(get_args(annotation)) if _section(part)), None)
    section = _section(annotation)
    return frozenset(section.model_fields) if section else frozenset()


def _section(annotation: Any) -> type[BaseModel] | None:
    """Return the section that an annotation is, or holds beside None and texts."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Mapping, tuple):
        return None
    return next((found for part in get_args(annotation) if (found := _section(part))), None)
