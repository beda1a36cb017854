"""Secrets among the settings: their keys and their files. Messages quote no secret.

A type with the mark `Secret` makes a key secret. Variables and options give such a key to the letter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_origin

import yaml
from pydantic import BaseModel

from pdp.config.files import make_private_folder, open_private_file
from pdp.config.origins import Key, Origins, key_text
from pdp.config.section import Secret
from pdp.config.settings import Settings
from pdp.errors import ConfigError
from pdp.model import strict

_ANY: Final = "*"
"""Step of a pattern for each name of a map."""
_SECRET_NAME: Final = re.compile(r"(?i)secret|password|token|credential|key")
"""Part of the name of a secret among the properties of a lake."""
_MEMORY: Final = "literal-secrets"
"""File with the keys whose change of reading an operator has seen."""


class SecretKey(NamedTuple):
    """Path and mark of a secret key. `has_file_key`: a key of the settings names the file, for a later reader."""

    path: tuple[str, ...]
    mark: Secret
    has_file_key: bool


def secret_of(key: Sequence[str | int]) -> Secret | None:
    """Return the mark of a secret key; None for any other key."""
    for secret in secret_keys():
        path = secret.path
        if len(path) == len(key) and all(step in (_ANY, name) for step, name in zip(path, key, strict=True)):
            return secret.mark
    in_properties = len(key) == 4 and key[0] == "lakes" and key[2] in ("properties", "spark")
    return Secret() if in_properties and _SECRET_NAME.search(str(key[-1])) else None


@cache
def secret_keys() -> tuple[SecretKey, ...]:
    """Return the secret keys of the settings. `*` stands for each name of a map."""
    return tuple(_marked(Settings, ()))


def _marked(section: type[BaseModel], path: tuple[str, ...]) -> Iterator[SecretKey]:
    for name, field in section.model_fields.items():
        at, has_file_key = (*path, name), f"{name}_file" in section.model_fields
        for below, part in _parts(field.annotation, at):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _marked(part, below)
        marks = (part for _, part in _parts(field.annotation, at) if isinstance(part, Secret))
        yield from (SecretKey(at, mark, has_file_key) for mark in (*field.metadata, *marks) if isinstance(mark, Secret))


def _parts(annotation: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the parts of a type that have no parts, and marks, each with its path."""
    parts = get_args(annotation)
    if not parts:
        yield path, annotation
    below = (*path, _ANY) if get_origin(annotation) in (Mapping, tuple) else path
    for part in parts:
        yield from _parts(part, below)


def differs_in_yaml(text: str) -> bool:
    """Tell whether YAML reads a text as another text or as null.

    Earlier versions refused texts without a reading as text. With a differing text they ran with another secret.
    """
    try:
        value = strict.load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return False
    return value is None or (isinstance(value, str) and value != text)


def require_seen(settings: Settings) -> None:
    """Raise ConfigError if a secret is read in another way than by earlier versions, at the first start only.

    A file in the folder of the audit, else of the database, remembers the keys. Without a folder each start stops.
    """
    differing = settings.origins.differing
    folder = settings.audit.folder or (str(file.parent) if (file := settings.sqlite_file()) else None)
    place = None if folder is None else settings.path(folder) / _MEMORY
    unseen = {key_text(key): source for key, source in differing.items()} if differing else {}
    for key in _seen(place) if unseen else ():
        unseen.pop(key, None)
    if not unseen:
        return
    if place is not None:
        _remember(place, unseen)
    names = ", ".join(f"`{key}` ({source})" for key, source in sorted(unseen.items()))
    way = "start again if this is meant" if place else "give it by its key with `_file`"
    raise ConfigError(f"{names}: taken to the letter now, and earlier versions read another text, as YAML: {way}")


def _seen(place: Path | None) -> frozenset[str]:
    try:
        return frozenset(place.read_text(encoding="utf-8").splitlines()) if place else frozenset()
    except FileNotFoundError:
        return frozenset()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read `{place}`: {type(error).__name__}") from None


def _remember(place: Path, keys: Iterable[str]) -> None:
    try:
        make_private_folder(place.parent)
        with os.fdopen(open_private_file(place, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8") as file:
            file.writelines(f"{key}\n" for key in keys)
    except OSError as error:
        raise ConfigError(f"cannot write `{place}`: {error.strerror}") from None


def yaml_problem(error: Exception, text: str, outer: Key = ()) -> str:
    """Return the cause of an error of YAML, without the text below a secret key.

    `outer` is the key of the whole text.
    """
    if isinstance(error, yaml.MarkedYAMLError):
        mark, problem = error.problem_mark, str(error.problem)
        key = (*outer, *strict.keys_around(text, mark.line, mark.column)) if mark else outer
        within = next((key[:length] for length in range(1, len(key) + 1) if secret_of(key[:length])), None)
        return f"the value of `{key_text(within)}` needs quotes" if within else problem
    if isinstance(error, yaml.YAMLError):
        return " ".join(str(error).split())
    # Python quotes the text of a number or a date that it cannot convert
    return "nested too deeply" if isinstance(error, RecursionError) else "a number or a date is none: quote the text"


def with_secrets(data: Mapping[str, Any], base: Path, origins: Origins) -> Mapping[str, Any]:
    """Return the data of settings with the secrets of files; raise ConfigError. Paths start at the folder `base`."""
    for secret in secret_keys():
        if not secret.has_file_key:
            data = _with_path(data, secret.path, (), (base, origins))
    return data


def _with_path(values: Any, path: Sequence[str], key: Key, place: tuple[Path, Origins]) -> Any:
    """Return the values of a section with the secret at a path below it, in each section of a map."""
    if not isinstance(values, Mapping):
        return values
    step, *rest = path
    if not rest:
        return _with_secret(values, (*key, step), *place)
    names = list(values) if step == _ANY else [step] if step in values else []
    return {**values, **{name: _with_path(values[name], rest, (*key, name), place) for name in names}}


def _with_secret(values: Mapping[str, Any], key: Key, base: Path, origins: Origins) -> Mapping[str, Any]:
    """Return the values of a section with the secret of `key`, if a file holds it."""
    name = str(key[-1])
    file_key = (*key[:-1], f"{name}_file")
    if file_key[-1] not in values:
        return values
    text, file_text = key_text(key), key_text(file_key)
    rest = dict(values)
    value = rest.pop(str(file_key[-1]))
    if name in rest:
        raise origins.error(file_key, f"`{text}` and `{file_text}` cannot both be set")
    if not isinstance(value, str):
        raise origins.error(file_key, f"`{file_text}`: input should be a valid string")
    file = base / value
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise origins.error(file_key, f"cannot read `{file_text}`, `{file}`: {type(error).__name__}") from None
    if not secret:
        raise origins.error(file_key, f"`{file_text}`: `{file}` is empty")
    origins.note(key, f"{file_text} {file}")
    return {**rest, name: secret}
