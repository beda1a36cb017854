"""What groups of keys share: strictness, and the reading of addresses. Knows no key."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A group of keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def split_address(address: str) -> tuple[str, int]:
    """`host:port` -> its parts; ValueError says what is missing."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"`{address}` is not `host:port`")
    return host.strip("[]"), int(port)


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether a host to listen on, or a peer, is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
