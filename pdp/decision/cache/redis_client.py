"""Clients of Redis for every form of address, and the seal on verdicts that go there.

    redis://user:password@host:6379/0          rediss:// with TLS          unix:///run/redis.sock
    redis+cluster://host:6379                  rediss+cluster://
    redis+sentinel://host:26379,host2:26379/master-name/0                  rediss+sentinel://

Commands are never repeated: a look-up that fails is a miss, and the next request may find the server well again.

A sealed verdict is `version | expiry | effect | reason | MAC`, bound to one key, one field and an expiry. The MAC is
BLAKE2b with a key (RFC 7693) over the key, the field, the expiry and the verdict. Key and field follow their lengths,
and the rest has fixed places.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from pdp.config.cache import CacheSettings
from pdp.decision.cache.cache import KEPT_EFFECTS, CachedVerdict
from pdp.decision.cache.mac_keys import MacKeys

_MAX_CONNECTIONS: Final = 32
_SOCKET_SECONDS: Final = 1.0
"""Longest wait for a connection or an answer. Requests wait for `cache.timeout_ms` only."""
_SENTINEL_PORT: Final = 26379


class Pipeline(Protocol):
    """Commands that travel together."""

    def hmget(self, name: bytes, keys: list[bytes]) -> Any:
        """Add a look-up of fields."""
        ...

    def hset(self, name: bytes, *, mapping: dict[Any, Any]) -> Any:
        """Add a write of fields."""
        ...

    def pexpire(self, name: bytes, time: int) -> Any:
        """Add a time to live in milliseconds."""
        ...

    async def execute(self, raise_on_error: bool = ...) -> list[Any]:
        """Send the commands and return their results."""
        ...


class RedisClient(NamedTuple):
    """Client of one server, of a cluster, or of the master that sentinels name."""

    client: Any
    sentinels: tuple[Any, ...] = ()

    def pipeline(self) -> Pipeline:
        """Return an empty pipeline."""
        pipeline: Pipeline = self.client.pipeline(transaction=False)
        return pipeline

    async def close(self) -> None:
        """Close all connections."""
        for one in (self.client, *self.sentinels):
            await one.aclose()


def open_client(settings: CacheSettings) -> RedisClient:
    """Return a client for `cache.redis`. Nothing is connected yet."""
    assert settings.redis
    scheme, _, form = urlsplit(settings.redis).scheme.partition("+")
    options = _options(settings, tls=scheme == "rediss")
    url = settings.redis.replace(f"{scheme}+{form}://", f"{scheme}://", 1)
    if form == "cluster":
        return RedisClient(RedisCluster.from_url(url, **options))
    if form == "sentinel":
        return _behind_sentinels(url, options, tls=scheme == "rediss")
    return RedisClient(Redis.from_url(url, **options))


def _options(settings: CacheSettings, *, tls: bool) -> dict[str, Any]:
    options: dict[str, Any] = {
        "socket_timeout": _SOCKET_SECONDS,
        "socket_connect_timeout": _SOCKET_SECONDS,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": _MAX_CONNECTIONS,
        "protocol": 2,
    }
    if settings.password:
        options["password"] = settings.password
    if tls and settings.tls_ca:
        options["ssl_ca_certs"] = settings.tls_ca
    return options


def _behind_sentinels(url: str, options: dict[str, Any], *, tls: bool) -> RedisClient:
    """Return a client of the master that sentinels name. User and password are those of the master."""
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    master, _, database = parts.path.strip("/").partition("/")
    addresses = []
    for place in hosts.split(","):
        host, colon, port = place.rpartition(":")
        addresses.append((host.strip("[]"), int(port)) if colon else (place, _SENTINEL_PORT))
    login = {"username": unquote(user) or None, "password": unquote(password) or None}
    login = {name: value for name, value in login.items() if value is not None}
    plain = {name: options[name] for name in ("socket_timeout", "socket_connect_timeout", "retry", "protocol")}
    tls_options = {"ssl": True, **{name: options[name] for name in ("ssl_ca_certs",) if name in options}} if tls else {}
    make: Any = Sentinel  # the class has no types
    sentinel = make(addresses, sentinel_kwargs={**plain, **tls_options})
    client = sentinel.master_for(master, **{**login, **options, **tls_options, "db": int(database or 0)})
    return RedisClient(client, tuple(sentinel.sentinels))


_VERSION: Final = b"\x01"
_TAG_BYTES: Final = 16
_EXPIRY: Final = slice(1, 9)
_EFFECT: Final = 9
_HAS_REASON: Final = 10
_REASON: Final = 11
LONGEST_VALUE: Final = 4096
"""Bytes of the longest sealed verdict. Longer reasons are not cached, and longer values not looked at."""


class ForgedVerdict(ValueError):
    """Value that no holder of a key wrote for this key and field, or that has expired."""


class VerdictSeal:
    """Maker and reader of sealed verdicts. Times are in milliseconds since 1970."""

    def __init__(self, keys: MacKeys) -> None:
        self._keys = keys

    def close(self, key: bytes, field: bytes, verdict: CachedVerdict, expiry: int) -> bytes | None:
        """Return a verdict sealed by the signing key; None for a verdict with a long reason."""
        reason = (verdict.by or "").encode(errors="surrogatepass")
        head = _VERSION + expiry.to_bytes(8, "big") + bytes((verdict.effect, verdict.by is not None))
        if len(head) + len(reason) + _TAG_BYTES > LONGEST_VALUE:
            return None
        text = head + reason
        return text + _tag(self._keys.signing, _place(key, field), text)

    def open(self, key: bytes, field: bytes, value: bytes, now: int) -> CachedVerdict:
        """Return the verdict of a sealed value; raise ForgedVerdict."""
        if not _REASON + _TAG_BYTES <= len(value) <= LONGEST_VALUE:
            raise ForgedVerdict("length")
        text, tag, place = value[:-_TAG_BYTES], value[-_TAG_BYTES:], _place(key, field)
        for secret in self._keys.accepted:
            if compare_digest(tag, _tag(secret, place, text)):
                break
        else:
            raise ForgedVerdict("mac")
        effect, has_reason = text[_EFFECT], text[_HAS_REASON]
        if text[:1] != _VERSION or effect not in KEPT_EFFECTS:
            raise ForgedVerdict("version")
        if int.from_bytes(text[_EXPIRY], "big") <= now:
            raise ForgedVerdict("expired")
        return CachedVerdict(effect, text[_REASON:].decode(errors="surrogatepass") if has_reason else None)


def _place(key: bytes, field: bytes) -> bytes:
    """Return key and field as one text: each follows its length. The verdict comes last."""
    return b"%b%b%b%b" % (len(key).to_bytes(8, "big"), key, len(field).to_bytes(8, "big"), field)


def _tag(secret: bytes, place: bytes, text: bytes) -> bytes:
    return blake2b(place + text, digest_size=_TAG_BYTES, key=secret).digest()
