"""Secrets in files: for each secret, a key with the suffix `_file` names a file that holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pdp.config.origins import Origins, key_text

_SECRETS: Final = (("store", "url"), ("cache", "redis"), ("cache", "password"), ("cache", "mac_key"))
"""Sections and keys of secrets. An address may hold a password."""
_LAKE_SECRETS: Final = ("token", "credential")
"""Keys of secrets in each section of `lakes`."""


def with_secrets(data: Mapping[str, Any], base: Path, origins: Origins) -> Mapping[str, Any]:
    """Return the data of settings with the secrets of files; raise ConfigError. Paths start at the folder `base`."""
    for section, name in _SECRETS:
        values = data.get(section)
        if isinstance(values, Mapping):
            data = {**data, section: _with_secret(values, (section, name), base, origins)}
    lakes = data.get("lakes")
    if isinstance(lakes, Mapping):
        data = {**data, "lakes": {name: _with_lake_secrets(lakes[name], name, base, origins) for name in lakes}}
    return data


def _with_lake_secrets(values: Any, lake: str, base: Path, origins: Origins) -> Any:
    for name in _LAKE_SECRETS if isinstance(values, Mapping) else ():
        values = _with_secret(values, ("lakes", lake, name), base, origins)
    return values


def _with_secret(values: Mapping[str, Any], key: Sequence[str], base: Path, origins: Origins) -> Mapping[str, Any]:
    """Return the values of a section with the secret of `key`, if a file holds it."""
    name = key[-1]
    file_key = (*key[:-1], f"{name}_file")
    if file_key[-1] not in values:
        return values
    text, file_text = key_text(key), key_text(file_key)
    rest = dict(values)
    value = rest.pop(file_key[-1])
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
    origins.note(tuple(key), f"{file_text} {file}")
    return {**rest, name: secret}
