"""Keys of `cache`: verdicts that are kept in this process and in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field, ValidationInfo, field_validator

from pdp.config.section import SecretAddress, SecretText, Section, is_loopback

_SCHEMES: Final = r"^((redis|rediss)(\+(cluster|sentinel))?://|unix://).+"


SHORTEST_KEY: Final = 32
"""Fewest characters of a key of the seal."""
_MOST_KEYS: Final = 2
_MOST_PORT: Final = 65_535


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
        """Raise ValueError for an address that no client of Redis can use, or that would weaken TLS by a parameter.

        The errors show no part of the address but names of parameters: it may hold a password.
        """
        if value is not None:
            _check_parts(value)
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


def _check_parts(address: str) -> None:
    """Raise ValueError for a malformed address of Redis."""
    try:
        parts = urlsplit(address)
        parameters = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:  # the message of the library may quote a password
        raise ValueError("it is no address of Redis") from None
    place = "" if parts.scheme == "unix" else address.rpartition("@")[2]
    if " " in place or "#" in address or not place.isprintable():
        raise ValueError("the address has a blank, a `#`, or a sign that nobody sees")
    if unread := sorted(name for name, _ in parameters if name != "db"):
        raise ValueError(f"the address has the parameter `{unread[0]}`, and takes none but `db`: use keys of `cache`")
    path = parts.path.strip("/")
    if parts.scheme == "unix":
        path, missing = "", "" if path else "socket"
    else:
        master = parts.scheme.endswith("+sentinel")
        _check_hosts(parts.netloc.rpartition("@")[2].split(","), several=master)
        name, _, path = path.partition("/") if master else ("-", "", path)
        missing = "" if name else "master: `redis+sentinel://host:26379/<master>`"
    if missing:
        raise ValueError(f"the address names no {missing}")
    databases = [number for _, number in parameters] + ([path] if path else [])
    if len(databases) > 1 or not all(number.isascii() and number.isdigit() for number in databases):
        raise ValueError("the number of the database is no number, or stands twice")


def _check_hosts(hosts: Sequence[str], *, several: bool) -> None:
    """Raise ValueError for an empty host, a port that is none, and several hosts unless these may be."""
    if not all(map(_host, hosts)):
        raise ValueError("the address names no host")
    if not all(map(_has_port, hosts)):
        raise ValueError("the address has a port that is none: 1 to 65535")
    if len(hosts) > 1 and not several:
        raise ValueError("the address names several hosts, which only `redis+sentinel://` may")


def _has_port(place: str) -> bool:
    """Tell whether a host has a valid port, or none."""
    rest = place.rpartition("]")[2] if place.startswith("[") else place[len(_host(place)) :]
    number = rest.removeprefix(":")
    return not rest or (rest[0] == ":" and number.isascii() and number.isdigit() and 0 < int(number) <= _MOST_PORT)


def _host(place: str) -> str:
    if place.startswith("["):
        return place[1:].partition("]")[0]
    return place.partition(":")[0]
