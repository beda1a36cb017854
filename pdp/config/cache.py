"""Keys of `cache`: verdicts that are kept in this process and in Redis."""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator

from pdp.config.section import SecretAddress, SecretText, Section, is_loopback

_SCHEMES: Final = r"^((redis|rediss)(\+(cluster|sentinel))?://|unix://).+"


SHORTEST_KEY: Final = 32
"""Fewest characters of a key of the seal."""
_MOST_KEYS: Final = 2


def key_lines(text: str) -> list[str]:
    """Return the keys of the seal, one a line; raise ValueError for none, more than two, or a short one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not 1 <= len(lines) <= _MOST_KEYS:
        raise ValueError(f"{len(lines)} keys: write one key, or two on two lines while keys are changed")
    if any(len(line) < SHORTEST_KEY for line in lines):
        raise ValueError(f"a key is shorter than {SHORTEST_KEY} characters")
    return lines


class CacheSettings(Section):
    """Cache of verdicts. docs/cache.md says which verdicts are kept, and what may go wrong."""

    redis: SecretAddress | None = Field(
        None,
        pattern=_SCHEMES,
        description="address of Redis: `redis://`, `rediss://` (TLS), `unix://`, and `redis+cluster://` or "
        "`redis+sentinel://host:26379,host:26379/<master>` (also with `rediss`); `redis_file` in its place names a "
        "file that holds the address",
    )
    password: SecretText | None = Field(
        None, description="password of Redis, if the address has none; `password_file` names a file that holds it"
    )
    tls_ca: str | None = Field(None, description="certificates of the authorities that sign for Redis, in PEM")
    redis_for: Literal["auto", "all", "none"] = Field(
        "auto",
        description="engines whose verdicts go to Redis: `auto` takes those that cost more than a round trip, `all` "
        "takes all that may be cached, `none` takes no engine",
    )
    mac_key: SecretText | None = Field(
        None,
        description="key of the seal on every value in Redis, of 32 characters or more; a second key on a second line "
        "is accepted too, while keys are changed; `mac_key_file` names a file that holds the keys. Needed for a Redis "
        "that is not on this machine",
    )
    ttl_seconds: float = Field(60, ge=1, le=86_400, description="longest time that a verdict is kept")
    timeout_ms: float = Field(5, gt=0, le=1000, description="longest time that a request waits for the cache")
    local_entries: int = Field(
        100_000, ge=0, le=10_000_000, description="verdicts that are kept in this process, before Redis is asked"
    )

    @field_validator("redis")
    @classmethod
    def _check_address(cls, value: str | None, info: ValidationInfo) -> str | None:
        """Raise ValueError for an address without a host, or of sentinels without the name of a master."""
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            _ = None if "," in parts.netloc else parts.port
        except ValueError:  # the message of the library may quote a password
            raise ValueError("it is no address of Redis") from None
        if parts.scheme == "unix":
            return value
        if not parts.netloc.rpartition("@")[2]:
            raise ValueError("the address names no host")
        if parts.scheme.endswith("+sentinel") and not parts.path.strip("/"):
            raise ValueError("the address names no master: `redis+sentinel://host:26379/<master>`")
        return value

    @field_validator("mac_key")
    @classmethod
    def _check_keys(cls, value: str | None, info: ValidationInfo) -> str | None:
        """Raise ValueError for a text that holds no keys. The error does not show the text."""
        if value is not None:
            key_lines(value)
        return value

    def is_on_this_machine(self) -> bool:
        """Tell whether every address of Redis is a unix socket or a loopback address."""
        parts = urlsplit(self.redis or "")
        if parts.scheme == "unix":
            return True
        hosts = parts.netloc.rpartition("@")[2].split(",")
        return all(is_loopback(_host(place)) for place in hosts)


def _host(place: str) -> str:
    if place.startswith("["):
        return place[1:].partition("]")[0]
    return place.partition(":")[0]
