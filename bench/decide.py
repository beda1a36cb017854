"""Speed of rules, as ratios to peers and plain baselines of the same run. Prints a table and asserts no time.

python bench/decide.py [lambda] [batch] [scale]
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import opa_peer
import policies

from pdp.app.parts import build_pdp
from pdp.config.load import make_settings
from pdp.config.settings import Settings
from pdp.decision.service import Pdp
from pdp.engines.cel.program import compile_program
from pdp.engines.cel.rules import inline_rules
from pdp.engines.engine import Group
from pdp.facts.snapshot import Facts
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.checks import Env, Principal
from pdp.model.checks import Resource as Object
from pdp.model.columns import PathColumn
from pdp.trino.endpoints import TrinoSurface

CONFIG = {
    "authorities": {"default": {"engines": ["cel"]}},
    "trino": {"catalogs": {"memory": {"warehouse": "lake", "ref": "main"}}, "groups": {"analysts": "analysts"}},
}


def timed(run: Callable[[], object], seconds: float = 1.0) -> tuple[float, float]:
    """Return the median and the fastest of repeated runs, in microseconds."""
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e6)
    times.sort()
    return times[len(times) // 2], times[0]


def row(label: str, median: float, fastest: float, note: str = "") -> None:
    print(f"  {label:<44} {median:>10.1f} us p50 {fastest:>10.1f} us min   {note}")


ARGUMENTS = (
    "READ_ENTITY_VALUE",
    "Alice",
    ("analysts",),
    "prod",
    "Foo",
    "ICEBERG_TABLE",
    "",
    {"apiName": "Nessie", "apiVersion": 2},
    (),
    False,
    "lake",
)
BY_HAND: dict[str, Callable[..., bool]] = {
    "ref and role": lambda op, role, roles, ref, *_: (
        op == "VIEW_REFERENCE" and ref == "prod" and role in {"Alice", "Bob", "Carol", "Dave"}
    ),
    "exact path": lambda op, role, roles, ref, path, *_: (
        op in {"READ_CONTENT_KEY", "READ_ENTITY_VALUE"}
        and ref == "prod"
        and path == "Foo"
        and role in {"Alice", "Dave"}
    ),
    "prefix": lambda op, role, roles, ref, path, *_: (
        op in {"VIEW_REFERENCE", "READ_ENTITY_VALUE"} and role == "Alice" and path.startswith("allowed.")
    ),
    "role prefix": lambda op, role, roles, ref, *_: (
        op == "VIEW_REFERENCE" and role.startswith("Al") and ref.startswith("pr")
    ),
    "any role": lambda op, role, roles, ref, path, *_: "analysts" in roles and path.startswith("big."),
    "regex": lambda op, role, roles, ref, *_: op == "VIEW_REFERENCE" and (ref == "prod" or ref.startswith("dev-")),
    "literal regex": lambda op, role, roles, ref, *_: op == "VIEW_REFERENCE" and "pro" in ref,
    "negation": lambda op, role, roles, ref, path, ct, ty, api, actions, delegated, wh: (
        op == "READ_ENTITY_VALUE" and path not in {"sys.a", "sys.b"} and not delegated
    ),
    "api": lambda op, role, roles, ref, path, ct, ty, api, actions, *_: (
        api["apiName"] == "Iceberg" and api["apiVersion"] >= 1 and "CATALOG_UPDATE_ENTITY" in actions
    ),
    "macro": lambda op, role, roles, ref, path, *_: any(r.startswith("ana") for r in roles) and len(path) < 40,
}


def thousand(function: Callable[..., bool], arguments: tuple[Any, ...]) -> None:
    for _ in range(1000):
        function(*arguments)


def against_lambdas() -> None:
    print("one evaluation, ratio to a Python lambda written by hand (1,000 evaluations a sample)")
    ratios = []
    for name, text in policies.TYPICAL.items():
        arguments = ("VIEW_REFERENCE", *ARGUMENTS[1:]) if "VIEW_REFERENCE" in text else ARGUMENTS
        ours, by_hand = compile_program(text).evaluate, BY_HAND[name]
        if ours(*arguments) != by_hand(*arguments):
            raise SystemExit(f"{name}: the two disagree")
        mine, _ = timed(partial(thousand, ours, arguments), 0.3)
        base, _ = timed(partial(thousand, by_hand, arguments), 0.3)
        ratios.append(mine / base)
        print(f"  {name:<20} {mine / 1000:.3f} us   lambda {base / 1000:.3f} us   {mine / base:.2f}x")
    print(f"  median {sorted(ratios)[len(ratios) // 2]:.2f}x\n")


def service(texts: dict[str, str]) -> Pdp:
    settings: Settings = make_settings(CONFIG, Path())
    return build_pdp(settings, Facts.empty(), (inline_rules(texts), inline_rules({})))


def batch() -> None:
    print("SHOW TABLES over 1,000 tables under 20 rules, a real Trino's body")
    loop = asyncio.new_event_loop()
    surface = TrinoSurface(service(policies.twenty()), 100_000, 10)
    answer = json.loads(loop.run_until_complete(surface.batch(policies.BODY, EMBEDDED_CALLER)))["result"]
    if answer != policies.allowed_indices():
        raise SystemExit("the batch is decided wrongly")
    gc.freeze()
    row(
        "in process: decode, decide, audit row, encode",
        *timed(lambda: loop.run_until_complete(surface.batch(policies.fresh_body(), EMBEDDED_CALLER)), 3),
    )
    row(
        "in process, the same body again: audit row alone",
        *timed(lambda: loop.run_until_complete(surface.batch(policies.BODY, EMBEDDED_CALLER)), 3),
    )
    row("  json.loads of the body alone", *timed(lambda: json.loads(policies.BODY)))
    ours = over_loopback()
    opa = opa_peer.binary()
    if opa is None:
        print("  OPA is not installed, nor Go to build it: NO COMPARISON WAS MADE\n")
        return
    for style in opa_peer.STYLES:
        with opa_peer.serving(opa, style) as url:
            theirs, fastest = post_batches(url)
        row(f"OPA, {style}, over loopback", theirs, fastest, f"{theirs / ours:.1f}x ours")
    print()


def over_loopback() -> float:
    """Measure `pdp serve` in its own process, over one connection."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        (base / "rules.yaml").write_text(json.dumps({"rules": policies.twenty()}))
        (base / "pdp.yaml").write_text(json.dumps(CONFIG | {"policies": {"rules": ["rules.yaml"]}}))
        addresses = [f"server.{name}=127.0.0.1:0" for name in ("http", "grpc", "diagnostics")]
        command = [
            sys.executable,
            "-m",
            "pdp",
            "serve",
            "-c",
            str(base / "pdp.yaml"),
            *(part for item in addresses for part in ("--set", item)),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=base)
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if "HTTP" in line)
            url = f"{line.split()[-1]}/v1/data/trino/batch"
            median, fastest = post_batches(url)
            again = post_batches(url, lambda: policies.BODY)
        finally:
            process.terminate()
            process.wait(20)
    row("pdp serve, over loopback, audit on", median, fastest)
    row("  the same body again", *again)
    return median


def post_batches(url: str, body: Callable[[], bytes] = policies.fresh_body) -> tuple[float, float]:
    """Measure POSTs over one keep-alive connection. Exit if the first answer is wrong."""
    parts = urlsplit(url)
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n".encode()
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def post() -> bytes:
            content = body()
            connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(content) + content)
            return answer_from(connection)

        if sorted(json.loads(post())["result"]) != policies.allowed_indices():
            raise SystemExit(f"{url} decides the batch wrongly")
        return timed(post, 4)


def answer_from(connection: socket.socket) -> bytes:
    """Read one response and return the body, by its Content-Length."""
    received = b""
    while True:
        some = connection.recv(1 << 18)
        if not some:
            raise SystemExit("the connection was closed")
        received += some
        head, end, body = received.partition(b"\r\n\r\n")
        if end:
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            if length and len(body) >= int(length[1]):
                return body


def scale() -> None:
    print("cost per check by number of rules; 1,000 tables of one group, and single checks of 1,000 principals")
    first: dict[str, float] = {}
    for count in (10, 100, 1_000, 10_000):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        pdp = service(policies.many(count))
        load = time.perf_counter() - start
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        engine, facts = pdp.bundle.default.engines[0], Facts.empty()
        env = Env()
        names = PathColumn.in_one(
            Object("table", "lake", ref="main"), ("ns1",), [f"t{number}x" for number in range(1000)]
        )
        group = Group(Principal("user", "oidc~user1"), "include_in_list", "table", "lake", "main", False, env)
        other = PathColumn.in_one(names[0], ("ns1",), names.names[::-1])
        turn = iter(range(1 << 60))
        column, _ = timed(lambda: engine.decide(group, other if next(turn) % 2 else names, facts))
        groups = [
            Group(Principal("user", f"oidc~user{number}"), "read_data", "table", "lake", "main", False, env)
            for number in range(1000)
        ]
        single = [names[1]]
        singles, _ = timed(lambda: [engine.decide(each, single, facts) for each in groups])
        first = first or {"column": column, "singles": singles}
        print(
            f"  {count:>6} rules: {column / 1000:.3f} us a table ({column / first['column']:.2f}x)   "
            f"{singles / 1000:.2f} us a single check ({singles / first['singles']:.2f}x)   load {load:.2f} s, {grown:.0f} MB"
        )
    print()


PARTS = {"lambda": against_lambdas, "batch": batch, "scale": scale}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
