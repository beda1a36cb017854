"""How fast grants decide, beside a real OpenFGA on PostgreSQL; prints a table, asserts nothing timed.

python bench/grants.py [engine] [tables] [fanout] [million]
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain, compress, cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple, TypeAlias

sys.path.append(str(Path(__file__).parent.parent / "tests"))

import lakehouses
import openfga_peer
from lakehouses import FAN_OUT, FAN_OUT_KINDS, KINDS, MILLION, TEN_THOUSAND, Layout, Question
from loopback import Connection
from support.serving import serve_process

from pdp.engines.engine import Group
from pdp.engines.grants.engine import GrantsEngine
from pdp.facts.objects import SERVER, Change, Grant, GrantAdded, Object, ObjectPut, key_from_text
from pdp.facts.snapshot import Facts
from pdp.model.checks import Env, Resource
from pdp.model.references import parse_principal, parse_resource
from pdp.store.sql import open_store

BATCH: Final = openfga_peer.BATCH
Asked: TypeAlias = tuple[Group, tuple[Resource, ...]]
"""What the engine is asked once."""
BATCHES: Final = "20 BatchChecks of 50"
MISSING: Final = f"""
  ==========================================================================
  OpenFGA IS NOT INSTALLED: NO COMPARISON WAS MADE, what follows is ours alone
    {openfga_peer.GET_IT}
  or name its binary in $OPENFGA
  ==========================================================================
"""


class Peer(NamedTuple):
    """A server, and how a batch of questions is put to it and its answers are read."""

    url: str
    batch: Callable[[Sequence[Question]], bytes]
    allowed: Callable[[bytes], list[bool]]


def heading(what: str) -> None:
    print(f"{what}\n  {'':<66} {'ours':>10} {'':<8} {'OpenFGA':>10} {'ratio':>10}")


def row(what: str, ours: float, theirs: float | None, unit: str, goal: str = "") -> None:
    """One line: ours, theirs, and how many times better ours is: a time is better low, a rate is better high."""
    line = f"  {what:<66} {ours:>10,.2f} {unit:<8}"
    if theirs is not None:
        ratio = ours / theirs if unit == "checks/s" else theirs / ours
        line += f" {theirs:>10,.1f} {ratio:>9,.1f}x"
    print(f"{line:<109} {goal}".rstrip(), flush=True)


# --- the engine in process ----------------------------------------------------------------------------------------


def load(objects: Iterable[Mapping[str, Any]], grants: Iterable[Mapping[str, str]]) -> Facts:
    """A world's entries as facts, in memory."""
    changes = list(put(objects))
    return Facts.build("bench", 0, [change.object for change in changes], (one.grant for one in add(grants)))


def put(objects: Iterable[Mapping[str, Any]]) -> Iterator[ObjectPut]:
    for entry in objects:
        project = entry.get("parent", "").partition(":")[2]
        yield ObjectPut(Object(key_from_text(entry["object"]), project, entry.get("managedAccess", False)))


def add(grants: Iterable[Mapping[str, str]]) -> Iterator[GrantAdded]:
    """Grants on the same object share its key, as they do when they come from a store."""
    text, key = "", SERVER
    for grant in grants:
        if grant["object"] != text:
            text, key = grant["object"], key_from_text(grant["object"])
        yield GrantAdded(Grant(key, grant["privilege"], sys.intern(grant["principal"])))


def asked(question: Question) -> Asked:
    """A question as the engine is asked it."""
    principal, action, text = question
    resource = parse_resource(text)
    return Group(parse_principal(principal), action, resource.type, resource.warehouse, None, False, Env()), (resource,)


def thousand(user: str, action: str = "include_in_list") -> Asked:
    """One question about the thousand tables of the first warehouse."""
    tables = TEN_THOUSAND.tables_of(0)
    group, _ = asked((user, action, tables[0]))
    return group, tuple(map(parse_resource, tables))


def per_check(engine: GrantsEngine, facts: Facts, checks: Sequence[Asked]) -> float:
    """Microseconds of processor time for one resource, each asked once."""
    start = time.process_time()
    for group, resources in checks:
        engine.decide(group, resources, facts)
    return (time.process_time() - start) * 1e6 / sum(len(resources) for _, resources in checks)


def engine_costs(engine: GrantsEngine, facts: Facts, layout: Layout) -> dict[str, float]:
    """What one mixed check costs: of users never seen before, and of users seen before about objects never asked."""
    rng = random.Random(23)
    users = [f"user:oidc~u{number}" for number in range(0, layout.users, layout.users // 1_000)]
    first = [(user, *question[1:]) for user, question in zip(users, layout.questions(rng, len(users)), strict=True)]
    later = [(rng.choice(users), *question[1:]) for question in layout.questions(rng, 20_000)]
    gc.freeze()
    fresh = per_check(engine, facts, [asked(question) for question in first])
    parts = [[asked(question) for question in later[at : at + 1_000]] for at in range(0, len(later), 1_000)]
    return {"fresh": fresh, "known": median(per_check(engine, facts, part) for part in parts)}


def engine() -> None:
    heading("the engine in process (processor time), 10,000 tables and 2,000 grants")
    data = lakehouses.ten_thousand()
    facts, engine = load(data["objects"], data["grants"]), GrantsEngine()
    costs = engine_costs(engine, facts, TEN_THOUSAND)
    row("a mixed check, the first of its user", costs["fresh"], None, "us")
    row("a mixed check, never asked before", costs["known"], None, "us", "goal <= 5")
    questions = TEN_THOUSAND.questions(random.Random(29), 200 * BATCH)
    batches = [gathered(questions[at : at + BATCH]) for at in range(0, len(questions), BATCH)]
    each = median(per_check(engine, facts, one) for one in batches)
    row(f"in a batch of {BATCH} mixed, a check", each, None, "us", "goal <= 5")
    for kind, users in KINDS.items():
        checks = [thousand(user) for user in users]
        first, again = (
            median(per_check(engine, facts, [one]) for _ in range(times) for one in checks) for times in (1, 20)
        )
        row(f"1,000 tables of a user with {kind}, a table", first, None, "us", "goal <= 5")
        row("  the same again", again, None, "us")
    print()


def gathered(questions: Sequence[Question]) -> list[Asked]:
    """A batch as the service hands it on: what differs in the resource alone is asked at once."""
    groups: dict[Group, tuple[Resource, ...]] = {}
    for group, resources in map(asked, questions):
        groups[group] = (*groups.get(group, ()), *resources)
    return list(groups.items())


# --- over HTTP ----------------------------------------------------------------------------------------------------


def our_request(url: str, questions: Sequence[Question]) -> bytes:
    checks = [{"principal": principal, "action": action, "resource": text} for principal, action, text in questions]
    return Connection.request(f"{url}/v1/check", json.dumps({"checks": checks}).encode())


def our_answer(answer: bytes) -> list[bool]:
    return [decision["allowed"] for decision in json.loads(answer)["decisions"]]


def trino_request(url: str, user: str, tables: Sequence[str]) -> bytes:
    """What Trino sends to show the tables of a catalog."""
    parts = [text.split("/") for text in tables]
    named = [{"table": {"catalogName": "lake", "schemaName": part[1], "tableName": part[2]}} for part in parts]
    identity = {"identity": {"user": user.partition("~")[2], "groups": []}, "softwareStack": {"trinoVersion": "476"}}
    action = {"operation": "FilterTables", "filterResources": named}
    body = json.dumps({"input": {"context": identity, "action": action}}, separators=(",", ":"))
    return Connection.request(f"{url}/v1/data/trino/batch", body.encode())


@contextmanager
def ours(data: Mapping[str, Any], catalog: str) -> Iterator[Peer]:
    """`pdp serve` over a world file, audit on, in a process of its own; the catalog `lake` is a warehouse."""
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
        with serve_process(base, "-c", str(base / "pdp.yaml")) as process:
            url = process.url("")
            yield Peer(url, lambda questions: our_request(url, questions), our_answer)


def once(url: str, requests: Sequence[bytes]) -> float:
    """Median milliseconds of requests sent once each over one connection."""
    with Connection(url) as connection:
        return median(milliseconds(connection.send, request) for request in requests)


def again(url: str, requests: Sequence[bytes], seconds: float = 1) -> float:
    """Median milliseconds of requests repeated in turn over one connection."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    with Connection(url) as connection:
        for request in cycle(requests):
            found.append(milliseconds(connection.send, request))
            if time.perf_counter() > end:
                return median(found)
    raise AssertionError


def milliseconds(run: Callable[[bytes], object], request: bytes) -> float:
    start = time.perf_counter()
    run(request)
    return (time.perf_counter() - start) * 1e3


def rate(url: str, batches: Iterable[bytes], connections: int, seconds: float = 3) -> float:
    """Checks per second in batches, over some connections, until the time or the batches are over."""
    end = time.perf_counter() + seconds
    waiting = iter(batches)

    def work(_: int) -> int:
        done = 0
        with Connection(url) as connection:
            for request in waiting:
                connection.send(request)
                done += 1
                if time.perf_counter() > end:
                    break
        return done

    start = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        return sum(pool.map(work, range(connections))) * BATCH / (time.perf_counter() - start)


def agree(one: Peer, other: Peer, questions: Sequence[Question]) -> None:
    """Stop the bench where the two answer differently."""
    with Connection(one.url) as mine, Connection(other.url) as theirs:
        for at in range(0, len(questions), BATCH):
            some = questions[at : at + BATCH]
            answers = one.allowed(mine.send(one.batch(some))), other.allowed(theirs.send(other.batch(some)))
            for question, left, right in zip(some, *answers, strict=True):
                if left != right:
                    raise SystemExit(f"{question}: ours says {left}, OpenFGA {right}")


def near(data: Mapping[str, Any], count: int) -> list[Question]:
    """Questions of those who were granted something about what was granted, so that many are allowed."""
    rng = random.Random(31)
    found = []
    for grant in rng.sample(data["grants"], count):
        type = grant["object"].partition(":")[0]
        if type in lakehouses.ACTIONS:
            found.append((grant["principal"], rng.choice(lakehouses.ACTIONS[type]), grant["object"]))
    return found


def compared(mine: Peer, theirs: Peer, data: Mapping[str, Any], questions: Sequence[Question]) -> None:
    every = [*questions, *near(data, min(300, len(data["grants"])))]
    agree(mine, theirs, every)
    with Connection(mine.url) as connection:
        parts = [every[at : at + BATCH] for at in range(0, len(every), BATCH)]
        allowed = sum(sum(mine.allowed(connection.send(mine.batch(part)))) for part in parts)
    print(f"  {len(every)} random questions are answered alike, {allowed} of them with yes")


@contextmanager
def peer(data: Mapping[str, Any]) -> Iterator[tuple[Peer, openfga_peer.Store] | None]:
    """OpenFGA with a world in it; None, said loudly, without OpenFGA."""
    openfga = openfga_peer.binary()
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
    heading("10,000 tables, 1,000 users, 50 roles, 2,000 grants, over HTTP")
    data = lakehouses.ten_thousand()
    with ExitStack() as stack:
        mine = stack.enter_context(ours(data, "w0"))
        found = stack.enter_context(peer(data))
        if found:
            compared(mine, found[0], data, TEN_THOUSAND.questions(random.Random(37), 300))
        filters(mine, found[1] if found else None)
        batches(mine, found[0] if found else None)
    print()


def batches(mine: Peer, theirs: Peer | None) -> None:
    """Every batch is asked once. Visibility from below is where OpenFGA suffers most, so it comes last and by itself."""
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


def mixed(rng: random.Random, *, below: bool, alone: bool) -> list[Question]:
    """One batch of questions, by one user `alone`."""
    user = TEN_THOUSAND.user(rng)
    questions = TEN_THOUSAND.questions(rng, BATCH, below=below)
    return [(user, action, text) for _, action, text in questions] if alone else questions


def filters(mine: Peer, store: openfga_peer.Store | None) -> None:
    """Ours asks for a user's first time and then again and again; so does theirs, with every answer in its cache."""
    in_order = TEN_THOUSAND.tables_of(0)
    names = random.Random(43).sample(in_order, len(in_order))  # Trino sends them in no order
    for kind, users in KINDS.items():
        requests = [trino_request(mine.url, user, names) for user in users]
        first = once(mine.url, requests)
        with Connection(mine.url) as connection:
            shown = [{names[at] for at in json.loads(connection.send(request))["result"]} for request in requests]
        usual = again(mine.url, requests)
        print(f"  1,000 tables of 20 schemas shown to a user with {kind}, a Trino batch with audit")
        if store is None:
            row("  first time", first, None, "ms", "goal <= 1.2 ms")
            row("  again", usual, None, "ms", "goal <= 1.2 ms")
            continue
        for way, (cold, warm) in by_their_means(store, users, in_order, shown).items():
            goal = "goal <= 1.2 ms, 500x" if way == BATCHES else "goal 5x"
            row(f"  first time; theirs by {way}", first, cold, "ms", goal)
            row(f"  again; theirs by {way}, all of it cached", usual, warm, "ms")
    of_one = [f"table:w0/ns10/t{number:03}" for number in range(1_000)]
    for kind, users in KINDS.items():
        usual = again(mine.url, [trino_request(mine.url, user, of_one) for user in users])
        row(f"1,000 tables of one schema, a user with {kind}", usual, None, "ms", "goal <= 1.2 ms")


def by_their_means(
    store: openfga_peer.Store, users: Sequence[str], names: Sequence[str], shown: Sequence[set[str]]
) -> dict[str, tuple[float, float]]:
    """The same filter in OpenFGA's three ways, checked against ours: a user's first time, and again with warm caches."""
    found = {BATCHES: filtered_by_batches(store, users, names, shown)}
    for way, streamed in (("ListObjects", False), ("StreamedListObjects", True)):
        requests = [store.list(user, "include_in_list", "table", streamed=streamed) for user in users]
        first = once(store.url, requests)
        with Connection(store.url) as connection:
            for user, request, wanted in zip(users, requests, shown, strict=True):
                if set(openfga_peer.objects(connection.send(request))) & set(names) != wanted:
                    raise SystemExit(f"{way} lists other tables to {user}")
        found[way] = first, again(store.url, requests)
    return found


def filtered_by_batches(
    store: openfga_peer.Store, users: Sequence[str], names: Sequence[str], shown: Sequence[set[str]]
) -> tuple[float, float]:
    """Twenty BatchChecks of fifty, each about one schema, four at once: the best for it, more at once take longer."""
    parts = [names[at : at + BATCH] for at in range(0, len(names), BATCH)]
    times: list[list[float]] = [[], []]
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(store.url)) for _ in range(4)]
        pool = stack.enter_context(ThreadPoolExecutor(len(connections)))
        for user, wanted in zip(users, shown, strict=True):
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
    return [connection.send(request) for request in requests]


def fanout() -> None:
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
            agree(mine, found[0], [(user, "use", FAN_OUT) for users in FAN_OUT_KINDS.values() for user in users])
    print()


# --- a million grants ---------------------------------------------------------------------------------------------


def million() -> None:
    """Each in a process of its own, so that its memory is that of these facts."""
    print("a million grants on 100,000 tables, 5,000 users, 500 roles, in process (processor time)")
    with tempfile.TemporaryDirectory() as folder:
        big, stored = (alone(part, f"sqlite:///{folder}/store.db") for part in ("from_memory", "from_store"))
    data = lakehouses.ten_thousand()
    small = engine_costs(GrantsEngine(), load(data["objects"], data["grants"]), TEN_THOUSAND)
    print(
        f"  facts from memory in {big['build']:.1f} s; {big['memory']:.0f} MB resident, {big['before']:.0f} MB before"
    )
    print(
        f"  facts from SQLite in {stored['build']:.1f} s; {stored['memory']:.0f} MB resident; the file {stored['file']:.0f} MB"
    )
    print(f"  writing them to SQLite took {big['written']:.0f} s")
    for what, text, goal in (("fresh", "the first of its user", ""), ("known", "never asked before", "goal 1.0x")):
        of_both = f"{big['costs'][what]:>9.2f} us, among 2,000 grants {small[what]:>6.2f}"
        print(f"  a mixed check, {text:<22} {of_both} {big['costs'][what] / small[what]:>8.2f}x  {goal}".rstrip())
    print()


def alone(part: str, url: str) -> Any:
    """What one of ALONE finds in a process of its own."""
    command = [sys.executable, __file__, f"--{part}", url]
    return json.loads(subprocess.run(command, check=True, timeout=600, stdout=subprocess.PIPE).stdout)


def from_memory(url: str) -> dict[str, Any]:
    """Facts of entries made on the way, the making not counted; at last they are written to the store."""
    objects, before = MILLION.objects(), resident()
    start = time.process_time()
    for _ in add(lakehouses.million_grants()):
        pass
    making = time.process_time() - start
    start = time.process_time()
    facts = load(objects, lakehouses.million_grants())
    build = time.process_time() - start - making
    gc.collect()
    memory = resident()
    costs = engine_costs(GrantsEngine(), facts, MILLION)
    start = time.process_time()
    write(url)
    return {"build": build, "before": before, "memory": memory, "costs": costs, "written": time.process_time() - start}


def write(url: str) -> None:
    """All of it into an empty store, 100,000 changes at a time."""
    store = open_store(url)
    facts = store.load()
    changes: Iterator[Change] = chain(put(MILLION.objects()), add(lakehouses.million_grants()))
    while some := list(islice(changes, 100_000)):
        facts = replace(facts, sequence=store.write("bench", facts, lambda log: some)[-1].sequence)
    store.close()


def from_store(url: str) -> dict[str, Any]:
    start = time.process_time()
    store = open_store(url)
    facts = store.load()
    build = time.process_time() - start
    gc.collect()
    memory = resident()
    if not facts.sequence:
        raise SystemExit("the store is empty")
    file = sum(path.stat().st_size for path in Path(url.removeprefix("sqlite:///")).parent.iterdir())
    store.close()
    return {"build": build, "memory": memory, "file": file / 1e6}


def resident() -> float:
    """Megabytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


PARTS: Final = {"engine": engine, "tables": tables, "fanout": fanout, "million": million}
ALONE: Final = {"--from_memory": from_memory, "--from_store": from_store}

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ALONE:
        print(json.dumps(ALONE[sys.argv[1]](sys.argv[2])))
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # the servers are stopped on the way out
        print(f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} before\n")
        for name in sys.argv[1:] or PARTS:
            PARTS[name]()
