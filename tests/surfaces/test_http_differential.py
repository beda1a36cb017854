"""Generated requests, well-formed and not: the own HTTP server accepts and answers exactly as aiohttp does."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.clients.http_pair import ALLOW, CHECK, IMMEDIATE, LOOPS, ServerPair, assert_same, sending, server_pair

EXAMPLES = int(os.environ.get("PDP_HTTP_EXAMPLES", "400"))
"""Streams of requests for each of twelve pairs of servers, in a long run."""
LIMITS = {"max_body_bytes": 2048, "trino_max_body_bytes": 4096, "idle_timeout_seconds": 60}
PLAIN = [
    ["Host", " localhost"],
    ["Content-Type", " application/json"],
    ["User-Agent", " test/1.0"],
    ["Accept", " */*"],
]
LINES = [
    f"POST {CHECK} HTTP/1.1", f"POST {ALLOW} HTTP/1.1", "POST /v1/list HTTP/1.1", "GET /v1/check HTTP/1.1",
    f"POST {CHECK} HTTP/1.0", f"POST {CHECK} HTTP/1.2", f"POST {CHECK} HTTP/2.0", f"POST {CHECK}",
    f"POST http://localhost{CHECK} HTTP/1.1", f"POST http://evil.example{CHECK} HTTP/1.1",
    f"POST {CHECK}?a=b HTTP/1.1", f"POST {CHECK}? HTTP/1.1", f"POST {CHECK}#a HTTP/1.1", f"POST {CHECK}/ HTTP/1.1",
    "POST /v1/chec%6B HTTP/1.1", "POST //v1/check HTTP/1.1", "POST /v1/../v1/check HTTP/1.1", "POST * HTTP/1.1",
    f"POST  {CHECK} HTTP/1.1", f"POST {CHECK}  HTTP/1.1", f"POST {CHECK} HTTP/1.1 ", f"POST\t{CHECK} HTTP/1.1",
    f"post {CHECK} HTTP/1.1", f"POST {CHECK} http/1.1", f"CONNECT {CHECK} HTTP/1.1", "PRI * HTTP/2.0", "", " ",
    f"POST {CHECK.upper()} HTTP/1.1", f"OPTIONS {CHECK} HTTP/1.1", f"XPOST {CHECK} HTTP/1.1",
]  # fmt: skip
HEADERS = [
    "Connection: close", "Connection: keep-alive", "connection:Keep-Alive", "Connection: keep-alive, close",
    "Connection: upgrade", "Connection:", "Proxy-Connection: close", "Keep-Alive: timeout=5",
    "Expect: 100-continue", "Expect: 200-ok", "Upgrade: websocket", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__",
    "Content-Encoding: gzip", "Content-Encoding: identity", "Content-Encoding:", "Content-Type: text/plain",
    "Content-Type: application/json", "Host: localhost", "Host: evil.example", "Host:", "User-Agent: other",
    "Content-Length: 3", "content-length:3", "Transfer-Encoding: chunked", "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip, chunked", "Transfer-Encoding : chunked", "Transfer-Encoding: xchunked",
    "Transfer-Encoding:\x0bchunked", "Origin: http://evil.example", "X-Forwarded-For: 192.0.2.1", "Forwarded: for=a",
    "Authorization: Bearer abc", "Authorization: Basic abc", "Sec-WebSocket-Key1: a", "Trailer: X", "TE: trailers",
    "Cookie: a=b", "Cookie: c=d", "X-Empty:", "X-Space:   ", "X-Tab:\ta", "X-Inner: a\tb", "X-End: a \t", " X: folded",
    "\tX: folded", "X : space", "X\t: tab", ": nameless", "nocolon", "X: nul\x00", "X: del\x7f", "X: esc\x1b",
    "X: cr\rY: z", "X: lf\nY: z", "X: \xe9", "\xe9: x", "X: \u2028", "X(: paren", "X\x00: nul", "X-Long: " + "a" * 9000,
    "X-Too-Long: " + "a" * 33_000, "ETag: a", "Server: a", "Max-Forwards: 1", "Via: 1.1 a", "Content-Range: bytes 0-1/2",
]  # fmt: skip
LENGTHS = [
    "+{n}", "-{n}", "0{n}", "000000000{n}", "{n} ", " {n}", "{n}\t", "{n},{n}", "{n}, {n}", "{n};", "{n}.0", "0x{n}",
    "{n}a", "", "a", "1{n}", "0", "99999999999", "9999999999", "18446744073709551616", "18446744073709551615", "\u0663", "{n}\x00",
]  # fmt: skip
TYPES = [
    "application/json; charset=utf-8", "application/json;charset=UTF-8", "APPLICATION/JSON", "text/plain", "",
    "application/json; charset", "application/json, text/plain", "application/jsonp", 'application/json; a="b;c"',
    "application/json;", "multipart/form-data", "text/json; application/json", "application/json; charset=utf-16",
]  # fmt: skip
HOSTS = ["LOCALHOST:80", "127.0.0.1", "[::1]:8181", "evil.example", "", "local host", "localhost:x", "a@localhost", "["]
CHUNKS = ["3\r\nabc\r\n0\r\n\r\n", "0\r\n\r\n", "3\r\nabc\r\n", "3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n", "zz\r\n", "3\nabc\n0\n\n", "+3\r\nabc\r\n0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n"]  # fmt: skip
BODIES = st.sampled_from([b"", b"!bad", b"a" * 2048, b"b" * 2049, b"c" * 4097])
PROBE = (
    f"POST {CHECK} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nprobe"
).encode()


@st.composite
def requests(draw: Callable[[Any], Any]) -> bytes:
    """One request: mostly plain, with some mutations."""
    line = draw(st.sampled_from([*LINES[:2] * 20, *LINES]))
    body = draw(st.binary(max_size=60) | BODIES)
    fields = [list(one) for one in PLAIN]
    kind = draw(st.sampled_from(["plain"] * 8 + ["length", "type", "host", "chunked"]))
    length = str(len(body))
    if kind == "length":
        length = draw(st.sampled_from(LENGTHS)).format(n=length)
    elif kind == "type":
        fields[1][1] = draw(st.sampled_from(TYPES))
    elif kind == "host":
        fields[0][1] = draw(st.sampled_from(HOSTS))
    lines = [f"{name}:{value}" for name, value in fields]
    if kind == "chunked":
        body = draw(st.sampled_from(CHUNKS)).encode()
        lines.append("Transfer-Encoding: chunked")
    else:
        lines.append(f"Content-Length: {length}")
    for extra in draw(st.sampled_from([[]]) | st.lists(st.sampled_from(HEADERS), max_size=2)):
        lines.insert(draw(st.integers(0, len(lines))), extra)
    if draw(st.integers(0, 15)) == 0:
        lines = draw(st.permutations(lines))
    if draw(st.integers(0, 15)) == 0:
        lines = [one.swapcase() for one in lines]
    if draw(st.integers(0, 15)) == 0 and lines:
        del lines[draw(st.integers(0, len(lines) - 1))]
    end = draw(st.sampled_from(["\r\n"] * 60 + ["\n", "\r", "\r\r\n", "\n\r", "\r\n\r\n"]))
    whole: bytes = end.join([line, *lines, "", ""]).encode("latin-1", "replace") + body
    return whole


@st.composite
def streams(draw: Callable[[Any], Any]) -> list[bytes]:
    """Packets of one connection: requests one after the other, with damaged bytes, cut anywhere."""
    repeated = draw(st.booleans())
    parts = draw(st.lists(requests(), min_size=1, max_size=1 if repeated else 3))
    whole = b"".join(parts) * (draw(st.integers(1, 4)) if repeated else 1)
    whole = draw(st.sampled_from([b""] * 40 + [b"\r\n", b"\n", b"\r\n\r\n", b"\x16\x03\x01"])) + whole
    for _ in range(draw(st.sampled_from([0] * 8 + [1, 2]))):
        at = draw(st.integers(0, len(whole)))
        damage = draw(st.sampled_from([b"\r", b"\n", b"\x00", b" ", b"\t", b":", b"\r\n", b"a", b"\xff", b""]))
        whole = whole[:at] + damage + whole[at + draw(st.integers(0, 1)) :]
    if draw(st.integers(0, 5)) == 0:
        whole = whole[: draw(st.integers(0, len(whole)))]
    cuts = sorted(draw(st.lists(st.integers(0, min(len(whole), 400)), max_size=5)))
    return [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True) if start < end]


@st.composite
def repeats(draw: Callable[[Any], Any]) -> list[bytes]:
    """Packets of one whole request each. The head stays the same but for the length; some packets are damaged."""
    line = draw(st.sampled_from(LINES[:2]))
    fields = [f"{name}:{value}" for name, value in draw(st.permutations(PLAIN))]
    at = draw(st.integers(0, len(fields)))
    space = draw(st.sampled_from([" ", "", "  "]))
    packets = []
    for body in draw(st.lists(st.binary(max_size=30) | BODIES, min_size=2, max_size=5)):
        length = draw(st.sampled_from(["{n}"] * 12 + LENGTHS)).format(n=len(body))
        ends = draw(st.sampled_from(["\r\n"] * 12 + ["\n", "\r", "\r\nX-More: 1\r\n"]))
        lines = [line, *fields[:at], f"Content-Length:{space}{length}{ends}"]
        head = "\r\n".join(lines) + "".join(f"{field}\r\n" for field in fields[at:]) + "\r\n"
        whole: bytes = head.encode("latin-1", "replace") + body
        cut = draw(st.sampled_from([len(whole)] * 12 + [-1, len(whole) // 2]))
        packets += [whole[:cut], whole[cut:]] if cut < len(whole) else [whole]
        if draw(st.integers(0, 12)) == 0:
            packets[-1] += draw(st.sampled_from([b"\r\n", b"a", b"\x00", whole]))
    return [packet for packet in packets if packet]


class RunningPair:
    """A pair of servers on an event loop that runs only while a test asks."""

    def __init__(self, runner: asyncio.Runner, pair: ServerPair) -> None:
        self._runner = runner
        self._pair = pair

    def compare(self, packets: list[bytes]) -> tuple[int, ...]:
        """Check that both servers do the same; return the statuses of the answers."""
        answers, _ = self._runner.run(assert_same(self._pair, packets, PROBE))
        return tuple(answer.status for answer in answers)


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Let aiohttp log none of the malformed requests."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module", params=[(loop, way) for loop in LOOPS for way in IMMEDIATE], ids="-".join)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPair]:
    loop, way = request.param
    folder: Path = tmp_path_factory.mktemp("pair")
    with sending(loop), asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        context = server_pair(folder, IMMEDIATE[way], limits=LIMITS)
        pair = runner.run(_enter(context))
        try:
            yield RunningPair(runner, pair)
        finally:
            runner.run(_exit(context))


async def _enter(context: Any) -> ServerPair:
    pair: ServerPair = await context.__aenter__()
    return pair


async def _exit(context: Any) -> None:
    await context.__aexit__(None, None, None)


@pytest.mark.parametrize("length", [20_000, 40_000])
def test_a_long_header_that_does_not_end_is_refused(running: RunningPair, length: int) -> None:
    running.compare([b"POST /v1/check HTTP/1.1\r\nX-Long: " + b"A" * length])


@settings(max_examples=60)
@given(streams())
def test_generated_requests_have_the_outcome_of_aiohttp(running: RunningPair, packets: list[bytes]) -> None:
    event(str(running.compare(packets)))


@settings(max_examples=40)
@given(repeats())
def test_repeated_heads_have_the_outcome_of_aiohttp(running: RunningPair, packets: list[bytes]) -> None:
    event(str(running.compare(packets)))


@pytest.mark.long
@settings(max_examples=EXAMPLES)
@given(streams() | repeats())
def test_many_generated_requests_have_the_outcome_of_aiohttp(running: RunningPair, packets: list[bytes]) -> None:
    running.compare(packets)
