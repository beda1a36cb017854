"""CPU of one HTTP request whose answer is constant: the service's protocol beside aiohttp and a floor, in turns.

Run: python bench/http_protocol.py [rounds]

`floor` writes a ready response to every packet: the cost of the event loop and the sockets. `later` is the service's
protocol with an answer that a task gives.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

import uvloop
from tools import wrk

from pdp.app.run import embedded_settings
from pdp.audit.queue.queue import NoAudit
from pdp.identity.callers import Callers
from pdp.identity.tokens import Tokens
from pdp.model.question import Caller
from pdp.surfaces.admission import Admission, BodyLimits
from pdp.surfaces.http.answers import NATIVE, EndpointAnswer
from pdp.surfaces.http.handlers import HttpHandlers
from pdp.surfaces.http.server import AiohttpServer, HttpServer
from pdp.surfaces.refusals import RefusalRecorder
from pdp.telemetry import Telemetry

PATH: Final = "/v1/check"
ANSWER: Final = b'{"decisions":[{"allowed":true,"by":["rule"]}],"revision":"a.1.b"}'
BODY: Final = '{"checks":[{"principal":"user:oidc~Alice","action":"read_data","resource":"table:lake/Foo@prod"}]}'
SECONDS: Final = 3
CONNECTIONS: Final = 32
VARIANTS: Final = ("floor", "now", "later", "aiohttp")
_SCRIPT: Final = f"""wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{BODY}'
"""


class Floor(asyncio.Protocol):
    """Protocol without any rule: a ready response to every packet."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Write the response."""
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER))


async def _serve(variant: str) -> None:
    answer = EndpointAnswer(ANSWER, "0197a0e0-0000-7000-8000-000000000000")

    async def endpoint(body: bytes, caller: Caller) -> EndpointAnswer:
        return answer

    def immediate(body: bytes, caller: Caller) -> EndpointAnswer:
        return answer

    settings, telemetry = embedded_settings(), Telemetry()
    callers, admission = Callers(settings, Tokens(settings, telemetry)), Admission(1024, 1 << 30, 1)
    handlers = HttpHandlers(callers, admission, telemetry, 10, refusals=RefusalRecorder(NoAudit()))
    route = handlers.for_decision(
        NATIVE, endpoint, BodyLimits(1 << 20, 1 << 20), immediate if variant == "now" else None
    )
    servers: dict[str, Callable[[], asyncio.BaseProtocol]] = {
        "floor": Floor,
        "aiohttp": AiohttpServer({("POST", PATH): route}, 65),
        "now": (own := HttpServer({("POST", PATH): route}, callers, admission, settings.limits)),
        "later": own,
    }
    server = await asyncio.get_running_loop().create_server(servers[variant], "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _requests(port: str, script: Path, seconds: int) -> int:
    """Load a server; return the number of requests."""
    command = [wrk(), "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(script), f"http://127.0.0.1:{port}{PATH}"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    if "Non-2xx" in printed or "Socket errors" in printed:
        raise SystemExit(printed)
    return int(next(line.split()[0] for line in printed.splitlines() if "requests in" in line))


def _measure(rounds: int) -> None:
    figures: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "post.lua"
        script.write_text(_SCRIPT)
        command = [sys.executable, __file__, "serve"]
        processes = {
            variant: subprocess.Popen([*command, variant], stdout=subprocess.PIPE, text=True, cwd=folder)
            for variant in VARIANTS
        }
        try:
            ports = {
                variant: (process.stdout.readline().strip() if process.stdout else "")
                for variant, process in processes.items()
            }
            for variant in VARIANTS:
                _requests(ports[variant], script, 1)
            for _ in range(rounds):
                for variant in VARIANTS:
                    before = _cpu_seconds(processes[variant].pid)
                    count = _requests(ports[variant], script, SECONDS)
                    figures[variant].append((_cpu_seconds(processes[variant].pid) - before) / count * 1e6)
                    time.sleep(0.1)
        finally:
            for process in processes.values():
                process.kill()
                process.wait(10)
    base = statistics.median(figures["aiohttp"])
    for variant, found in figures.items():
        middle = statistics.median(found)
        print(
            f"{variant:8} {middle:6.1f} us CPU per request, {middle / base:.2f} of aiohttp ({min(found):.1f} to {max(found):.1f})"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(sys.argv[2]))
    else:
        _measure(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
