"""Judgement of a soak run: which figures are wrong."""

from __future__ import annotations

import os
import socket
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from support.paths import ROOT

sys.path.append(str(ROOT / "bench"))

from soak import Found, Watch, grown, wrong_records, wrong_requests
from soak_probes import AuditCounter, connections_of, resident_megabytes, workers_of

GOOD = Found(1000, 0, 0, 0, 0, 0, 100, 1, 2, 3, 4)
GIVEN = Namespace(connections=8)
RECORD = '{"event":"decision","schema":1}\n'


def test_no_request_may_fail() -> None:
    assert wrong_requests(GOOD, Watch()) == []
    for name in ("connect", "read", "write", "status", "timeout"):
        assert wrong_requests(GOOD._replace(**{name: 1}), Watch()) != []


def test_connections_of_killed_workers_may_break_and_nothing_else() -> None:
    killed = Watch(kills=2, lost_connections=5)
    assert wrong_requests(GOOD._replace(read=4, write=1), killed) == []
    assert wrong_requests(GOOD._replace(read=6), killed) != []
    assert wrong_requests(GOOD._replace(status=1), killed) != []


@pytest.mark.parametrize(
    ("records", "answered", "is_right"),
    [(1010, 1010, True), (1018, 1018, True), (1009, 1009, False), (1019, 1019, False), (1010, 1011, False)],
)
def test_the_audit_has_every_answer_and_the_last_ones_of_each_connection(
    records: int, answered: float, is_right: bool
) -> None:
    """Ten answers came before the load."""
    assert (wrong_records(GOOD, Watch(), (records, answered, 10), GIVEN) == []) == is_right


def test_only_records_of_the_last_moments_before_a_kill_may_be_missing() -> None:
    unknown = float("nan")
    assert wrong_records(GOOD, Watch(kills=2), (910, unknown, 10), GIVEN) == []
    assert wrong_records(GOOD, Watch(kills=2), (909, unknown, 10), GIVEN) != []


@pytest.mark.parametrize(("begin", "end", "is_flat"), [(100, 104, True), (100, 104.1, False), (100, 50, True)])
def test_memory_is_flat_after_the_first_minute(begin: float, end: float, is_flat: bool) -> None:
    samples = [(float(second), 10.0 if second < 60 else begin if second < 400 else end) for second in range(600)]
    assert (grown(Watch(memory={1: samples})) == []) == is_flat
    assert grown(Watch(memory={1: samples[:100]})) == []
    assert grown(Watch(memory={1: samples}, waiting=1000)) == []


def test_probes_see_this_process(tmp_path: Path) -> None:
    assert resident_megabytes(os.getpid()) > 10
    assert resident_megabytes(2**22 + 1) == 0
    assert os.getpid() in workers_of(os.getpid()) or workers_of(os.getpid())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, listening.accept()[0]:
            assert connections_of(os.getpid(), port) == 1
            client.close()


def test_records_are_counted_as_they_come(tmp_path: Path) -> None:
    audit = AuditCounter(tmp_path)
    assert audit.count() == 0
    for expected in (2, 4):
        with (tmp_path / "decisions-a.jsonl").open("a") as file:
            file.write(f'{RECORD}{{"event":"refusal"}}\n{RECORD}')
        assert audit.count() == expected
    (tmp_path / "decisions-b.jsonl").write_text(RECORD[:10])
    assert audit.count() == 4
    with (tmp_path / "decisions-b.jsonl").open("a") as file:
        file.write(RECORD[10:])
    (tmp_path / "lock").write_text("\n")
    assert audit.count() == 5
