"""Player of a month: a real `pdp serve` on loopback with a clock of its own, and the requests in order of time."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from pdp.errors import Unavailable
from pdp.lake.demo.clock import ClockHand
from pdp.lake.demo.company import replace_policies, write_configuration, write_tokens
from pdp.lake.demo.month import PlayedRequest

_SUBJECTS: Final = ("svc-catalog", "svc-console", "svc-airflow")
_ADDRESS: Final = re.compile(rb"^  HTTP +http://([\d.]+):(\d+)$", re.MULTILINE)
_STOP_SECONDS: Final = 30
_REPORT_EACH: Final = 500


class PlayedMonth(NamedTuple):
    """Result of a month: the number of requests, and of those that the service refused."""

    requests: int
    refused: int


def play(steps: Sequence[PlayedRequest], folder: Path, notice: Callable[[int], None]) -> PlayedMonth:
    """Play requests on a service in a new folder; call `notice` with the number of played requests now and then.

    Raise Unavailable if the service does not start, or does not answer.
    """
    configuration = write_configuration(folder)
    tokens = write_tokens(folder, _SUBJECTS) | {"svc-old-etl": "not.a.token"}
    refused = 0
    with ClockHand(folder / "clock") as hand:
        hand.move(steps[0].time - 60)
        service = _Service(configuration)
        try:
            for number, step in enumerate(steps):
                hand.move(step.time)
                if step.path:
                    refused += service.send(step, tokens.get(step.sender)) >= 400
                else:
                    service.stop()
                    replace_policies(folder)
                    service = _Service(configuration)
                if number % _REPORT_EACH == 0:
                    notice(number)
        finally:
            service.stop()
    return PlayedMonth(len(steps), refused)


class _Service:
    """`pdp serve` as a process of its own, and one connection to the process."""

    def __init__(self, configuration: Path) -> None:
        """Start a service and wait for its address; raise Unavailable if the service does not start."""
        folder = configuration.parent
        command = [sys.executable, "-m", "pdp.lake.demo.clock", str(folder / "clock")]
        self._log = (folder / "service.log").open("ab")
        self._process = subprocess.Popen(  # noqa: S603  arguments of our own
            [*command, "serve", "-c", str(configuration)], stdout=subprocess.PIPE, stderr=self._log
        )
        assert self._process.stdout
        self._connection: http.client.HTTPConnection | None = None
        try:
            host, port = _read_address(self._process.stdout)
        except Unavailable:
            self.stop()
            raise Unavailable(f"the service of the demonstration does not start, see `{self._log.name}`") from None
        self._connection = http.client.HTTPConnection(host, port, timeout=30)

    def send(self, step: PlayedRequest, token: str | None) -> int:
        """Send a request and return the status of the answer; raise Unavailable without an answer."""
        assert self._connection
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
        try:
            self._connection.request("POST", step.path, step.body, headers)
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the service of the demonstration does not answer: {error or type(error)}") from None
        return answer.status

    def stop(self) -> None:
        """Stop the service, and wait until its audit is complete."""
        if self._connection:
            self._connection.close()
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()
        self._log.close()


def _read_address(output: IO[bytes]) -> tuple[str, int]:
    """Return the address that a service prints; raise Unavailable if the output ends before."""
    text = b""
    while line := output.readline():
        text += line
        if found := _ADDRESS.search(text):
            return found[1].decode(), int(found[2])
    raise Unavailable("no address")
