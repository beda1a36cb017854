"""`pdp serve` with several workers: one address, one audit file each, restarts, and the stop of all."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.clients.http_client import fetch
from support.clients.stubs import wire_grpc
from support.oracles.audit_files import audit_files, records_in
from support.oracles.converging import PATIENCE, Service, assert_log_is_the_state, configure, until
from support.service.commands import example_option, run_pdp
from support.service.pauses import documented_pauses
from support.service.serving import Process, free_ports, serve_process

from pdp.surfaces.wire import decision_pb2 as wire

pytestmark = [pytest.mark.process, pytest.mark.waits]

ALICE = {"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/Foo@prod"}
GOOD = json.dumps({"checks": [ALICE]}).encode()
CHECK = wire.CheckRequest(
    checks=[
        wire.Check(
            principal=wire.Principal(id="user:oidc~Alice"),
            action="read_data",
            resource=wire.Resource(reference="table:lake/Foo@prod"),
        )
    ]
)


@contextmanager
def serving_workers(folder: Path, count: int, *arguments: str) -> Iterator[Process]:
    with serve_process(folder, "--workers", str(count), *arguments) as process:
        yield process


def workers(process: Process) -> list[int]:
    """The process ids of the workers."""
    pid = process.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def reasons(process: Process) -> list[str]:
    response = fetch(process.url("/health/ready", "diagnostics"))
    found: list[str] = response.json().get("reasons", [])
    assert (response.status == 200) == (not found)
    return found


def metric(process: Process, name: str) -> float:
    text = fetch(process.url("/metrics", "diagnostics")).text
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


def ask(process: Process) -> str:
    """Ask once, over a connection of its own; return the id of the decision."""
    response = fetch(process.url("/v1/check"), GOOD)
    assert response.status == 200
    decision: str = response.json()["decisionId"]
    return decision


def answers_by_worker(process: Process) -> Counter[str]:
    """The number of recorded answers by instance."""
    return Counter(record["instance"] for record in process.records())


def test_workers_share_the_addresses_and_have_an_audit_file_each(tmp_path: Path) -> None:
    with serving_workers(tmp_path, 2) as process:
        assert len(workers(process)) == 2
        ids = [ask(process) for _ in range(60)]
        with grpc.insecure_channel(process.addresses["grpc"]) as channel:
            stub: Any = wire_grpc.DecisionServiceStub(channel)
            assert stub.Check(CHECK, timeout=PATIENCE).decisions
        assert metric(process, "pdp_workers") == 2
        assert metric(process, "pdp_worker_bundles") == 1
        assert metric(process, "pdp_ready") == 1
        assert metric(process, "pdp_requests_total") == 61
        assert metric(process, "pdp_decide_seconds_count") == 61
        for pid in (*workers(process), process.process.pid):
            os.kill(pid, signal.SIGINT)  # as a terminal does
        assert process.process.wait(PATIENCE) == 0
    records = process.records()
    assert {record["id"] for record in records} >= set(ids)
    assert len(records) == 61
    assert len(answers_by_worker(process)) == 2
    for file in audit_files(tmp_path):
        written = records_in([file])
        assert [record["seq"] for record in written] == list(range(len(written)))
    assert "Traceback" not in process.stderr()


# --- start --------------------------------------------------------------------------------------------------------


def failing_start(folder: Path, *arguments: str) -> str:
    """The one line that a start with two workers ends with."""
    options = (*example_option(folder, arguments), "--workers", "2", *free_ports(arguments), *arguments)
    ended = run_pdp("serve", *options, cwd=folder, timeout=60)
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr.startswith("pdp: ")
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr


@pytest.mark.parametrize("listener", ["http", "grpc", "diagnostics"])
def test_a_port_in_use_is_named(tmp_path: Path, listener: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = failing_start(tmp_path, "--set", f"server.{listener}={address}")
    assert f"cannot listen on `{address}` (server.{listener})" in line


def test_a_second_service_takes_neither_ports_nor_audit_of_the_first(tmp_path: Path) -> None:
    """The system would let the second service join the first one's addresses."""
    with serving_workers(tmp_path, 2) as first:
        (tmp_path / "second").mkdir()
        for listener in ("http", "grpc"):
            line = failing_start(tmp_path / "second", "--set", f"server.{listener}={first.addresses[listener]}")
            assert f"cannot listen on `{first.addresses[listener]}` (server.{listener})" in line
        shared = ("--set", f"audit.sinks=[{{file: {tmp_path / 'audit'}}}]")
        assert "another service uses the audit folder" in failing_start(tmp_path / "second", *shared)
        assert first.terminate() == 0


def test_an_invalid_rule_stops_the_start_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "rules.properties").write_text("nessie.server.authorization.rules.a=role ==\n")
    (tmp_path / "pdp.yaml").write_text("policies: {rules: [rules.properties]}")
    assert "rules.properties:1:" in failing_start(tmp_path)
    (tmp_path / "pdp.yaml").write_text("server: {workers: 0}")
    ended = run_pdp("serve", cwd=tmp_path)
    assert (ended.returncode, "`server.workers" in ended.stderr) == (2, True)


def test_workers_seed_an_empty_store_once(tmp_path: Path) -> None:
    """The example has a seed."""
    with serving_workers(tmp_path, 4) as process:
        assert process.terminate() == 0
    assert assert_log_is_the_state(f"sqlite:///{tmp_path}/pdp.db") == 1


def test_one_worker_is_one_process(tmp_path: Path) -> None:
    with serving_workers(tmp_path, 1) as process:
        assert workers(process) == []
        process.process.send_signal(signal.SIGUSR2)
        until(lambda: "no rolling restart" in process.stderr())
        ask(process)
        assert process.terminate() == 0


# --- one service --------------------------------------------------------------------------------------------------


def test_a_write_to_one_worker_is_seen_by_the_others(tmp_path: Path) -> None:
    """Demand the revision of each write, on connections that reach all workers."""
    configure(tmp_path / "service", "sqlite:///pdp.db")
    with serving_workers(tmp_path / "service", 2) as process, ExitStack() as stack:
        connections = [stack.enter_context(closing(Service(process))) for _ in range(12)]
        for number, writing in enumerate(connections):
            revision = writing.write(add=(number,))
            for asking in connections:
                assert asking.allows(number, {"atLeast": revision})
        epoch, sequence, _, digest = revision.split(".")
        status, answer = connections[0].check(consistency={"atLeast": f"{epoch}.{int(sequence) + 1}.{digest}"})
        assert (status, answer["error"]["code"]) == (503, "unavailable")
        until(lambda: all(each.allows(len(connections) - 1) for each in connections))
        assert process.terminate() == 0


def test_a_unix_socket_is_served_by_all_workers_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with serving_workers(tmp_path, 2, "--set", f"server.unix={path}") as process:
        os.kill(workers(process)[0], signal.SIGKILL)
        for _ in range(10):
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(PATIENCE)
                client.connect(str(path))
                client.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert client.recv(12) == b"HTTP/1.1 404"
        until(lambda: metric(process, "pdp_worker_restarts_total") == 1 and not reasons(process))
        assert process.terminate() == 0
    assert not path.exists()


# --- ends and restarts --------------------------------------------------------------------------------------------


class Client(threading.Thread):
    """Asks until `done`, twenty times on each connection. Notes the connections that break."""

    def __init__(self, process: Process, done: threading.Event) -> None:
        super().__init__()
        self.answers: dict[str, float] = {}
        """Decision id -> time of the answer."""
        self.broken: list[str] = []
        """Last decisions on connections that broke."""
        self.broken_at_once: list[float] = []
        """Times at which a connection broke that had given no answer yet."""
        self.wrong: list[str] = []
        self._address = process.addresses["http"]
        self._done = done

    def run(self) -> None:
        while not self._done.is_set():
            with closing(http.client.HTTPConnection(self._address, timeout=PATIENCE)) as connection:
                self._ask(connection)

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        last = ""
        for _ in range(20):
            try:
                connection.request("POST", "/v1/check", GOOD, {"Content-Type": "application/json"})
                response = connection.getresponse()
                answer = json.loads(response.read())
            except (OSError, http.client.HTTPException):
                if last:
                    self.broken.append(last)
                else:
                    self.broken_at_once.append(time.monotonic())
                return
            self.wrong += [] if response.status == 200 else [str(answer)]
            last = answer["decisionId"]
            self.answers[last] = time.monotonic()


@pytest.mark.long
def test_a_killed_worker_takes_only_its_own_connections_along(tmp_path: Path) -> None:
    """Connections that are opened after a kill are answered. Only records of the moment before it may be missing."""
    done = threading.Event()
    kills: list[float] = []
    with serving_workers(tmp_path, 2) as process:
        clients = [Client(process, done) for _ in range(12)]
        for client in clients:
            client.start()
        survivor = workers(process)[1]
        for number in (1, 2):
            time.sleep(1)
            killed = next(pid for pid in workers(process) if pid != survivor)
            kills.append(time.monotonic())
            os.kill(killed, signal.SIGKILL)
            until(lambda: reasons(process))
            until(lambda number=number: metric(process, "pdp_worker_restarts_total") == number and not reasons(process))  # type: ignore[misc]
        time.sleep(1)
        done.set()
        for client in clients:
            client.join(PATIENCE)
        assert survivor in workers(process)
        assert process.terminate() == 0
    assert [wrong for client in clients for wrong in client.wrong] == []
    for broken_at in (at for client in clients for at in client.broken_at_once):  # the killed worker had accepted them
        assert any(kill < broken_at < kill + 0.5 for kill in kills)
    instance = {record["id"]: record["instance"] for record in process.records()}
    assert len({*instance.values()}) == 4
    broken = {instance.get(decision, "unrecorded") for client in clients for decision in client.broken}
    assert len(broken - {"unrecorded"}) <= 2
    survived = {
        instance[id]
        for client in clients
        for id, at in client.answers.items()
        if id in instance and at > kills[1] + 0.5
    }
    assert not broken & survived
    for client in clients:
        for id, at in client.answers.items():
            assert id in instance or any(kill - 0.5 < at < kill + 0.5 for kill in kills)


def test_a_worker_that_is_stopped_by_itself_drains_and_is_replaced(tmp_path: Path) -> None:
    with serving_workers(tmp_path, 2) as process:
        before = {*workers(process)}
        ids = [ask(process) for _ in range(20)]
        for worker in before:
            os.kill(worker, signal.SIGTERM)
        until(lambda: not {*workers(process)} & before and not reasons(process))
        ids += [ask(process) for _ in range(20)]
        assert metric(process, "pdp_requests_total") == 40
        assert process.terminate() == 0
    assert {record["id"] for record in process.records()} == set(ids)


@pytest.mark.long
def test_a_worker_that_hangs_is_replaced(tmp_path: Path) -> None:
    with documented_pauses(worker_hung=6), serving_workers(tmp_path, 2) as process:
        before = {*workers(process)}
        hung = before.pop()
        os.kill(hung, signal.SIGSTOP)
        until(lambda: any("has not answered for 3" in reason for reason in reasons(process)))
        assert len([ask(process) for _ in range(20)]) == 20
        assert runs(hung)
        until(lambda: not runs(hung) and not reasons(process))
        assert before < {*workers(process)}
        assert ask(process)
        text = fetch(process.url("/metrics", "diagnostics")).text
        assert 'pdp_worker_restarts_total{cause="hang"} 1' in text
        assert process.terminate() == 0


@pytest.mark.long
def test_a_pause_of_the_supervisor_is_no_silence_of_the_workers(tmp_path: Path) -> None:
    with documented_pauses(worker_hung=5), serving_workers(tmp_path, 2) as process:
        before = {*workers(process)}
        process.process.send_signal(signal.SIGSTOP)
        time.sleep(7)
        assert ask(process)
        process.process.send_signal(signal.SIGCONT)
        time.sleep(2)
        assert reasons(process) == []
        assert {*workers(process)} == before
        assert process.terminate() == 0


def test_workers_end_with_their_supervisor(tmp_path: Path) -> None:
    with serving_workers(tmp_path, 2) as process:
        ids = [ask(process) for _ in range(10)]
        left = workers(process)
        process.process.send_signal(signal.SIGKILL)
        until(lambda: not any(map(runs, left)))
    assert {record["id"] for record in process.records()} == set(ids)


@pytest.mark.long
def test_a_start_that_fails_is_tried_again(tmp_path: Path) -> None:
    """While the world is broken, the other worker answers on its own. No connection waits for the broken one."""
    rules, world = tmp_path / "rules.properties", tmp_path / "world.json"
    rules.write_text("nessie.server.authorization.rules.a=true\n")
    world.write_text("{}")
    (tmp_path / "pdp.yaml").write_text("{policies: {rules: [rules.properties]}, store: {url: 'file:world.json'}}")
    with serving_workers(tmp_path, 2) as process:
        world.write_text("{")
        os.kill(workers(process)[0], signal.SIGKILL)
        until(lambda: "worker cannot start" in process.stderr())
        for _ in range(20):
            ask(process)
        assert len(reasons(process)) == 1
        world.write_text("{}")
        until(lambda: not reasons(process), 90)  # pauses between starts grow to 30 seconds
        assert metric(process, "pdp_worker_bundles") == 1
        assert process.terminate() == 0


# --- rolling restart ----------------------------------------------------------------------------------------------


def test_a_rolling_restart_reads_settings_and_policies_again(tmp_path: Path) -> None:
    """Requests go on, and the service is ready all the time. What only a new supervisor can change stays."""
    rules = tmp_path / "rules.properties"
    rules.write_text("nessie.server.authorization.rules.a=role=='Alice'\n")
    config = tmp_path / "pdp.yaml"
    config.write_text("policies: {rules: [rules.properties]}")
    with serving_workers(tmp_path, 2) as process:
        before = {*workers(process)}
        rules.write_text("nessie.server.authorization.rules.a=false\n")
        config.write_text("policies: {rules: [rules.properties]}\nlimits: {max_checks: 1}\naudit: {sinks: []}")
        process.process.send_signal(signal.SIGUSR2)
        while "rolling restart is done" not in process.stderr():
            assert reasons(process) == []
            ask(process)
        assert not {*workers(process)} & before
        assert metric(process, "pdp_worker_bundles") == 1
        assert "a rolling restart does not change these settings" in process.stderr()
        status = {
            fetch(process.url("/v1/check"), json.dumps({"checks": [ALICE, ALICE]}).encode()).status for _ in range(20)
        }
        assert status == {400}
        answer = fetch(process.url("/v1/check"), GOOD).json()
        assert not answer["decisions"][0]["allowed"]
        asked = metric(process, "pdp_requests_total")
        process.process.send_signal(signal.SIGUSR2)
        until(lambda: process.stderr().count("rolling restart begins") == 2)
        assert process.terminate() == 0
    assert len(process.records()) == asked - 20


def repeated(call: Callable[[], Any]) -> Any:
    """Return the answer of a call that may be cancelled twice: two workers are replaced one after the other."""
    for _ in range(2):
        try:
            return call()
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE):
                raise
    return call()


@pytest.mark.usefixtures("documented_pauses")
def test_a_rolling_restart_under_load_loses_no_request(tmp_path: Path) -> None:
    """Over HTTP, clients reconnect where an answer says that the connection closes, and never try a request again.

    gRPC cancels calls that arrive while the client does not yet know that the connection ends. A repetition succeeds.
    """
    failures: list[str] = []
    ids: list[str] = []
    done = threading.Event()

    def post(process: Process) -> None:
        with closing(http.client.HTTPConnection(process.addresses["http"], timeout=PATIENCE)) as connection:
            while not done.is_set():
                connection.request("POST", "/v1/check", GOOD, {"Content-Type": "application/json"})
                response = connection.getresponse()
                answer = json.loads(response.read())
                assert response.status == 200, answer
                ids.append(answer["decisionId"])

    def call(process: Process) -> None:
        with grpc.insecure_channel(process.addresses["grpc"]) as channel:
            stub: Any = wire_grpc.DecisionServiceStub(channel)
            while not done.is_set():
                answer = repeated(lambda: stub.Check(CHECK, timeout=PATIENCE))
                ids.append(answer.decision_id)
                time.sleep(0.01)

    def run(client: Callable[[Process], None], process: Process) -> None:
        try:
            client(process)
        except (OSError, http.client.HTTPException, grpc.RpcError, AssertionError) as error:
            failures.append(repr(error))

    with serving_workers(tmp_path, 2) as process:
        clients = [threading.Thread(target=run, args=(client, process)) for client in (*[post] * 8, *[call] * 3)]
        for client in clients:
            client.start()
        for number in range(1, 3):
            process.process.send_signal(signal.SIGUSR2)
            until(lambda number=number: process.stderr().count("rolling restart is done") == number)  # type: ignore[misc]
        done.set()
        for client in clients:
            client.join(PATIENCE)
        assert failures == []
        assert metric(process, "pdp_worker_restarts_total") == 4
        assert process.terminate() == 0
    records = Counter(record["id"] for record in process.records())
    assert records == records | Counter(ids)
    assert set(records.values()) == {1}


@pytest.mark.parametrize("broken", ["policies: {rules: [rules.properties]}", "a: ["])
def test_a_rolling_restart_with_errors_changes_nothing(tmp_path: Path, broken: str) -> None:
    (tmp_path / "pdp.yaml").write_text("policies: {rules: []}")
    with serving_workers(tmp_path, 2) as process:
        before = {*workers(process)}
        (tmp_path / "rules.properties").write_text("nessie.server.authorization.rules.a=role ==\n")
        (tmp_path / "pdp.yaml").write_text(broken)
        process.process.send_signal(signal.SIGUSR2)
        until(lambda: "rolling restart ends" in process.stderr())
        assert {*workers(process)} == before
        (reason,) = reasons(process)
        assert re.fullmatch(r"the last reload failed: .*(rule_compile|config|policy)_error", reason), reason
        assert ask(process)
        os.kill(workers(process)[0], signal.SIGKILL)
        until(lambda: metric(process, "pdp_worker_restarts_total") == 1 and reasons(process) == [reason])
        (tmp_path / "pdp.yaml").write_text("policies: {rules: []}")
        process.process.send_signal(signal.SIGUSR2)
        until(lambda: not reasons(process))
        assert process.terminate() == 0


# --- stop ---------------------------------------------------------------------------------------------------------


def test_a_stop_finishes_requests_of_all_workers_and_flushes_the_audit(tmp_path: Path) -> None:
    head = b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    sent = head % len(GOOD) + GOOD
    with serving_workers(tmp_path, 2) as process, ExitStack() as stack:
        host, _, port = process.addresses["http"].partition(":")
        slow = [stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE)) for _ in range(12)]
        for each in slow:
            each.sendall(sent[:-20])
        time.sleep(0.3)
        process.process.send_signal(signal.SIGTERM)
        until(lambda: "stopping" in reasons(process))
        for each in slow:
            each.sendall(sent[-20:])
        for each in slow:
            with each.makefile("rb") as received:
                assert received.read().startswith(b"HTTP/1.1 200 ")
        assert process.process.wait(PATIENCE) == 0
    assert len(process.records()) == len(slow)
    assert len(answers_by_worker(process)) == 2


def test_a_stop_that_loses_records_says_so(tmp_path: Path) -> None:
    """Each worker may write 64 KiB."""
    with serve_process(tmp_path, "--workers", "2", limits={"FSIZE": 64 * 1024}) as process:
        while not reasons(process):
            ask(process)
        for _ in range(50):
            ask(process)
        assert any("the audit cannot be written" in reason for reason in reasons(process))
        assert process.terminate() == 1
        assert "records lost" in process.stderr()
