"""Every key of the settings, from their types, and a configuration that has them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from pdp.config.settings import Settings

NAME = "<name>"
"""Key of a map, which the configuration chooses."""


class SettingKey(NamedTuple):
    """Key, and the annotation of its value. NAME stands for the keys of maps, 0 for places of lists."""

    path: tuple[str | int, ...]
    annotation: Any

    def text(self) -> str:
        return ".".join(map(str, self.path))


def setting_keys(annotation: Any = Settings, path: tuple[str | int, ...] = ()) -> Iterator[SettingKey]:
    """Yield every key, sections included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            yield SettingKey((*path, name), field.annotation)
            yield from setting_keys(field.annotation, (*path, name))
        return
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Mapping:
        yield from setting_keys(arguments[1], (*path, NAME))
    elif origin is tuple:
        yield from setting_keys(arguments[0], (*path, 0))
    else:
        for argument in arguments:
            if not isinstance(argument, str):
                yield from setting_keys(argument, path)


def holds_text(annotation: Any) -> bool:
    """Tell whether a value is a text, or a list or map of texts, that no list of words limits."""
    if annotation is str:
        return True
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return False
    if getattr(annotation, "__name__", "") == "Literal" or str(get_origin(annotation)) == "typing.Literal":
        return False
    arguments = get_args(annotation)[1:] if get_origin(annotation) is Mapping else get_args(annotation)
    return any(holds_text(part) for part in arguments if not isinstance(part, str))
