"""Start of the example beside a bare interpreter: processor time, memory, first requests, and imports by package.

python bench/start.py [--starts N] [--set KEY=VALUE]...

A service answers plain checks before it has loaded all that other requests need. So the table has the first and the
second request of other kinds: at once after the first answer, and half a second later.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Final

from servers import Server, compile_sources, free_port, running

_CHECK: Final = '{"checks":[{"principal":"user:oidc~Alice","action":"read_data","resource":"table:lake/Foo@prod"}]}'
_JSON: Final = {"Content-Type": "application/json"}

_IMPORT: Final = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")
_PACKAGES: Final = 25
"""Packages in the table of imports."""
_BARE: Final = "import time\nprint(flush=True)\ntime.sleep(60)"
_REST: Final = 0.5
"""Seconds until the rest is loaded."""


@contextmanager
def example(flags: Sequence[str], settings: Sequence[str]) -> Iterator[tuple[Server, int, Path]]:
    """Run `pdp serve --example` on free ports; yield the server, the port of its diagnostics, and its output."""
    ports = {"http": free_port(), "grpc": free_port(), "diagnostics": free_port()}
    sets = [*(f"server.{name}=127.0.0.1:{number}" for name, number in ports.items()), *settings]
    options = [part for setting in sets for part in ("--set", setting)]
    with tempfile.TemporaryDirectory(prefix="pdp-bench-") as folder:
        command = [sys.executable, *flags, "-m", "pdp", "serve", "--example", *options]
        with running(command, ports["http"], Path(folder)) as server:
            server.wait(lambda: ask(server.port, "POST", "/v1/check", _CHECK) > 0)
            yield server, ports["diagnostics"], Path(folder) / "output.log"


def ask(port: int, method: str, path: str, body: str | None = None) -> float:
    """Send a request over a new connection; return the milliseconds until its answer. Exit for a wrong answer."""
    began = time.perf_counter()
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, _JSON if body else {})
        response = connection.getresponse()
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {response.read().decode()}")
        response.read()
    finally:
        connection.close()
    return (time.perf_counter() - began) * 1000


def others(port: int, diagnostics: int) -> list[float]:
    """Return the milliseconds of the first and the second request of two kinds that are no plain checks."""
    probes = [ask(diagnostics, "GET", "/health/ready") for _ in range(2)]
    return [*probes, *(ask(port, "GET", "/v1/grants?pageSize=1") for _ in range(2))]


def bare() -> tuple[float, float]:
    """Return the processor time and the memory of an interpreter that does nothing."""
    with ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory(prefix="pdp-bench-"))
        server = held.enter_context(running([sys.executable, "-c", _BARE], 0, Path(folder)))
        server.wait(lambda: bool(server.log()))
        return server.cpu(), server.memory()


def measure(settings: Sequence[str]) -> dict[str, float]:
    """Return the figures of two starts: others are asked at once, or later."""
    with example((), settings) as (server, diagnostics, _):
        found = {"ready, s": server.ready, "CPU until ready, s": server.cpu(), "memory when ready, MB": server.memory()}
        time.sleep(_REST)
        found |= {"CPU later, s": server.cpu(), "memory later, MB": server.memory()}
        late = others(server.port, diagnostics)
    with example((), settings) as (server, diagnostics, _):
        at_once = others(server.port, diagnostics)
    for when, times in (("later", late), ("at once", at_once)):
        names = (f"{kind}, {place} request {when}, ms" for kind in ("readiness", "grants") for place in ("1st", "2nd"))
        found |= dict(zip(names, times, strict=True))
    return found


def imports(settings: Sequence[str]) -> dict[str, float]:
    """Return the milliseconds of imports by package. An import counts without those within it."""
    with example(("-X", "importtime"), settings) as (_, _, output):
        time.sleep(_REST)
        text = output.read_text()
    found: dict[str, float] = defaultdict(float)
    for microseconds, module in _IMPORT.findall(text):
        parts = module.split(".")
        found[".".join(parts[: 2 if parts[0] == "pdp" else 1])] += int(microseconds) / 1000
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=7, help="pairs of starts (default 7)")
    parser.add_argument("--set", action="append", default=[], help="a setting, as for `pdp serve --set`")
    given = parser.parse_args()
    compile_sources()
    plain, found = [], []
    for _ in range(given.starts):
        plain.append(bare())
        found.append(measure(given.set))
    cpu, memory = (median(one) for one in zip(*plain, strict=True))
    for name in found[0]:
        values = [one[name] for one in found]
        unit, base = name.rpartition(", ")[2], {"s": cpu, "MB": memory}.get(name.rpartition(", ")[2])
        ratio = f"{median(values) / base:8.1f} of a bare interpreter" if base and not name.startswith("ready") else ""
        print(f"{name:<46}{median(values):9.2f} {unit:<3} best {min(values):9.2f}  worst {max(values):9.2f} {ratio}")
    once = imports(given.set)
    print(f"\nimports, ms ({sum(once.values()):.0f} in all, slower while they are measured):")
    for package, milliseconds in sorted(once.items(), key=itemgetter(1), reverse=True)[:_PACKAGES]:
        print(f"  {milliseconds:7.1f}  {package}")


if __name__ == "__main__":
    main()
