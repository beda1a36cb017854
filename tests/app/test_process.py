"""`pdp serve` as a process: bad input at its start, signals, full disks, too few files, several services."""

from __future__ import annotations

import http.client
import json
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import psutil  # type: ignore[import-untyped]
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.clients.http_client import fetch
from support.clients.stubs import wire_grpc
from support.oracles.audit_files import all_records, audit_files, file_text, records_in
from support.paths import RECORDED
from support.service.commands import example_option, run_pdp
from support.service.serving import Process, free_ports, serve_process

from pdp.surfaces.wire import decision_pb2 as wire

pytestmark = pytest.mark.process

MANUAL = RECORDED / "nessie" / "manual-as-printed.properties"
ALICE = {"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/Foo@prod"}
GOOD = json.dumps({"checks": [ALICE]}).encode()
PATIENCE = 30.0


def failing_start(folder: Path, *arguments: str) -> str:
    """The one line that a start ends with."""
    options = (*example_option(folder, arguments), *free_ports(arguments), *arguments)
    ended = run_pdp("serve", *options, cwd=folder, timeout=15)
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr.startswith("pdp: ")
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert ended.stderr.endswith("\n")
    return ended.stderr


def config(folder: Path, text: str) -> None:
    (folder / "pdp.yaml").write_text(text)


def get(process: Process, path: str, listener: str = "diagnostics") -> tuple[int, str]:
    response = fetch(process.url(path, listener), timeout=10)
    return response.status, response.text


def post(process: Process, body: bytes = GOOD, path: str = "/v1/check") -> tuple[int, dict[str, Any]]:
    response = fetch(process.url(path), body)
    return response.status, response.json()


def ready(process: Process) -> bool:
    return get(process, "/health/ready")[0] == 200


def until(happens: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def connection(process: Process, listener: str = "http") -> Iterator[socket.socket]:
    host, _, port = process.addresses[listener].partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as opened:
        yield opened


# --- bad input ----------------------------------------------------------------------------------------------------


def test_an_invalid_rule_is_named_with_its_place(tmp_path: Path) -> None:
    shutil.copy(MANUAL, tmp_path / "manual.properties")
    config(tmp_path, "policies: {rules: [manual.properties]}")
    line = failing_start(tmp_path)
    assert "manual.properties:41:94: rule `bob`: " in line


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ("a=role ==", "rules.properties:1:"),
        ("a=true\nnessie.server.authorization.rules.a=false", "rules.properties:2:37: rule `a` stands at "),
        ("a=true\nnessie.server.authorization.rules.b=1 + 'x'", "rules.properties:2:3"),
        ("=true", "without an id"),
    ],
)
def test_every_bad_rule_file_stops_the_start_in_one_line(tmp_path: Path, rules: str, named: str) -> None:
    (tmp_path / "rules.properties").write_text(f"nessie.server.authorization.rules.{rules}\n")
    config(tmp_path, "policies: {rules: [rules.properties]}")
    assert named in failing_start(tmp_path)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("limts: {max_checks: 5}", "unknown key `limts`"),
        ("limits: {max_cheks: 5}", "unknown key `limits.max_cheks`"),
        ("limits: {max_checks: many}", "`limits.max_checks`"),
        ("limits: {max_body_bytes: 1000000000000}", "`limits.max_body_bytes`"),
        ("authorities: {default: {engines: [opa]}}", "`authorities.default.engines`: no engine `opa`"),
        ("policies: {rules: ['**.properties']}", "**.properties"),
        ("a: [", "not YAML"),
    ],
)
def test_every_bad_setting_stops_the_start_in_one_line(tmp_path: Path, text: str, named: str) -> None:
    config(tmp_path, text)
    assert named in failing_start(tmp_path)


@pytest.mark.parametrize("override", ["limits.max_checks", "limits.nope=1"])
def test_every_bad_override_stops_the_start_in_one_line(tmp_path: Path, override: str) -> None:
    failing_start(tmp_path, "--set", override)


@pytest.mark.parametrize("listener", ["http", "grpc", "diagnostics"])
def test_a_port_in_use_is_named(tmp_path: Path, listener: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = failing_start(tmp_path, "--set", f"server.{listener}={address}")
    assert address in line
    assert f"server.{listener}" in line


def test_a_second_service_does_not_take_the_ports_of_the_first(tmp_path: Path) -> None:
    with serve_process(tmp_path) as first:
        (tmp_path / "second").mkdir()
        line = failing_start(tmp_path / "second", "--set", f"server.grpc={first.addresses['grpc']}")
        assert first.addresses["grpc"] in line
        assert post(first)[0] == 200


def missing(path: Path) -> None:
    assert not path.exists()


def folder(path: Path) -> None:
    path.mkdir()


def latin(path: Path) -> None:
    path.write_bytes(b"# caf\xe9\n")


@pytest.mark.parametrize(
    ("setting", "make"),
    [
        ("policies: {rules: [FILE]}", missing),
        ("policies: {rules: [FILE]}", folder),
        ("policies: {rules: [FILE]}", latin),
        ("policies: {rules: [], forbid: [FILE]}", missing),
        ("store: {url: 'file:FILE'}", missing),
        ("store: {url: 'file:FILE'}", folder),
        ("store: {url: 'file:FILE'}", latin),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, setting: str, make: Callable[[Path], None]) -> None:
    name = "world.yaml" if "store" in setting else "some.properties"
    make(tmp_path / name)
    config(tmp_path, setting.replace("FILE", name))
    assert name in failing_start(tmp_path)


@pytest.mark.parametrize("make", [missing, folder, latin])
def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "other.yaml")
    assert "other.yaml" in failing_start(tmp_path, "-c", "other.yaml")


@pytest.mark.parametrize(
    ("world", "place"),
    [
        ("objects: [}", "world.yaml:1:"),
        (
            "objects: []\ngrants:\n  - {principal: 'user:oidc~a', privilege: fly, object: 'warehouse:lake'}",
            "world.yaml:3:",
        ),
        ("objects: []\nobjects: []", "world.yaml:2:"),
        ("objcts: []", "objcts"),
    ],
)
def test_a_world_that_cannot_be_used_is_named_with_its_place(tmp_path: Path, world: str, place: str) -> None:
    (tmp_path / "world.yaml").write_text(world)
    config(tmp_path, "policies: {rules: []}\nstore: {url: 'file:world.yaml'}")
    assert place in failing_start(tmp_path)


def test_an_audit_folder_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    for place in ("taken", "taken/below"):
        assert place in failing_start(tmp_path, "--set", f"audit.sinks=[{{file: {tmp_path / place}}}]")


def test_without_rules_only_references_are_viewable(tmp_path: Path) -> None:
    config(tmp_path, "policies: {rules: []}")
    with serve_process(tmp_path) as process:
        asked = [
            {**ALICE, "action": "VIEW_REFERENCE", "resource": "reference:lake@prod"},
            {**ALICE, "action": "READ_ENTITY_VALUE"},
            {**ALICE, "action": "CREATE_REFERENCE", "resource": "reference:lake@prod"},
            {**ALICE, "action": "READ_ENTRIES", "resource": "reference:lake@prod"},
            ALICE,
            {**ALICE, "principal": "anonymous"},
        ]
        status, reply = post(process, json.dumps({"checks": asked}).encode())
        assert status == 200
        assert [decision["allowed"] for decision in reply["decisions"]] == [True, False, False, False, False, False]
        assert ready(process)
        assert process.terminate() == 0
        warnings = [line for line in process.stderr().splitlines() if "warning" in line]
        assert len(warnings) == 1
        assert "no rules are loaded" in warnings[0]


# --- signals ------------------------------------------------------------------------------------------------------


def half_a_request() -> tuple[bytes, bytes]:
    sent = (
        b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(GOOD)
        + GOOD
    )
    return sent[:-20], sent[-20:]


@pytest.mark.waits
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_turns_readiness_finishes_requests_and_flushes_the_audit(tmp_path: Path, number: signal.Signals) -> None:
    first, rest = half_a_request()
    with (
        serve_process(tmp_path) as process,
        connection(process) as slow,
        grpc.insecure_channel(process.addresses["grpc"]) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
        assert next(health).status == health_pb2.HealthCheckResponse.SERVING
        for _ in range(50):
            assert post(process)[0] == 200
        assert ready(process)
        slow.sendall(first)
        time.sleep(0.2)
        process.process.send_signal(number)
        until(lambda: not ready(process))
        assert json.loads(get(process, "/health/ready")[1])["reasons"] == ["stopping"]
        assert get(process, "/health/live")[0] == 200
        assert next(health).status == health_pb2.HealthCheckResponse.NOT_SERVING
        slow.sendall(rest)
        received = b"".join(iter(lambda: slow.recv(65536), b""))
        assert received.startswith(b"HTTP/1.1 200 ")
        answered = json.loads(received.partition(b"\r\n\r\n")[2])
        assert process.process.wait(PATIENCE) == 0
    records = process.records()
    assert len(records) == 51
    assert records[-1]["id"] == answered["decisionId"]


@pytest.mark.waits
def test_a_request_that_never_ends_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    first, _ = half_a_request()
    with serve_process(tmp_path) as process, connection(process) as slow, connection(process) as idle:
        slow.sendall(first)
        idle.sendall(b"POST /v1/che")
        assert post(process)[0] == 200
        assert process.terminate() == 0
    assert len(process.records()) == 1


def test_a_stop_without_traffic_leaves_nothing_open(tmp_path: Path) -> None:
    with serve_process(tmp_path) as process:
        assert process.terminate() == 0
        for listener, address in process.addresses.items():
            host, _, port = address.partition(":")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)), timeout=5).close()
            assert listener
    assert "Traceback" not in process.stderr()


def test_answers_of_a_long_life_are_all_recorded(tmp_path: Path) -> None:
    with serve_process(tmp_path) as process:
        ids = [post(process)[1]["decisionId"] for _ in range(200)]
        assert process.terminate() == 0
    records = process.records()
    assert [record["id"] for record in records] == ids
    assert [record["seq"] for record in all_records(tmp_path)] == list(range(203))


# --- a disk that takes no more ------------------------------------------------------------------------------------

SMALL = 64 * 1024
WAITING = 50_000
"""Records that may wait for the disk."""


def enlarge(process: Process) -> None:
    _, hard = resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (hard, hard))


def fill(process: Process) -> list[str]:
    """Ask until readiness is red; the ids of all answers."""
    ids: list[str] = []
    while ready(process):
        assert len(ids) < 1000
        status, reply = post(process)
        assert status == 200
        ids.append(reply["decisionId"])
    return ids


def pipeline(process: Process, count: int) -> list[tuple[int, dict[str, Any]]]:
    """Many requests over one connection, as fast as they are answered."""
    sent = (
        b"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(GOOD)
        + GOOD
    )
    answers = []
    with connection(process) as wire_socket, wire_socket.makefile("rb") as received:
        for _ in range(count // 100):
            wire_socket.sendall(sent * 100)
            for _ in range(100):
                status = int(received.readline().split()[1])
                headers = http.client.parse_headers(received)
                answers.append((status, json.loads(received.read(int(headers["Content-Length"])))))
    return answers


def whole_lines(folder: Path) -> list[str]:
    """The decisions of the audit; no line is torn."""
    found = []
    for file in audit_files(folder):
        text = file_text(file)
        assert not text or text.endswith("\n")
        records = map(json.loads, text.splitlines())
        found += [record["id"] for record in records if record["event"] == "decision"]
    return found


def test_nothing_is_answered_that_cannot_be_recorded(tmp_path: Path) -> None:
    with (
        serve_process(tmp_path, "--set", "audit.on_full=deny", limits={"FSIZE": SMALL}) as process,
        grpc.insecure_channel(process.addresses["grpc"]) as channel,
    ):
        ids = fill(process)
        assert json.loads(get(process, "/health/ready")[1])["reasons"] == ["the audit cannot be written"]
        answers = pipeline(process, WAITING + 500)
        ids += [reply["decisionId"] for status, reply in answers if status == 200]
        refused = [reply for status, reply in answers if status == 503]
        assert len(refused) >= 400
        assert {status for status, _ in answers} == {200, 503}
        assert {reply["error"]["code"] for reply in refused} == {"unavailable"}
        assert [status for status, _ in answers] == sorted(status for status, _ in answers)
        written = whole_lines(tmp_path)
        assert written == ids[: len(written)]
        assert len(ids) - len(written) <= WAITING

        table = {"table": {"catalogName": "lakehouse", "schemaName": "sales", "tableName": "orders"}}
        action = {"operation": "SelectFromColumns", "resource": table, "filterResources": [table]}
        trino = json.dumps({"input": {"context": {"identity": {"user": "Alice"}}, "action": action}}).encode()
        assert not post(process, trino, "/v1/data/trino/allow")[1].get("result")
        assert not post(process, trino, "/v1/data/trino/batch")[1].get("result")

        stub: Any = wire_grpc.DecisionServiceStub(channel)
        asked = wire.Check(
            principal=wire.Principal(id="user:oidc~Alice"),
            action="read_data",
            resource=wire.Resource(reference="table:lake/Foo@prod"),
        )
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(wire.CheckRequest(checks=[asked]), timeout=PATIENCE)
        error: Any = caught.value
        assert error.code() == grpc.StatusCode.UNAVAILABLE
        assert error.details().startswith("unavailable: ")

        enlarge(process)
        until(lambda: ready(process))
        status, reply = post(process)
        assert status == 200
        assert process.terminate() == 0
    assert whole_lines(tmp_path) == [*ids, reply["decisionId"]]
    records = all_records(tmp_path)
    assert [record["seq"] for record in records] == list(range(len(records)))
    refusals = [record for record in records if record["event"] == "refusal"]
    assert sum(record.get("suppressed", 1) for record in refusals if record["surface"] == "http") == len(refused)


@pytest.mark.waits
def test_a_stop_that_loses_records_says_so(tmp_path: Path) -> None:
    with serve_process(tmp_path, limits={"FSIZE": SMALL}) as process:
        ids = fill(process)
        ids += [reply["decisionId"] for _, reply in pipeline(process, 100)]
        assert process.terminate() == 1
        assert "records lost" in process.stderr()
    written = whole_lines(tmp_path)
    assert 0 < len(written) < len(ids)
    assert written == ids[: len(written)]


def test_a_disk_that_takes_nothing_at_all_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "bundles").symlink_to("/dev/full")
    line = failing_start(tmp_path)
    assert "audit" in line


# --- too few files ------------------------------------------------------------------------------------------------


@pytest.mark.waits
def test_without_file_descriptors_readiness_is_red_until_there_are_some(tmp_path: Path) -> None:
    host, arguments = "127.0.0.1", ("--set", "limits.idle_timeout_seconds=60")
    with serve_process(tmp_path, *arguments, limits={"NOFILE": 64}) as process:
        probe = http.client.HTTPConnection(process.addresses["diagnostics"], timeout=PATIENCE)

        def reasons() -> list[str]:
            probe.request("GET", "/health/ready")
            found: list[str] = json.loads(probe.getresponse().read()).get("reasons", [])
            return found

        assert reasons() == []
        watched = psutil.Process(process.process.pid)
        _, most = watched.rlimit(psutil.RLIMIT_NOFILE)
        watched.rlimit(psutil.RLIMIT_NOFILE, (watched.num_fds(), most))
        with ExitStack() as held:
            port = int(process.addresses["http"].partition(":")[2])
            for _ in range(150):
                held.enter_context(socket.create_connection((host, port), timeout=PATIENCE))
            until(lambda: reasons() == ["out of file descriptors"])
            assert process.process.poll() is None
        watched.rlimit(psutil.RLIMIT_NOFILE, (most, most))
        until(lambda: reasons() == [])
        probe.close()
        assert post(process)[0] == 200
        assert process.terminate() == 0
    assert len(process.records()) == 1
    assert len(process.stderr()) < 100_000


# --- several services ---------------------------------------------------------------------------------------------


def test_two_services_keep_their_audit_in_one_folder(tmp_path: Path) -> None:
    shared = ("--set", f"audit.sinks=[{{file: {tmp_path / 'audit'}}}]")
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with serve_process(tmp_path / "one", *shared) as one, serve_process(tmp_path / "two", *shared) as two:
        ids = {process: [post(process)[1]["decisionId"] for _ in range(20)] for process in (one, two)}
        assert one.terminate() == 0
        ids[two].append(post(two)[1]["decisionId"])
        assert two.terminate() == 0
    found = [records_in([file]) for file in audit_files(tmp_path)]
    decisions = [[record["id"] for record in records if record["event"] == "decision"] for records in found]
    assert sorted(decisions) == sorted(ids.values())
    assert len({record["instance"] for records in found for record in records}) == 2
    for records in found:
        assert [record["seq"] for record in records] == list(range(len(records)))
    assert len(list((tmp_path / "audit" / "bundles").iterdir())) == 1


def test_a_restart_keeps_what_was_written_before(tmp_path: Path) -> None:
    ids: list[str] = []
    for _ in range(2):
        with serve_process(tmp_path) as process:
            ids.append(post(process)[1]["decisionId"])
            assert process.terminate() == 0
    assert sorted(whole_lines(tmp_path)) == sorted(ids)
