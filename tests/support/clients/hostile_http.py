"""Requests of HTTP/1.1 that cost a service more than their client, by name. Each is bytes made of random choices."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Final

Shape = Callable[[random.Random], bytes]
"""Maker of the bytes that a client sends on one connection."""

LARGE: Final = 4_000_000
"""Most bytes of a body, about."""
CHECK_PATHS: Final = ("/v1/check", "/v1/explain", "/v1/list", "/v1/load", "/pdp.v1.DecisionService/Check")
TRINO_PATHS: Final = ("allow", "batch", "rowFilters", "columnMask", "batchColumnMasks")
OTHER_PATHS: Final = (
    "/v1/grants",
    "/v1/objects",
    "/v1/access",
    "/health/live",
    "/health/ready",
    "/metrics",
    "/nothing",
)
PATHS: Final = (*CHECK_PATHS, *(f"/v1/data/trino/{name}" for name in TRINO_PATHS), *OTHER_PATHS)
ANNOUNCED: Final = ("8388608", "67108864", "67108865", "18446744073709551616", "-1", "1e3", "0x10", "5, 6", "")
ALICE: Final = {"principal": "user:oidc~Alice", "action": "read_data"}


def head(chosen: random.Random, type: str = "application/json", path: str = "") -> bytes:
    """Return the head of a request up to its last headers."""
    path = path or chosen.choice(PATHS)
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {type}\r\n".encode()


def whole(chosen: random.Random, body: bytes, type: str = "application/json", path: str = "") -> bytes:
    """Return a request with its body."""
    return head(chosen, type, path) + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _large(chosen: random.Random) -> int:
    return chosen.randrange(1, LARGE)


def _check(chosen: random.Random, **fields: object) -> bytes:
    return whole(chosen, json.dumps({"checks": [{**ALICE, **fields}]}).encode(), path=chosen.choice(CHECK_PATHS))


def deep_lists(chosen: random.Random) -> bytes:
    """Return lists within lists, in an unknown or a known field."""
    start = chosen.choice((b"", b'{"checks":', b'{"unknown":', b'{"input":{"action":{"filterResources":'))
    return whole(chosen, start + b"[" * _large(chosen))


def deep_objects(chosen: random.Random) -> bytes:
    """Return objects within objects, closed or not."""
    depth = _large(chosen) // 6
    return whole(chosen, b'{"a":' * depth + (b"1" + b"}" * depth) * chosen.randrange(2))


def deep_context(chosen: random.Random) -> bytes:
    """Return a check whose properties are deep."""
    deep = b'{"a":' * 900 + b"1" + b"}" * 900
    body = b'{"checks":[{"principal":"user:oidc~Alice","action":"read_data","context":%b,"resource":%b}]}' % (
        deep,
        deep,
    )
    return whole(chosen, body, path=chosen.choice(CHECK_PATHS))


def many_checks(chosen: random.Random) -> bytes:
    """Return checks that are empty."""
    return whole(chosen, b'{"checks":[' + b"{}," * (_large(chosen) // 3) + b"{}]}")


def many_names(chosen: random.Random) -> bytes:
    """Return one check of many short names."""
    return _check(chosen, resources=[f"table:lake/a{at}/b@prod" for at in range(chosen.randrange(1, 4000))])


def long_paths(chosen: random.Random) -> bytes:
    """Return a check of paths with many parts."""
    path = ["p"] * chosen.randrange(1, 300)
    return _check(chosen, resources=[{"type": "table", "warehouse": "lake", "path": path}] * chosen.randrange(1, 100))


def many_tables(chosen: random.Random) -> bytes:
    """Return a listing of Trino."""
    names = [{"table": {"catalogName": "lakehouse", "schemaName": "s", "tableName": f"t{at}"}} for at in range(2000)]
    action = {"operation": "FilterTables", "filterResources": names}
    body = {"input": {"context": {"identity": {"user": "Alice"}}, "action": action}}
    return whole(chosen, json.dumps(body).encode(), path="/v1/data/trino/batch")


def many_keys(chosen: random.Random) -> bytes:
    """Return an object with many keys, each its own or all the same."""
    name = chosen.choice(("k", "k{}"))
    return whole(chosen, b"{" + b",".join(b'"%b":0' % name.format(at).encode() for at in range(30_000)) + b"}")


def long_texts(chosen: random.Random) -> bytes:
    """Return one long text, name or number."""
    piece = chosen.choice((b"a", b"\\u0000", b"\\\\", b"/", b"\xff", b"\xf0\x9f\x98\x80"))
    text = b'"' + piece * (_large(chosen) // len(piece)) + b'"'
    text = chosen.choice((text, b"9" * _large(chosen), b"1e" + b"9" * _large(chosen)))
    field = chosen.choice((b"action", b"principal", b"resource", b"unknown"))
    return whole(chosen, b'{"checks":[{"%b":%b}]}' % (field, text))


def announced(chosen: random.Random) -> bytes:
    """Return a head that announces a body, and no body."""
    wait = chosen.choice((b"", b"Expect: 100-continue\r\n", b"Content-Encoding: gzip\r\n"))
    return head(chosen) + wait + f"Content-Length: {chosen.choice(ANNOUNCED)}\r\n\r\n".encode()


def chunks(chosen: random.Random) -> bytes:
    """Return a body in tiny chunks, in a chunk without end, or with extensions or trailers without end."""
    count = _large(chosen) // 10
    body = chosen.choice(
        (
            b"1\r\n[\r\n" * count,
            b"fffffff\r\n[",
            b"f" * 40 + b"\r\n",
            b"1" + b";a=b" * count,
            b"0\r\n" + b"A: b\r\n" * count,
        )
    )
    length = chosen.choice((b"", b"", b"Content-Length: 5\r\n"))
    return head(chosen) + length + b"Transfer-Encoding: chunked\r\n\r\n" + body


def long_heads(chosen: random.Random) -> bytes:
    """Return a head with many headers, a long one, or a long line."""
    size = _large(chosen)
    line = chosen.choice((b"X-A: b\r\n" * (size // 8), b"X-A: " + b"b" * size, b"X" * size, b"Host: a\r\n" * 50))
    return chosen.choice((head(chosen) + line, b"GET /" + b"x" * size, b"GET /?" + b"a=b&" * (size // 4)))


def odd_heads(chosen: random.Random) -> bytes:
    """Return a head that no client sends."""
    return chosen.choice(
        (
            b"\r\n" * 5000,
            b"GET /health/live HTTP/9.9\r\n\r\n",
            b"GET /health/live\r\n\r\n",
            b"POST /v1/check HTTP/1.1\nHost: localhost\n\n",
            b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nA\x00: \x00\r\n\r\n",
            b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n\r\n",
            b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chosen.randbytes(100),
        )
    )


def pipelined(chosen: random.Random) -> bytes:
    """Return many requests at once, some of which have large answers."""
    one = chosen.choice(
        (
            whole(chosen, b"{}"),
            b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
            _check(chosen, resources=["table:lake/Foo@prod"] * 100),
        )
    )
    return one * 50


def protobuf(chosen: random.Random) -> bytes:
    """Return messages of protobuf that are deep, long or wrong."""
    return whole(chosen, message(chosen), "application/proto", "/pdp.v1.DecisionService/Check")


def message(chosen: random.Random) -> bytes:
    """Return the bytes of a message that is deep, long or wrong."""
    size = _large(chosen)
    deep = b""
    for _ in range(chosen.randrange(100)):
        deep = b"\x0a" + varint(len(deep)) + deep
    return chosen.choice((b"\x0b" * size, b"\x0a\x00" * (size // 2), b"\xff" * size, deep, chosen.randbytes(500)))


def varint(number: int) -> bytes:
    """Return a number as protobuf writes lengths."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def noise(chosen: random.Random) -> bytes:
    """Return random bytes."""
    return chosen.randbytes(chosen.randrange(5000))


SHAPES: Final[Mapping[str, Shape]] = {
    shape.__name__: shape
    for shape in (
        deep_lists, deep_objects, deep_context, many_checks, many_names, long_paths, many_tables, many_keys, long_texts,
        announced, chunks, long_heads, odd_heads, pipelined, protobuf, noise,
    )
}  # fmt: skip
"""Shapes by name."""
