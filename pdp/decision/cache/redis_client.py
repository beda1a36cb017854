"""Clients of Redis for every form of address, and the seal on verdicts that go there.

    redis://user:password@host:6379/0          rediss:// with TLS          unix:///run/redis.sock
    redis+cluster://host:6379                  rediss+cluster://
    redis+sentinel://host:26379,host2:26379/master-name/0                  rediss+sentinel://

Commands are never repeated: a look-up that fails is a miss, and the next request may find the server well again.

No server is trusted with memory or time. An answer beyond its bounds ends its connection, also when no request waits
for the answer any more.

A sealed verdict is `version | expiry | effect | reason | MAC`, bound to one key, one field and an expiry. The MAC is
BLAKE2b with a key (RFC 7693) over the key, the field, the expiry and the verdict. Key and field follow their lengths,
and the rest has fixed places.
"""

from __future__ import annotations

import re
from functools import partial
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from redis._parsers import _AsyncHiredisParser
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse

from pdp.config.cache import CacheSettings
from pdp.decision.cache.cache import KEPT_EFFECTS, MOST_FIELDS, CachedVerdict
from pdp.decision.cache.mac_keys import MacKeys

_MAX_CONNECTIONS: Final = 32
_SOCKET_SECONDS: Final = 1.0
"""Longest wait for a connection or an answer. Requests wait for `cache.timeout_ms` only."""
_SENTINEL_PORT: Final = 26379


LONGEST_VALUE: Final = 4096
"""Bytes of the longest sealed verdict. Longer reasons are not cached, and longer values not looked at."""
LONGEST_ANSWER: Final = MOST_FIELDS * (LONGEST_VALUE + 16)
"""Bytes of the longest answer to a look-up: every value has its length before it, and two line ends."""
_LIST: Final = re.compile(rb"[*~%>]\+?([0-9]+)")
"""Length of a list, or what looks like one within a value."""
_LONGEST_LENGTH: Final = 16
"""Bytes of the end of a part that may be the start of a length."""
_MOST_ITEMS: Final = 500_000
"""Items of all lists of one answer, as declared. hiredis takes memory for all items before the first one comes, and
each collection of garbage walks through them: a list of 2 billion stops this process for a minute. A large cluster
describes its slots by a hundred thousand items."""


class AnswerBudget:
    """Bytes of unfinished answers that all connections of a client hold together."""

    def __init__(self, most: int = 2 * LONGEST_ANSWER) -> None:
        self.left = most


class BoundedParser(_AsyncHiredisParser):
    """Parser of answers within bounds: raises InvalidResponse beyond, and the client then closes the connection."""

    def __init__(self, budget: AnswerBudget, socket_read_size: int) -> None:
        super().__init__(socket_read_size=socket_read_size)
        self._budget = budget
        self._size = self._items = 0
        """Bytes and declared items of lists of the present answer so far."""
        self._end = b""
        """Last bytes: the length of a list may come in two parts."""

    async def read_response(self, disable_decoding: bool = False, push_request: bool = False) -> Any:
        """Return the next answer; raise InvalidResponse beyond the bounds."""
        try:
            return await super().read_response(disable_decoding, push_request)
        finally:
            self._budget.left += self._size
            self._size = self._items = 0

    async def read_from_socket(self) -> bool:
        """Feed what has arrived to the reader, if it is within the bounds."""
        stream: Any = self._stream  # there is one once the connection is open, and a reader, too
        reader: Any = self._reader
        part = await stream.read(self._read_size)
        if not part:
            raise RedisConnectionError("the server has closed the connection")
        self._size += len(part)
        self._budget.left -= len(part)
        text = self._end + part
        for length in _LIST.finditer(text):
            if length.end() > len(self._end):
                self._items += int(length[1][:_LONGEST_LENGTH])
        self._end = part[-_LONGEST_LENGTH:]
        if self._size > LONGEST_ANSWER or self._items > _MOST_ITEMS or self._budget.left < 0:
            raise InvalidResponse("the answer is longer than any to a question of ours")
        reader.feed(part)
        return True


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
        cluster: Any = RedisCluster.from_url(url, **options)
        nodes = cluster.nodes_manager
        _bound(nodes, *nodes.startup_nodes.values())
        return RedisClient(cluster)
    client = (
        _behind_sentinels(url, options, tls=scheme == "rediss") if form else RedisClient(Redis.from_url(url, **options))
    )
    _bound(*(one.connection_pool for one in (client.client, *client.sentinels)))
    return client


def _bound(*makers: Any) -> None:
    """Let makers of connections bound the answers. Not every client has an option for that."""
    budget = AnswerBudget()
    for maker in makers:
        maker.connection_kwargs["parser_class"] = partial(BoundedParser, budget)


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
