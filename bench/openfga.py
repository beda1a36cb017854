"""Cost of checks and filters over HTTP, beside a real OpenFGA on PostgreSQL. Prints a table and asserts no time.

python bench/openfga.py [tables] [fanout]
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import compress, cycle
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

sys.path.append(str(Path(__file__).parent.parent / "tests"))

import lakehouses
import openfga_peer
from lakehouses import BATCH, FAN_OUT, FAN_OUT_KINDS, KINDS, TEN_THOUSAND, AskedRight
from loopback import Connection
from support.servers.openfga import GET_IT, binary
from support.service.serving import serve_process

BATCHES: Final = "20 BatchChecks of 50"
MISSING: Final = f"""
  ==========================================================================
  OpenFGA IS NOT INSTALLED: NO COMPARISON WAS MADE, the figures below are ours alone
    {GET_IT}
  or name its binary in $OPENFGA
  ==========================================================================
"""


def heading(title: str) -> None:
    """Print the title and the heads of the columns."""
    print(f"{title}\n  {'':<66} {'ours':>10} {'':<8} {'OpenFGA':>10} {'ratio':>10}")


def row(label: str, ours: float, theirs: float | None, unit: str, goal: str = "") -> None:
    """Print one line. The ratio tells how many times better ours is: low times are good, high rates are good."""
    line = f"  {label:<66} {ours:>10,.2f} {unit:<8}"
    if theirs is not None:
        ratio = ours / theirs if unit == "checks/s" else theirs / ours
        line += f" {theirs:>10,.1f} {ratio:>9,.1f}x"
    print(f"{line:<109} {goal}".rstrip(), flush=True)


class Peer(NamedTuple):
    """A server. `batch` encodes the request of a batch of questions, `allowed` decodes the response."""

    url: str
    batch: Callable[[Sequence[AskedRight]], bytes]
    allowed: Callable[[bytes], list[bool]]


def our_request(url: str, questions: Sequence[AskedRight]) -> bytes:
    """Return the request of a batch for our service."""
    checks = [{"principal": principal, "action": action, "resource": text} for principal, action, text in questions]
    return Connection.request(f"{url}/v1/check", json.dumps({"checks": checks}).encode())


def our_answer(answer: bytes) -> list[bool]:
    """Return the decisions in a response of our service."""
    return [decision["allowed"] for decision in json.loads(answer)["decisions"]]


def trino_request(url: str, user: str, tables: Sequence[str]) -> bytes:
    """Return the request that Trino sends to filter the tables of a catalog."""
    parts = [text.split("/") for text in tables]
    resources = [{"table": {"catalogName": "lake", "schemaName": part[1], "tableName": part[2]}} for part in parts]
    identity = {"identity": {"user": user.partition("~")[2], "groups": []}, "softwareStack": {"trinoVersion": "476"}}
    action = {"operation": "FilterTables", "filterResources": resources}
    body = json.dumps({"input": {"context": identity, "action": action}}, separators=(",", ":"))
    return Connection.request(f"{url}/v1/data/trino/batch", body.encode())


@contextmanager
def ours(data: Mapping[str, Any], catalog: str) -> Iterator[Peer]:
    """Run `pdp serve` with a world file and an audit. Trino's catalog `lake` is the warehouse `catalog`."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        (base / "world.json").write_text(json.dumps(data))
        config = {
            "authorities": {"default": {"engines": ["grants"]}},
            "policies": {"rules": []},
            "store": {"url": "file:world.json"},
            "trino": {"catalogs": {"lake": {"warehouse": catalog}}},
            "audit": {"sinks": [{"file": "audit"}]},
        }
        (base / "pdp.yaml").write_text(json.dumps(config))
        with serve_process(base, "-c", str(base / "pdp.yaml"), fresh=True) as process:
            url = process.url("")
            yield Peer(url, lambda questions: our_request(url, questions), our_answer)


def once(url: str, requests: Sequence[bytes]) -> float:
    """Return the median milliseconds of requests, each sent once over one connection."""
    with Connection(url) as connection:
        return median(milliseconds(connection.send, request) for request in requests)


def again(url: str, requests: Sequence[bytes], seconds: float = 1) -> float:
    """Return the median milliseconds of requests, repeated in turn over one connection."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    with Connection(url) as connection:
        for request in cycle(requests):
            found.append(milliseconds(connection.send, request))
            if time.perf_counter() > end:
                return median(found)
    raise AssertionError


def milliseconds(run: Callable[[bytes], object], request: bytes) -> float:
    """Return the milliseconds of one call."""
    start = time.perf_counter()
    run(request)
    return (time.perf_counter() - start) * 1e3


def rate(url: str, batches: Iterable[bytes], connections: int, seconds: float = 3) -> float:
    """Return checks per second over several connections, until the time or the batches end."""
    end = time.perf_counter() + seconds
    unsent = iter(batches)

    def work(_: int) -> int:
        done = 0
        with Connection(url) as connection:
            for request in unsent:
                connection.send(request)
                done += 1
                if time.perf_counter() > end:
                    break
        return done

    start = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        return sum(pool.map(work, range(connections))) * BATCH / (time.perf_counter() - start)


def check_agreement(ours: Peer, theirs: Peer, questions: Sequence[AskedRight]) -> None:
    """Exit if the two servers answer a question differently."""
    with Connection(ours.url) as our_connection, Connection(theirs.url) as their_connection:
        for at in range(0, len(questions), BATCH):
            some = questions[at : at + BATCH]
            our_answers = ours.allowed(our_connection.send(ours.batch(some)))
            their_answers = theirs.allowed(their_connection.send(theirs.batch(some)))
            for question, our_answer, their_answer in zip(some, our_answers, their_answers, strict=True):
                if our_answer != their_answer:
                    raise SystemExit(f"{question}: ours says {our_answer}, OpenFGA {their_answer}")


def likely_questions(data: Mapping[str, Any], count: int) -> list[AskedRight]:
    """Return questions of grantees about their granted objects, so that many are allowed."""
    rng = random.Random(31)
    questions = []
    for grant in rng.sample(data["grants"], count):
        type = grant["object"].partition(":")[0]
        if type in lakehouses.ACTIONS:
            questions.append((grant["principal"], rng.choice(lakehouses.ACTIONS[type]), grant["object"]))
    return questions


def compare_answers(mine: Peer, theirs: Peer, data: Mapping[str, Any], questions: Sequence[AskedRight]) -> None:
    """Exit if the servers disagree; print how many of the answers are allowed."""
    every = [*questions, *likely_questions(data, min(300, len(data["grants"])))]
    check_agreement(mine, theirs, every)
    with Connection(mine.url) as connection:
        parts = [every[at : at + BATCH] for at in range(0, len(every), BATCH)]
        allowed = sum(sum(mine.allowed(connection.send(mine.batch(part)))) for part in parts)
    print(f"  {len(every)} random questions are answered alike, {allowed} of them with yes")


@contextmanager
def peer(data: Mapping[str, Any]) -> Iterator[tuple[Peer, openfga_peer.Store] | None]:
    """Run OpenFGA with the tuples of a world. Yield None, and print a notice, if OpenFGA is not installed."""
    openfga = binary()
    if openfga is None:
        print(MISSING)
        yield None
        return
    with tempfile.TemporaryDirectory() as folder, openfga_peer.serving(openfga, Path(folder)) as url:
        store = openfga_peer.Store(url, "bench")
        start = time.perf_counter()
        count = store.write(data)
        print(f"  {count:,} tuples written to OpenFGA in {time.perf_counter() - start:.0f} s")
        yield Peer(url, store.batch, openfga_peer.allowed), store


def tables() -> None:
    """Measure checks and filters over 10,000 tables."""
    heading("10,000 tables, 1,000 users, 50 roles, 2,000 grants, over HTTP")
    data = lakehouses.ten_thousand()
    with ExitStack() as stack:
        mine = stack.enter_context(ours(data, "w0"))
        found = stack.enter_context(peer(data))
        if found:
            compare_answers(mine, found[0], data, TEN_THOUSAND.questions(random.Random(37), 300))
        filters(mine, found[1] if found else None)
        batches(mine, found[0] if found else None)
    print()


def batches(mine: Peer, theirs: Peer | None) -> None:
    """Measure batches, each sent once. Visibility from below is slowest in OpenFGA and therefore measured apart."""
    rng = random.Random(41)
    mixes = {
        "of one user, but for visibility from below": (False, True),
        "of anybody, but for visibility from below": (False, False),
        "of anybody, all actions": (True, False),
    }
    for mix, (below, alone) in mixes.items():
        rates = []
        for one, count in ((mine, 3_000), (theirs, 300)):
            if one:
                made = [one.batch(mixed(rng, below=below, alone=alone)) for _ in range(count)]
                rates.append(rate(one.url, made, 2))
        what = f"batches of {BATCH} mixed checks {mix}"
        row(what, rates[0], rates[1] if theirs else None, "checks/s", "goal 100x")


def mixed(rng: random.Random, *, below: bool, alone: bool) -> list[AskedRight]:
    """Return one batch of questions, of a single user if `alone`."""
    user = TEN_THOUSAND.user(rng)
    questions = TEN_THOUSAND.questions(rng, BATCH, below=below)
    return [(user, action, text) for _, action, text in questions] if alone else questions


def filters(mine: Peer, store: openfga_peer.Store | None) -> None:
    """Measure the filter of 1,000 tables: the first of a user, and repeated ones with full caches on both sides."""
    in_order = TEN_THOUSAND.tables_of(0)
    names = random.Random(43).sample(in_order, len(in_order))  # Trino sends them in no order
    for kind, users in KINDS.items():
        requests = [trino_request(mine.url, user, names) for user in users]
        first = once(mine.url, requests)
        with Connection(mine.url) as connection:
            visible = [{names[at] for at in json.loads(connection.send(request))["result"]} for request in requests]
        usual = again(mine.url, requests)
        print(f"  1,000 tables of 20 schemas shown to a user with {kind}, a Trino batch with audit")
        if store is None:
            row("  first time", first, None, "ms", "goal <= 1.2 ms")
            row("  again", usual, None, "ms", "goal <= 1.2 ms")
            continue
        for way, (cold, warm) in filter_openfga(store, users, in_order, visible).items():
            goal = "goal <= 1.2 ms, 500x" if way == BATCHES else "goal 5x"
            row(f"  first time; theirs by {way}", first, cold, "ms", goal)
            row(f"  again; theirs by {way}, all of it cached", usual, warm, "ms")


def filter_openfga(
    store: openfga_peer.Store, users: Sequence[str], names: Sequence[str], visible: Sequence[set[str]]
) -> dict[str, tuple[float, float]]:
    """Measure the same filter by the three APIs of OpenFGA: the first of a user, and again with warm caches.

    Exit if a result differs from ours (`visible`).
    """
    found = {BATCHES: filter_by_batches(store, users, names, visible)}
    for way, streamed in (("ListObjects", False), ("StreamedListObjects", True)):
        requests = [store.list(user, "include_in_list", "table", streamed=streamed) for user in users]
        first = once(store.url, requests)
        with Connection(store.url) as connection:
            for user, request, wanted in zip(users, requests, visible, strict=True):
                if set(openfga_peer.objects(connection.send(request))) & set(names) != wanted:
                    raise SystemExit(f"{way} lists other tables to {user}")
        found[way] = first, again(store.url, requests)
    return found


def filter_by_batches(
    store: openfga_peer.Store, users: Sequence[str], names: Sequence[str], visible: Sequence[set[str]]
) -> tuple[float, float]:
    """Measure twenty BatchChecks of fifty, each about one schema, four at a time: more at a time take longer."""
    parts = [names[at : at + BATCH] for at in range(0, len(names), BATCH)]
    times: list[list[float]] = [[], []]
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(store.url)) for _ in range(4)]
        pool = stack.enter_context(ThreadPoolExecutor(len(connections)))
        for user, wanted in zip(users, visible, strict=True):
            requests = [store.batch([(user, "include_in_list", name) for name in part]) for part in parts]
            shares = [requests[at :: len(connections)] for at in range(len(connections))]
            for several in times:
                start = time.perf_counter()
                answers = list(pool.map(send_all, connections, shares))
                several.append((time.perf_counter() - start) * 1e3)
            found = set()
            for at, share in enumerate(answers):
                for part, answer in zip(parts[at :: len(connections)], share, strict=True):
                    found |= set(compress(part, openfga_peer.allowed(answer)))
            if found != wanted:
                raise SystemExit(f"BatchCheck shows other tables to {user}")
            if times[0][-1] > 30_000:
                break
    return median(times[0]), median(times[1])


def send_all(connection: Connection, requests: Sequence[bytes]) -> list[bytes]:
    """Send requests one after the other; return the bodies of the responses."""
    return [connection.send(request) for request in requests]


def fanout() -> None:
    """Measure checks on a warehouse with many objects below."""
    heading("one warehouse, 68 namespaces, 353 tables: checks on the warehouse, each user asked once, over HTTP")
    data = lakehouses.fan_out()
    with ExitStack() as stack:
        mine = stack.enter_context(ours(data, "wide"))
        found = stack.enter_context(peer(data))
        for kind, users in FAN_OUT_KINDS.items():
            half = len(users) // 2
            for action, some in (("use", users[:half]), ("get_metadata", users[half:])):
                questions = [(user, action, FAN_OUT) for user in some]
                fast = once(mine.url, [mine.batch([question]) for question in questions])
                slow = once(found[0].url, [found[1].check(*question) for question in questions]) if found else None
                row(f"{action} by a user with {kind}", fast, slow, "ms")
        if found:
            check_agreement(
                mine, found[0], [(user, "use", FAN_OUT) for users in FAN_OUT_KINDS.values() for user in users]
            )
    print()


PARTS: Final = {"tables": tables, "fanout": fanout}

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # the exit stops the servers
    print(f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} before\n")
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
