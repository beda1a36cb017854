"""Origins of settings: the file with line and column, a variable, or an option. Must not know any key.

Owns the nearest known name of a misspelt one, for messages.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, get_args, get_origin

from pydantic import BaseModel

from pdp.errors import ConfigError
from pdp.model.strict import position_of

Key: TypeAlias = tuple[str | int, ...]
"""Path of a key in the settings: `("authorities", "default", "engines", 0)`."""

_NAMED_KEY: Final = re.compile(r"^`([a-z_]+(?:\.[^`]+)?)`|\(((?:server|audit|store)\.[a-z]+)\)")
"""Key that the text of an error names: at its beginning, or in brackets."""


def key_text(key: Sequence[str | int]) -> str:
    """Return a key as errors name it: `authorities.default.engines.0`."""
    return ".".join(map(str, key))


@dataclass(frozen=True, slots=True)
class Origins:
    """Sources of settings. Variables and options replace values of the file, each later one those before it."""

    file: Path | None = None
    text: str = ""
    given: list[tuple[Key, str]] = field(default_factory=list)
    """Keys that variables and options set, with the names of these, in order."""
    differing: dict[Key, str] = field(default_factory=dict)
    """Secret keys with another text by the rules of YAML, with the variable or option of each."""

    def note(self, key: Key, source: str) -> None:
        """Record that a variable or an option sets a key."""
        self.given.append((key, source))

    def of(self, key: Key) -> str:
        """Return the source of a value, or the sources of a section; empty for a default."""
        for names, source in reversed(self.given):
            if key[: len(names)] == names:
                return source
        if below := dict.fromkeys(source for names, source in self.given if names[: len(key)] == key):
            return ", ".join(below)
        found = position_of(self.text, key, keys=True) if self.file else None
        return f"{self.file}:{found[0]}:{found[1]}" if found and found[2] == len(key) else ""

    def nearest(self, key: Key) -> str:
        """Return the source of a value, else of the nearest section around it, else the file."""
        while key:
            if source := self.of(key):
                return source
            key = key[:-1]
        return str(self.file) if self.file else ""

    def error(self, key: Key, message: str) -> ConfigError:
        """Return an error whose text ends with the source of a key. `message` names the key."""
        return self.errors([(key, message)])

    def errors(self, problems: Iterable[tuple[Key, str]]) -> ConfigError:
        """Return one error for several problems, each with its key and a message that names the key."""
        located = [(self.nearest(key), without_url_secrets(message)) for key, message in problems]
        texts = (f"{message} ({source})" if source else message for source, message in located)
        return ConfigError("; ".join(texts), located)

    def place_named_in(self, message: str) -> str:
        """Return the source of the key that a message names; empty if it names none."""
        named = _NAMED_KEY.search(message)
        return self.nearest(tuple((named[1] or named[2]).split("."))) if named else ""

    def complete(self, error: ConfigError) -> ConfigError:
        """Return an error with the source of the key that its text names, if the error has no source yet."""
        place = self.place_named_in(str(error))
        if len(error.problems) > 1 or error.problems[0][0] or not place:
            return error
        return ConfigError(f"{error} ({place})", [(place, str(error))])


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


def every_key(annotation: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield all keys of the sections of an annotation. `<name>` stands for a name in a map."""
    for form in _forms(annotation):
        if get_origin(form) is tuple:
            continue
        if get_origin(form) is Mapping:
            yield from every_key(get_args(form)[1], (*above, "<name>"))
            continue
        for name, info in form.model_fields.items():
            yield (*above, name)
            yield from every_key(info.annotation, (*above, name))


def spelt_key(annotation: Any, words: Sequence[str]) -> Sequence[str] | None:
    """Return the key spelt by words in lower case, in any division into names; None for words without a key.

    Names in maps are as short as possible. Names of sections are found with or without `_` inside. A place in a list
    stands for the list.
    """
    if not words:
        return ()
    for form in _forms(annotation):
        if get_origin(form) is tuple:
            return () if words[0].isdigit() else None
        fields = {} if get_origin(form) is Mapping else form.model_fields
        known = {name.replace("_", ""): (name, field.annotation) for name, field in fields.items()}
        for length in range(1, len(words) + 1):
            any_name = ("", None) if fields else ("_".join(words[:length]), get_args(form)[1])
            name, below = known.get("".join(words[:length]), any_name)
            if name and (rest := spelt_key(below, words[length:])) is not None:
                return (name, *rest)
    return None


def _forms(annotation: Any) -> Iterator[Any]:
    """Yield the sections, maps and lists of an annotation, without other values."""
    is_section = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    if is_section or get_origin(annotation) in (Mapping, tuple):
        yield annotation
    else:
        for part in get_args(annotation):
            yield from _forms(part)


def _section(annotation: Any) -> type[BaseModel] | None:
    """Return the section that an annotation is, or holds beside None and texts."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Mapping, tuple):
        return None
    return next((found for part in get_args(annotation) if (found := _section(part))), None)


_MASK: Final = "***"
_URL: Final = re.compile(r"\b(?!sqlite:)([a-z][\w+.-]*://)([^\s`'\"<>]+)", re.IGNORECASE)


def without_url_secrets(text: str) -> str:
    """Return a text whose URLs have no user, query and fragment: any of them may be a secret."""
    return _URL.sub(_shown_url, text)


def _shown_url(match: re.Match[str]) -> str:
    user, _, rest = match[2].rpartition("@")
    place = re.split("[?#]", rest, maxsplit=1)[0]
    sign, hidden = rest[len(place) : len(place) + 1], rest[len(place) + 1 :]
    return f"{match[1]}{_MASK + '@' if user else ''}{place}{sign}{_MASK if hidden else ''}"
