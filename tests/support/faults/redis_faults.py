"""Faults of a Redis: killed, frozen, flushed, filled, forged, and old values written back."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

import redis
from support.servers.redis_server import RedisServer

Steps = tuple[tuple[Callable[[], object], float], ...]
"""Calls, each with the seconds of the pause after it."""


def faults(server: RedisServer) -> Iterator[Steps]:
    """Yield each fault: calls with pauses in seconds after them. Redis is killed and started again three times."""
    yield ((server.client, 0.5), (lambda: forge(server), 0.2), (lambda: forge(server), 0.4))
    for _ in range(3):
        yield ((server.kill, 0.3), (server.start, 0.7))
        yield ((server.freeze, 0.3), (server.thaw, 0.5))
        yield ((lambda: server.client().flushall(), 0.3),)
        yield ((lambda: fill(server), 0.3), (lambda: server.client().config_set("maxmemory", "0"), 0.2))
        yield ((lambda: forge(server), 0.1), (lambda: forge(server), 0.3))
        yield ((lambda: replay(server), 0.3),)


def fill(server: RedisServer) -> None:
    client = server.client()
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "1500kb")
    with contextlib.suppress(redis.ResponseError):
        for number in range(200):
            client.set(f"junk{number}", b"x" * 10_000)


def forge(server: RedisServer) -> None:
    """Overwrite values with permits, cut them, swap them within a hash and between hashes."""
    client, choice = server.client(), random.Random()
    names = [name for name in client.keys("pdp:*") if client.type(name) == b"hash"]
    for name in names:
        values = client.hgetall(name)
        fields = list(values)
        forged = {field: values[choice.choice(fields)] for field in fields}
        other = client.hgetall(choice.choice(names))
        for field in fields:
            kind = choice.randrange(5)
            value = values[field]
            if kind == 0:
                forged[field] = value[:9] + b"\x01\x01cel:forged" + value[-16:]
            elif kind == 1:
                forged[field] = value[: choice.randrange(len(value) + 1)]
            elif kind == 2 and other:
                forged[field] = choice.choice(list(other.values()))
            elif kind == 3:
                forged[field] = bytes(choice.randrange(256) for _ in range(40))
        client.hset(name, mapping=forged) if fields else None
        if choice.random() < 0.05:
            client.delete(name)
            client.set(name, b"\x01\x01")


def replay(server: RedisServer) -> None:
    """Write recorded values back: to their own places after a flush, and to those of other questions."""
    client, choice = server.client(), random.Random()
    recorded = {name: client.hgetall(name) for name in client.keys("pdp:*") if client.type(name) == b"hash"}
    client.flushall()
    for name, values in recorded.items():
        if values:
            client.hset(name, mapping=values)
            client.hset(choice.choice(list(recorded)), mapping=values)
