"""Connections of the own HTTP server: who answers, the order of answers, deadlines, slow clients and the end."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import ssl
import struct
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.authentication import oidc
from support.clients.http_pair import (
    ALLOW,
    CHECK,
    RawConnection,
    ServerPair,
    describe,
    on_every_loop,
    server_pair,
    settle,
)
from support.servers.idp import Authority, provider, token

from pdp.model.question import Caller
from pdp.surfaces.http import connection as http_connection
from pdp.surfaces.http.answers import EndpointAnswer
from pdp.surfaces.http.connection import HttpConnection
from pdp.surfaces.http.requests import RequestReader
from pdp.surfaces.http.routes import DecisionRoute

HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"


def post(body: bytes = b"{}", headers: bytes = HOST + JSON, path: str = CHECK, length: int | None = None) -> bytes:
    """Return the bytes of a plain request."""
    size = len(body) if length is None else length
    return b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (path.encode(), headers, size, body)


def statuses(connection: RawConnection) -> list[int]:
    return [answer.status for answer in connection.answers()]


def bodies(connection: RawConnection) -> list[Any]:
    return [json.loads(answer.body) for answer in connection.answers()]


def answered(count: int) -> Callable[[RawConnection], bool]:
    return lambda connection: len(connection.answers()) == count


def is_closed(connection: RawConnection) -> bool:
    return connection.closed


async def served(pair: ServerPair, *packets: bytes, count: int = 1, **options: Any) -> RawConnection:
    """Open a connection, send packets, and wait for answers."""
    connection = await RawConnection.open(pair.own_port, **options)
    await connection.send(packets)
    await connection.until(answered(count))
    return connection


class Gate:
    """Endpoint that answers when the test opens it."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.entered = 0
        self.cancelled = 0

    async def __call__(self, body: bytes, caller: Caller) -> EndpointAnswer:
        self.entered += 1
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return describe(body, caller)


# --- who answers --------------------------------------------------------------------------------------------------

CLIENTS = {
    "curl": b"Host: 127.0.0.1:8181\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n" + JSON,
    "go": b"Host: pdp:8181\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: 2\r\n" + JSON + b"Accept-Encoding: gzip\r\n",
    "java": b"Connection: keep-alive\r\nHost: localhost:8181\r\nUser-Agent: Java-http-client/21\r\n" + JSON,
    "trino": b"Host: localhost:8181\r\nContent-Type: application/json; charset=utf-8\r\nAccept: application/json\r\nUser-Agent: opa/0\r\n",
    "python": b"Host: localhost\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\nUser-Agent: python-httpx/0.28\r\n" + JSON,
    "rust": b"content-type: application/json\r\naccept: */*\r\nhost: localhost:8181\r\n",
    "node": b"host: localhost\r\nconnection: keep-alive\r\ncontent-type: application/json\r\naccept-language: *\r\n",
    "traced": HOST + JSON + b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\ntracestate: a=b\r\n",
    "cookies": HOST + JSON + b"Cookie: a=b; c=d\r\n",
}  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS)
@on_every_loop
async def test_requests_of_usual_clients_are_plain(tmp_path: Path, client: str) -> None:
    headers = CLIENTS[client].replace(b"Content-Length: 2\r\n", b"").replace(b"pdp:8181", b"localhost:8181")
    async with server_pair(tmp_path) as pair:
        connection = await served(pair, post(headers=headers), post(b"{} ", headers), count=2)
        assert statuses(connection) == [200, 200]
        assert pair.handed_over == []


@pytest.mark.parametrize(
    "sent",
    [
        post(headers=HOST + JSON + b"Connection: close\r\n"),
        post(headers=HOST + JSON + b"Expect: 100-continue\r\n"),
        post(path="/v1/list"),
        post(path=f"{ALLOW}?a=b"),
        post().replace(b"HTTP/1.1", b"HTTP/1.0"),
        post(headers=HOST + JSON + b"Accept: a\r\nAccept: b\r\n"),
    ],
    ids=["close", "expect", "route", "query", "version", "twice"],
)
@on_every_loop
async def test_other_requests_and_all_after_them_are_answered_by_aiohttp(tmp_path: Path, sent: bytes) -> None:
    async with server_pair(tmp_path) as pair:
        connection = await served(pair, post(), sent, count=2)
        assert statuses(connection) == [200, 200]
        assert pair.handed_over == [(len(post()), len(sent))]
        assert not pair.own._shared.open


@on_every_loop
async def test_the_answer_has_the_headers_of_aiohttp_but_names_no_software(tmp_path: Path) -> None:
    async with server_pair(tmp_path) as pair:
        own = (await served(pair, post())).received.partition(b"\r\n\r\n")[0].decode().split("\r\n")
        other = (await served(pair, post(headers=HOST + JSON + b"Accept: a\r\nAccept: b\r\n"))).received
        theirs = other.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    assert own[0] == theirs[0] == "HTTP/1.1 200 OK"
    names = {line.partition(":")[0] for line in own[1:]}
    assert names == {"Content-Type", "Content-Length", "Date", "X-Request-ID", "X-Decision-ID"}
    assert names | {"Server"} == {line.partition(":")[0] for line in theirs[1:]}


@pytest.mark.parametrize("pieces", [2, 4, 5, 9])
@on_every_loop
async def test_a_head_in_pieces_is_read(tmp_path: Path, pieces: int) -> None:
    sent = post(b"abc")
    cuts = [len(sent[:-5]) * at // pieces for at in range(pieces)] + [len(sent)]
    async with server_pair(tmp_path) as pair:
        connection = await RawConnection.open(pair.own_port)
        for start, end in pairwise(cuts):
            await connection.send([sent[start:end]])
            await asyncio.sleep(0.01)
        await connection.until(answered(1))
        assert statuses(connection) == [200]
        assert bool(pair.handed_over) == (pieces > 5)


@on_every_loop
async def test_heads_in_two_pieces_stay_plain_however_many_come(tmp_path: Path) -> None:
    async with server_pair(tmp_path) as pair:
        connection = await RawConnection.open(pair.own_port)
        for at in range(12):
            sent = post(b"a" * at)
            await connection.send([sent[:40]])
            await asyncio.sleep(0.005)
            await connection.send([sent[40:]])
            await connection.until(answered(at + 1))
        assert pair.handed_over == []


@on_every_loop
async def test_a_packet_of_one_request_is_answered_by_the_head_of_the_one_before(tmp_path: Path) -> None:
    same = [post(body) for body in (b"a", b"bb", b"c" * 3000, b"!bad")]
    others = [post(b"a", JSON + HOST), post(b"b", JSON + HOST), post(b"b", path=ALLOW)]
    cut = [post(b"ab")[:-1], b"b", post(b"c") * 2, post(b"d"), post(b"e", length=2), b"e", post(b"f")]
    async with server_pair(tmp_path) as pair:
        whole = await served(pair, *same, *others, count=7)
        assert statuses(whole) == [200, 200, 200, 400, 200, 200, 200]
        assert pair.own.repeats == [*same[1:], others[1]]
        pair.own.repeats.clear()
        parts = await served(pair, *cut, count=6)
        assert [body["bytes"] for body in bodies(parts)] == [2, 1, 1, 1, 2, 1]
        assert pair.own.repeats == [post(b"d"), post(b"f")]


@on_every_loop
async def test_another_header_behind_the_length_is_no_repeated_head(tmp_path: Path) -> None:
    first = b"POST %b HTTP/1.1\r\nContent-Length: 1\r\n%bHost: localhost\r\n\r\na" % (CHECK.encode(), JSON)
    evil = first.replace(b"localhost", b"evil.host")
    assert len(evil) == len(first)
    async with server_pair(tmp_path) as pair:
        connection = await served(pair, first, first, evil, first, count=4)
        assert statuses(connection) == [200, 200, 403, 200]
        assert pair.own.repeats == [first, first]


@on_every_loop
async def test_a_body_that_looks_like_a_repeated_request_is_a_body(tmp_path: Path) -> None:
    gate, inner = Gate(), post()
    async with server_pair(tmp_path, None, gate, limits={"max_in_flight": 1}) as pair:
        gate.open.set()
        connection = await served(pair, inner, post(b"", length=len(inner)), inner, count=2)
        assert [body["bytes"] for body in bodies(connection)] == [2, len(inner)]
        gate.open.clear()
        other = await served(pair, inner, count=0)
        await other.until(lambda _: gate.entered == 3)
        await connection.send([post(b"", length=len(inner))])
        await connection.until(answered(3))
        gate.open.set()
        await other.until(answered(1))
        await connection.send([inner, inner])  # the rest of the refused request, and another one
        await connection.until(answered(4))
        assert statuses(connection) == [200, 200, 429, 200]
        assert pair.own.repeats == [inner]


@on_every_loop
async def test_a_repeated_head_is_refused_as_the_first_is(tmp_path: Path) -> None:
    gate = Gate()
    async with server_pair(
        tmp_path, None, gate, limits={"max_in_flight": 1, "max_body_bytes": 1024, "request_timeout_seconds": 30}
    ) as pair:
        first, second = [await served(pair, count=0) for _ in range(2)]
        for connection in (first, second):  # the head is known on both
            gate.open.set()
            await connection.send([post()])
            await connection.until(answered(1))
        gate.open.clear()
        await first.send([post()])
        await first.until(lambda _: gate.entered == 3)
        await second.send([post()])
        await second.until(answered(2))
        assert statuses(second) == [200, 429]
        gate.open.set()
        await first.until(answered(2))
        await second.send([post(b"x" * 1025)])
        await second.until(answered(3))
        assert statuses(second) == [200, 429, 413]
        pair.own.drain()
        await first.send([post()])
        await first.until(is_closed)
        assert statuses(first) == [200, 200, 200]


@on_every_loop
async def test_a_body_in_many_packets_is_one_body(tmp_path: Path) -> None:
    body = bytes(range(256)) * 4000
    async with server_pair(tmp_path) as pair:
        sent = post(body) + post(b"next")
        connection = await served(pair, *(sent[at : at + 50_000] for at in range(0, len(sent), 50_000)), count=2)
        assert bodies(connection) == [
            json.loads(describe(one, Caller("loopback", frozenset())).body) for one in (body, b"next")
        ]
        assert pair.handed_over == []


@on_every_loop
async def test_a_failure_is_a_500_now_and_later(tmp_path: Path) -> None:
    def fail(body: bytes, caller: Caller) -> EndpointAnswer | None:
        if body == b"later":
            return None
        raise ValueError("a defect")

    async def fail_later(body: bytes, caller: Caller) -> EndpointAnswer:
        raise ConnectionError("a defect")

    async with server_pair(tmp_path, fail, fail_later) as pair:
        connection = await served(pair, post(b"now"), post(b"later"), count=2)
        assert [(answer.status, b"defect" in answer.body) for answer in connection.answers()] == [(500, False)] * 2
        assert pair.admission._requests == 0


# --- the order of answers -----------------------------------------------------------------------------------------


@on_every_loop
async def test_answers_keep_their_order_whether_now_or_later(tmp_path: Path) -> None:
    def sometimes(body: bytes, caller: Caller) -> EndpointAnswer | None:
        return None if len(body) % 3 == 0 else describe(body, caller)

    async with server_pair(tmp_path, sometimes) as pair:
        connection = await served(pair, b"".join(post(b"a" * at) for at in range(100)), count=100)
        assert [answer["bytes"] for answer in bodies(connection)] == list(range(100))
        assert pair.handed_over == []


@on_every_loop
async def test_a_burst_of_requests_leaves_turns_to_others(tmp_path: Path) -> None:
    entered = 0
    longest, last = 0, 0

    def immediate(body: bytes, caller: Caller) -> EndpointAnswer:
        nonlocal entered
        entered += 1
        return EndpointAnswer(b"1", "id")

    async def watch() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0)
            longest, last = max(longest, entered - last), entered

    async with server_pair(tmp_path, immediate) as pair:
        watching = asyncio.create_task(watch())
        await served(pair, post() * 500, count=500)
        watching.cancel()
    assert longest <= 2 * http_connection._MOST_PER_TURN


@on_every_loop
async def test_clients_that_reset_their_connections_take_no_answer_from_others(tmp_path: Path) -> None:
    reset = struct.pack("ii", 1, 0)
    async with server_pair(tmp_path) as pair:
        staying = await RawConnection.open(pair.own_port)
        for number in range(1, 9):
            leaving = [socket.create_connection(("127.0.0.1", pair.own_port)) for _ in range(6)]
            await asyncio.sleep(0.01)
            for client in leaving[:3]:
                client.sendall(post())
            await staying.send([post()])
            for client in leaving:
                if client not in leaving[:3]:
                    client.sendall(post())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                client.close()
            await staying.until(answered(number))
        assert set(statuses(staying)) == {200}


@on_every_loop
async def test_bytes_behind_a_slow_answer_are_bounded(tmp_path: Path) -> None:
    gate = Gate()
    async with server_pair(tmp_path, None, gate) as pair:
        connection = await RawConnection.open(pair.own_port)
        await connection.send([post(b"first")])
        assert await settle(lambda: gate.entered == 1, 5)
        flood = post(b"a" * 5000) * 1000  # 5 MB
        await connection.send([flood])
        (own,) = pair.own._shared.open
        assert await settle(lambda: own._reading_paused, 5)
        await asyncio.sleep(0.1)
        assert len(own._waiting) <= 1 << 19
        gate.open.set()
        assert await settle(lambda: connection.received.count(b"HTTP/1.1 200 OK") == 1001, 20)
        assert not own._reading_paused


@on_every_loop
async def test_a_client_that_reads_nothing_gets_no_further_answers(tmp_path: Path) -> None:
    entered = 0

    def immediate(body: bytes, caller: Caller) -> EndpointAnswer:
        nonlocal entered
        entered += 1
        return EndpointAnswer(b"x" * 100_000, "id")

    async with server_pair(tmp_path, immediate) as pair:
        connection = await RawConnection.open(pair.own_port)
        connection.transport.pause_reading()
        connection.transport.write(post() * 1000)
        count = -1
        while count != entered:  # until the buffers of both ends are full
            count = entered
            await asyncio.sleep(0.2)
        assert 0 < entered < 500
        (own,) = pair.own._shared.open
        assert own._transport.get_write_buffer_size() < 1 << 20
        connection.transport.resume_reading()
        assert await settle(lambda: len(connection.received) > 100_000_000, 30)
        assert connection.received.count(b"HTTP/1.1 200 OK") == entered == 1000


@on_every_loop
async def test_a_handed_over_connection_keeps_the_order_behind_a_client_that_reads_nothing(tmp_path: Path) -> None:
    async with server_pair(tmp_path, lambda body, caller: EndpointAnswer(b"x" * 3_000_000, "id")) as pair:
        connection = await RawConnection.open(pair.own_port)
        connection.transport.pause_reading()
        connection.transport.write(post() * 3 + post(path=f"{CHECK}?a=b"))
        await asyncio.sleep(0.2)
        assert pair.handed_over == []
        connection.transport.resume_reading()
        await connection.until(answered(4))
        assert len(pair.handed_over) == 1


# --- deadlines ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [b"", post()[:30], post()[:60], post()], ids=["nothing", "line", "header", "asked"])
@on_every_loop
async def test_an_idle_connection_is_closed_in_time(tmp_path: Path, start: bytes) -> None:
    async with server_pair(tmp_path, limits={"idle_timeout_seconds": 0.4}) as pair:
        connection = await RawConnection.open(pair.own_port)
        await connection.send([start])
        began = time.monotonic()
        await connection.until(is_closed)
        assert time.monotonic() - began > 0.3
        assert not pair.own._shared.open


@on_every_loop
async def test_each_answer_begins_the_idle_time_anew(tmp_path: Path) -> None:
    async with server_pair(tmp_path) as pair:
        connection = await served(pair, post())
        (own,) = pair.own._shared.open
        for at in range(3):
            before = own.deadline
            await asyncio.sleep(0.02)
            await connection.send([post()])
            await connection.until(answered(at + 2))
            assert before < own.deadline <= asyncio.get_running_loop().time() + 65


@on_every_loop
async def test_an_answer_that_takes_long_is_not_idle(tmp_path: Path) -> None:
    gate = Gate()
    async with server_pair(tmp_path, None, gate, limits={"idle_timeout_seconds": 0.2}) as pair:
        connection = await RawConnection.open(pair.own_port)
        await connection.send([post()])
        await asyncio.sleep(0.8)
        gate.open.set()
        await connection.until(answered(1))
        assert statuses(connection) == [200]


@on_every_loop
async def test_a_client_that_never_reads_its_answer_is_cut_off(tmp_path: Path) -> None:
    async with server_pair(
        tmp_path, lambda body, caller: EndpointAnswer(b"x" * 10_000_000, "id"), limits={"idle_timeout_seconds": 0.3}
    ) as pair:
        connection = await RawConnection.open(pair.own_port)
        connection.transport.pause_reading()
        connection.transport.write(post() * 3)
        assert await settle(lambda: bool(pair.own._shared.open), 5)
        assert await settle(lambda: not pair.own._shared.open, 10)
        connection.close()


@on_every_loop
async def test_a_slow_body_is_refused_and_the_connection_goes_on(tmp_path: Path) -> None:
    async with server_pair(tmp_path, limits={"request_timeout_seconds": 0.3}) as pair:
        connection = await served(pair, post(b"abc", length=10))
        assert statuses(connection) == [503]
        assert b"not answered within 0.3 seconds" in connection.answers()[0].body
        assert pair.admission._requests == pair.admission._bytes == 0
        await connection.send([b"defghij" + post(b"next")])
        await connection.until(answered(2))
        assert statuses(connection) == [503, 200]
        assert bodies(connection)[1]["bytes"] == 4


@on_every_loop
async def test_the_rest_of_a_refused_body_is_awaited_for_a_while_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "LINGER_SECONDS", 0.3)
    async with server_pair(tmp_path, limits={"request_timeout_seconds": 0.3}) as pair:
        connection = await served(pair, post(b"abc", length=10))
        await connection.until(is_closed)
        assert statuses(connection) == [503]


@on_every_loop
async def test_the_arrival_of_a_body_counts_for_the_deadline_of_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    answer = DecisionRoute.later

    async def later(route: DecisionRoute, body: bytes, caller: Caller, deadline: float) -> Any:
        given.append(deadline)
        return await answer(route, body, caller, deadline)

    monkeypatch.setattr(DecisionRoute, "later", later)
    async with server_pair(tmp_path, None, limits={"request_timeout_seconds": 30}) as pair:
        connection = await RawConnection.open(pair.own_port)
        await connection.send([post(b"abc", length=4)])
        assert await settle(lambda: pair.admission._requests == 1, 5)
        (own,) = pair.own._shared.open
        deadline = own.deadline
        await asyncio.sleep(0.05)
        await connection.send([b"d"])
        await connection.until(answered(1))
        assert given == [deadline]


# --- limits -------------------------------------------------------------------------------------------------------


@on_every_loop
async def test_requests_beyond_those_in_flight_are_refused_and_the_connection_goes_on(tmp_path: Path) -> None:
    gate = Gate()
    async with server_pair(tmp_path, None, gate, limits={"max_in_flight": 1}) as pair:
        holding = await RawConnection.open(pair.own_port)
        await holding.send([post(b"abc")])
        assert await settle(lambda: gate.entered == 1, 5)
        connection = await served(pair, post(b"whole"), post(b"half", length=8), count=2)
        assert statuses(connection) == [429, 429]
        gate.open.set()
        await holding.until(answered(1))
        await connection.send([b"half", post(b"last")])
        await connection.until(answered(3))
        assert statuses(connection) == [429, 429, 200]
        assert bodies(connection)[2]["bytes"] == 4
        assert pair.handed_over == []


@on_every_loop
async def test_a_client_that_disconnects_frees_its_place(tmp_path: Path) -> None:
    gate = Gate()
    async with server_pair(tmp_path, None, gate) as pair:
        for sent in (post(), post(b"ab", length=3)):
            connection = await RawConnection.open(pair.own_port)
            await connection.send([sent])
            assert await settle(lambda: pair.admission._requests == 1, 5)
            connection.close()
            assert await settle(lambda: pair.admission._requests == pair.admission._bytes == 0, 5)
        assert (gate.entered, gate.cancelled) == (1, 1)
        assert not pair.own._shared.open


@on_every_loop
async def test_bodies_that_never_come_hold_no_place(tmp_path: Path) -> None:
    async with server_pair(tmp_path, limits={"max_in_flight": 1}) as pair:
        for _ in range(10):
            holding = await RawConnection.open(pair.own_port)
            await holding.send([post(b"", length=8_000_000)])
        assert await settle(lambda: pair.admission._requests == 10, 5)
        assert pair.admission._bytes == 0
        connection = await served(pair, post(b"whole"), post(b"again"), count=2)
        assert statuses(connection) == [200, 200]


@on_every_loop
async def test_bytes_beyond_those_in_flight_are_refused_as_they_arrive(tmp_path: Path) -> None:
    async with server_pair(tmp_path, limits={"max_body_bytes": 1024}) as pair:
        for _ in range(8):
            holding = await RawConnection.open(pair.own_port)
            await holding.send([post(b"x" * 1000, length=1024)])
        assert await settle(lambda: pair.admission._bytes == 8000, 5)
        connection = await served(pair, post(b"x" * 100, length=1024), count=0)
        assert await settle(lambda: pair.admission._bytes == 8100, 5)
        await connection.send([b"x" * 100])
        await connection.until(answered(1))
        assert statuses(connection) == [429]
        assert pair.admission._bytes == 8000
        await connection.send([b"x" * 824, post(b"last")])
        await connection.until(answered(2))
        assert statuses(connection) == [429, 200]


@on_every_loop
async def test_connections_that_wait_for_answers_are_never_closed_for_new_ones(tmp_path: Path) -> None:
    gate = Gate()
    async with server_pair(tmp_path, None, gate) as pair:
        pair.own._most = 2
        asking = [await RawConnection.open(pair.own_port) for _ in range(4)]
        for connection in asking:
            await connection.send([post()])
        assert await settle(lambda: gate.entered == 4 or len(pair.own._shared.open) < 4, 5)
        waiting = [connection for connection in asking if not connection.closed]
        while len(waiting) < 4:
            waiting.append(await RawConnection.open(pair.own_port))
            await waiting[-1].send([post()])
        assert await settle(lambda: gate.entered >= 4, 5)
        assert not pair.own.is_crowded()
        refused = await RawConnection.open(pair.own_port)
        await refused.until(is_closed)
        assert pair.own.is_crowded()
        gate.open.set()
        for connection in waiting:
            await connection.until(answered(1))


# --- callers ------------------------------------------------------------------------------------------------------


def bearer(text: str) -> bytes:
    return HOST + JSON + f"Authorization: Bearer {text}\r\n".encode()


@on_every_loop
async def test_a_token_is_verified_once_and_the_connection_stays(tmp_path: Path) -> None:
    async with provider() as idp, server_pair(tmp_path, identity={"providers": {"oidc": oidc(idp)}}) as pair:
        alice, bob = bearer(token()), bearer(token(sub="bob"))
        connection = await served(pair, post(headers=alice) + post(headers=bob), post(headers=alice), count=3)
        assert [answer["caller"] for answer in bodies(connection)] == [
            "user:oidc~alice",
            "user:oidc~bob",
            "user:oidc~alice",
        ]
        another = await served(pair, post(headers=bob))
        assert bodies(another)[0]["caller"] == "user:oidc~bob"
        assert pair.handed_over == []


@pytest.mark.parametrize("half", [False, True], ids=["whole", "half"])
@on_every_loop
async def test_a_bad_token_is_refused_and_the_connection_goes_on(tmp_path: Path, half: bool) -> None:
    async with provider() as idp, server_pair(tmp_path, identity={"providers": {"oidc": oidc(idp)}}) as pair:
        bad = post(b"abcd", bearer("abc.def.ghi"))
        cut = len(bad) - 2 if half else len(bad)
        connection = await served(pair, bad[:cut])
        await connection.send([bad[cut:] + post(headers=bearer(token())) + post(headers=bearer("abc"))])
        await connection.until(answered(3))
        assert statuses(connection) == [401, 200, 401]
        assert ("www-authenticate", "Bearer") in connection.answers()[0].headers
        assert pair.handed_over == []


@pytest.mark.waits
@on_every_loop
async def test_a_token_that_expires_is_refused_on_the_same_connection(tmp_path: Path) -> None:
    async with provider() as idp, server_pair(tmp_path, identity={"providers": {"oidc": oidc(idp)}}) as pair:
        expiry = int(time.time()) + 4
        sent = post(headers=bearer(token(exp=expiry)))
        connection = await served(pair, sent)
        await asyncio.sleep(expiry + 0.1 - time.time())
        await connection.send([sent])
        await connection.until(answered(2))
        assert statuses(connection) == [200, 401]


@on_every_loop
async def test_a_client_that_leaves_during_the_verification_leaves_nothing_behind(tmp_path: Path) -> None:
    async with provider() as idp, server_pair(tmp_path, identity={"providers": {"oidc": oidc(idp)}}) as pair:
        idp.delay = 0.5
        connection = await RawConnection.open(pair.own_port)
        await connection.send([post(headers=bearer(token(headers={"kid": "new"})))])
        assert await settle(lambda: any(own._task for own in pair.own._shared.open), 5)
        connection.close()
        assert await settle(lambda: not pair.own._shared.open, 5)


@on_every_loop
async def test_the_loopback_rules_hold_for_each_head(tmp_path: Path) -> None:
    async with server_pair(tmp_path) as pair:
        connection = await served(pair, post())
        for headers, status in (
            (b"Host: evil.example\r\n" + JSON, 403),
            (HOST + JSON + b"Origin: http://evil.example\r\n", 403),
            (HOST + JSON + b"X-Forwarded-For: 192.0.2.1\r\n", 403),
            (HOST + JSON, 200),
        ):
            count = len(connection.answers()) + 1
            await connection.send([post(headers=headers)])
            await connection.until(answered(count))
            assert statuses(connection)[-1] == status
        assert pair.handed_over == []


@on_every_loop
@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://evil.example", "localhost", 403),
        ("http://evil.example", "127.0.0.1:8181", 403),
        ("http://evil.example:8181", "localhost", 403),
        ("HTTP://evil.example", "localhost", 403),
        ("https://evil.example", "localhost", 403),
        ("http://127.0.0.1@evil.example", "localhost", 403),
        ("http://127.0.0.1.evil.example", "localhost", 403),
        ("http://localhost:8181", "localhost", 200),
        ("http://127.0.0.1", "127.0.0.1", 200),
        ("http://[::1]:8181", "[::1]:8181", 200),
        ("http://localhost", "evil.example", 200),
        ("", "localhost", 200),
    ],
)
async def test_the_host_of_a_target_in_absolute_form_counts(
    tmp_path: Path, target: str, host: str, status: int
) -> None:
    """RFC 9112 section 3.2.2: the target replaces what the Host header says."""
    async with server_pair(tmp_path) as pair:
        headers = b"Host: %b\r\n" % host.encode() + JSON
        connection = await served(pair, post(headers=headers, path=target + CHECK))
        assert statuses(connection) == [status]


# --- other transports ---------------------------------------------------------------------------------------------


@on_every_loop
async def test_tls_is_served_plain_and_handed_over(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    client = ssl.create_default_context(cafile=str(authority.path))
    async with server_pair(tmp_path, tls=context) as pair:
        options = {"ssl": client, "server_hostname": "localhost"}
        body = b"a" * 300_000
        connection = await served(pair, post(), post(body), post(path=ALLOW), count=3, **options)
        assert pair.handed_over == []
        await connection.send([post(path=f"{ALLOW}?a=b") + post()])
        await connection.until(answered(5))
        assert statuses(connection) == [200] * 5
        assert len(pair.handed_over) == 1
        connection.close()


@on_every_loop
async def test_a_unix_socket_names_its_user(tmp_path: Path) -> None:
    identity = {"callers": {"sidecar": {"unix_socket": True}}}
    async with server_pair(tmp_path, identity=identity) as pair:
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(pair.own, str(tmp_path / "socket"))
        _, connection = await loop.create_unix_connection(RawConnection, str(tmp_path / "socket"))
        await connection.send([post(headers=b"Host: anything\r\n" + JSON)])
        await connection.until(answered(1))
        assert bodies(connection)[0]["caller"].startswith("sidecar:uid=")
        assert pair.handed_over == []
        connection.close()
        server.close()


# --- the end ------------------------------------------------------------------------------------------------------


@on_every_loop
async def test_a_draining_server_lets_a_refused_body_arrive(tmp_path: Path) -> None:
    gate = Gate()
    async with server_pair(tmp_path, None, gate, limits={"max_in_flight": 1}) as pair:
        holding = await RawConnection.open(pair.own_port)
        await holding.send([post(b"abc")])
        assert await settle(lambda: gate.entered == 1, 5)
        pair.own.drain()
        connection = await served(pair, post(b"half", length=8))
        await asyncio.sleep(0.05)
        assert not connection.closed
        await connection.send([b"half"])
        await connection.until(is_closed)
        assert statuses(connection) == [429]


@on_every_loop
async def test_refusals_make_no_reference_cycles(tmp_path: Path) -> None:
    limits, gate = {"max_in_flight": 1}, Gate()
    gate.open.set()
    async with (
        provider() as idp,
        server_pair(tmp_path, None, gate, identity={"providers": {"oidc": oidc(idp)}}, limits=limits) as pair,
    ):
        good, bad = post(headers=bearer(token())), post(headers=bearer("abc.def.ghi"))
        holding = await served(pair, good)
        gate.open.clear()
        await holding.send([good])
        assert await settle(lambda: gate.entered == 2, 5)
        gc.collect()
        gc.disable()
        try:
            connection = await served(pair, good, bad, count=2)
            connection.close()
            assert await settle(lambda: len(pair.own._shared.open) == 1, 5)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            found = [one for one in gc.garbage if isinstance(one, Exception | HttpConnection | RequestReader)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        assert statuses(connection) == [429, 401]
        assert found == []


@on_every_loop
async def test_a_stop_closes_idle_connections_and_awaits_answers(tmp_path: Path) -> None:
    gate = Gate()
    async with server_pair(tmp_path, None, gate) as pair:
        idle, asking = [await RawConnection.open(pair.own_port) for _ in range(2)]
        await asking.send([post(b"abc") + post(b"behind")])
        assert await settle(lambda: gate.entered == 1, 5)
        stopping = asyncio.create_task(pair.stop())
        await idle.until(is_closed)
        assert not asking.closed
        gate.open.set()
        await asking.until(is_closed)
        await stopping
        assert [answer["bytes"] for answer in bodies(asking)] == [3]
        assert not pair.own._shared.open


@on_every_loop
async def test_a_stop_cuts_off_requests_that_take_too_long(tmp_path: Path) -> None:
    gate = Gate()
    async with server_pair(tmp_path, None, gate) as pair:
        deciding, arriving = [await RawConnection.open(pair.own_port) for _ in range(2)]
        await deciding.send([post()])
        await arriving.send([post(b"ab", length=3)])
        assert await settle(lambda: pair.admission._requests == 2, 5)
        began = time.monotonic()
        await pair.stop()
        assert time.monotonic() - began < 8
        await deciding.until(is_closed)
        await arriving.until(is_closed)
        assert await settle(lambda: pair.admission._requests == 0, 5)


@on_every_loop
async def test_a_body_that_completes_during_a_stop_is_answered(tmp_path: Path) -> None:
    async with server_pair(tmp_path) as pair:
        connection = await RawConnection.open(pair.own_port)
        await connection.send([post(b"ab", length=3)])
        assert await settle(lambda: pair.admission._requests == 1, 5)
        stopping = asyncio.create_task(pair.stop())
        await asyncio.sleep(0.05)
        await connection.send([b"c"])
        await connection.until(is_closed)
        await stopping
        assert statuses(connection) == [200]


@on_every_loop
async def test_a_half_closed_connection_gets_the_answers_that_are_there(tmp_path: Path) -> None:
    async with server_pair(tmp_path) as pair:
        with socket.create_connection(("127.0.0.1", pair.own_port)) as client:
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, post())
            client.shutdown(socket.SHUT_WR)
            received = b""
            async with asyncio.timeout(5):
                while more := await loop.sock_recv(client, 65536):
                    received += more
        assert received.startswith(b"HTTP/1.1 200 OK")
