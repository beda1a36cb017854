"""Frames of HTTP/2 that cost a gRPC server more than their client, by name. Each is bytes made of random choices."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from support.clients.hostile_http import Shape, message

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM: Final = 1
END_HEADERS: Final = 4
METHODS: Final = (
    "/pdp.v1.DecisionService/Check",
    "/pdp.v1.DecisionService/List",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/nothing/Nothing",
)
_MOST_PAYLOAD: Final = 16_384


def frame(type: int, payload: bytes = b"", stream: int = 0, flags: int = 0) -> bytes:
    """Return a frame."""
    return len(payload).to_bytes(3, "big") + bytes((type, flags)) + stream.to_bytes(4, "big") + payload


OPENED: Final = PREFACE + frame(SETTINGS)
"""Start of a connection."""


def field(name: str, value: str, indexed: bool = False) -> bytes:
    """Return a header in the plainest form of HPACK; `indexed` adds it to the table of the connection."""
    texts = b"".join(_length(len(text)) + text for text in (name.encode(), value.encode()))
    return (b"\x40" if indexed else b"\x00") + texts


def _length(number: int) -> bytes:
    if number < 0x7F:
        return bytes((number,))
    number -= 0x7F
    found = bytearray(b"\x7f")
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def call_head(chosen: random.Random, method: str = "") -> bytes:
    """Return the headers of a call."""
    named = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method or chosen.choice(METHODS),
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return b"".join(field(name, value) for name, value in named.items())


def calls(chosen: random.Random, count: int, rest: bytes = b"", end: bool = False) -> bytes:
    """Return calls on streams of their own, each with the same bytes of its message, which `end` ends or not."""
    found = []
    for stream in range(1, 2 * count, 2):
        found.append(frame(HEADERS, call_head(chosen), stream, END_HEADERS))
        found += [frame(DATA, rest[at : at + _MOST_PAYLOAD], stream) for at in range(0, len(rest), _MOST_PAYLOAD)]
        if end:
            found.append(frame(DATA, b"", stream, END_STREAM))
    return OPENED + b"".join(found)


def prefixed(body: bytes, length: int | None = None) -> bytes:
    """Return a message of gRPC; `length` is the announced one."""
    return b"\x00" + (len(body) if length is None else length).to_bytes(4, "big") + body


def half_preface(chosen: random.Random) -> bytes:
    """Return the start of a connection, cut off."""
    return OPENED[: chosen.randrange(len(OPENED))]


def streams_without_messages(chosen: random.Random) -> bytes:
    """Return heads of calls."""
    return calls(chosen, chosen.randrange(1, 300))


def messages_never_sent(chosen: random.Random) -> bytes:
    """Return calls that announce a message and send a byte of it."""
    length = chosen.choice((8_000_000, 8 << 20, (8 << 20) + 1, (1 << 32) - 1))
    return calls(chosen, chosen.randrange(1, 100), prefixed(b"a", length))


def wrong_messages(chosen: random.Random) -> bytes:
    """Return whole calls whose message is deep, long or wrong."""
    body = message(chosen)[:60_000]
    return calls(chosen, 1 + 60_000 // (len(body) + 1) % 50, prefixed(body), end=True)


def tiny_frames(chosen: random.Random) -> bytes:
    """Return a message in frames of one byte, or in empty frames."""
    payload = chosen.choice((b"", b"a"))
    start = calls(chosen, 1, prefixed(b"", 8_000_000))
    return start + frame(DATA, payload, 1) * chosen.randrange(20_000)


def rapid_resets(chosen: random.Random) -> bytes:
    """Return calls that are reset at once."""
    one = call_head(chosen)
    code = (8).to_bytes(4, "big")
    streams = range(1, 2 * chosen.randrange(1000) + 2, 2)
    return OPENED + b"".join(frame(HEADERS, one, at, END_HEADERS) + frame(RESET, code, at) for at in streams)


def endless_heads(chosen: random.Random) -> bytes:
    """Return the head of a call that never ends, in many frames or in empty ones."""
    pieces = chosen.choice((b"", field("x", "y" * 50) * 20, field("x", "y" * 4000), field("x", "")))
    return OPENED + frame(HEADERS, call_head(chosen), 1) + frame(CONTINUATION, pieces, 1) * chosen.randrange(3000)


def head_bombs(chosen: random.Random) -> bytes:
    """Return a head that names one large header of the table again and again."""
    large = field("x", "y" * 3900, indexed=True)
    head = call_head(chosen) + large + b"\xbe" * 12_000
    return OPENED + b"".join(frame(HEADERS, head, at, END_HEADERS) for at in (1, 3))


def floods(chosen: random.Random) -> bytes:
    """Return one frame of the connection again and again."""
    one = chosen.choice(
        (
            frame(PING, bytes(8)),
            frame(SETTINGS),
            frame(SETTINGS, b"\x00\x04\x7f\xff\xff\xff"),
            frame(WINDOW, b"\x00\x00\x00\x01"),
            frame(PRIORITY, b"\x00\x00\x00\x03\x10", 1),
            frame(99, bytes(100)),
        )
    )
    return OPENED + one * chosen.randrange(1, 5000)


def bad_frames(chosen: random.Random) -> bytes:
    """Return frames that break the rules of HTTP/2."""
    one = call_head(chosen)
    bad = (
        frame(DATA, b"a"),
        frame(DATA, b"a", 1),
        frame(HEADERS, one, 2, END_HEADERS),
        frame(HEADERS, one, 1, END_HEADERS) * 2,
        frame(HEADERS, b"\xff" * 100, 1, END_HEADERS),
        frame(HEADERS, b"\x3f\xff\xff\xff\xff\xff\xff", 1, END_HEADERS),
        frame(WINDOW, bytes(4)),
        frame(WINDOW, b"\x7f\xff\xff\xff") * 2,
        frame(SETTINGS, b"\x00\x04\xff\xff\xff\xff"),
        frame(SETTINGS, b"\x00\x05\x00\x00\x00\x00"),
        frame(SETTINGS, b"a"),
        frame(PUSH, bytes(4) + one, 1, END_HEADERS),
        frame(PING, b"a"),
        frame(GOAWAY, b""),
        frame(RESET, bytes(4), 7),
        frame(CONTINUATION, one, 1, END_HEADERS),
        b"\xff\xff\xff" + bytes((DATA, 0)) + bytes(4),
        frame(HEADERS, field(":path", "/") + field("X", "y"), 1, END_HEADERS | END_STREAM),
        frame(HEADERS, b"", 1, END_HEADERS),
        chosen.randbytes(300),
    )
    return OPENED + b"".join(chosen.choices(bad, k=chosen.randrange(1, 4)))


SHAPES: Final[Mapping[str, Shape]] = {
    shape.__name__: shape
    for shape in (
        half_preface, streams_without_messages, messages_never_sent, wrong_messages, tiny_frames, rapid_resets,
        endless_heads, head_bombs, floods, bad_frames,
    )
}  # fmt: skip
"""Shapes by name."""
