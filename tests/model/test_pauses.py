"""Waits of production: those that the documentation names, and nobody but tests replaces them."""

from __future__ import annotations

import re

import msgspec
import pytest
from support.paths import ROOT
from support.service.commands import run_pdp
from support.service.pauses import SHORT, documented_pauses

from pdp.app.workers.channel import Assignment
from pdp.model.pauses import Pauses, pauses

DOCUMENTED = {
    "handover": (1.0, "operations.md", "again within a second on their connection get an answer"),
    "worker_silent": (2.0, "operations.md", "a worker does not answer for 2 seconds"),
    "worker_hung": (10.0, "operations.md", "... for 10 seconds"),
    "worker_steady": (10.0, "operations.md", "it ends again within 10 seconds"),
    "first_start": (0.5, "operations.md", "Starts pause for 0.5, 1, 2, ... up to 30 seconds"),
    "longest_start": (30.0, "operations.md", "Starts pause for 0.5, 1, 2, ... up to 30 seconds"),
    "last_delivery": (2.0, "operations.md", "At the stop, two seconds are left for delivery"),
    "sqlite_busy": (8.0, "store.md", "within about ten seconds if it is silent"),
    "write_lock": (8.0, "store.md", "within about ten seconds if it is silent"),
}
"""Length, page and words of each wait that an operator may notice."""
INTERNAL = {"worker_beat": 0.5, "store_silent": 10.0, "postgres_retry": 1.0}


def test_every_wait_has_a_row() -> None:
    assert {*Pauses.__struct_fields__} == {*DOCUMENTED, *INTERNAL}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_production_waits_as_documented(name: str) -> None:
    length, page, words = DOCUMENTED[name]
    assert getattr(Pauses(), name) == length
    assert words in re.sub(r"\s+", " ", (ROOT / "docs" / page).read_text())


@pytest.mark.parametrize("name", INTERNAL)
def test_production_waits_as_ever(name: str) -> None:
    assert getattr(Pauses(), name) == INTERNAL[name]


def test_only_a_worker_replaces_the_waits_in_the_product() -> None:
    """A worker gets those of its supervisor, which nothing replaces."""
    calls = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "pdp").rglob("*.py")
        if re.search(r"set_pauses\(|pauses\._current|[( ]Pauses\((?!\))", file.read_text())
    }
    assert calls == {"pdp/app/workers/worker.py", "pdp/model/pauses.py"}


def test_tests_replace_the_waits_and_restore_them() -> None:
    assert pauses() == SHORT
    with documented_pauses(worker_hung=3.0):
        assert pauses() == msgspec.structs.replace(Pauses(), worker_hung=3.0)
    assert pauses() == SHORT


def test_an_assignment_carries_the_waits_of_the_supervisor() -> None:
    sent = msgspec.msgpack.encode(Assignment(0, b"", "", "", {}, pauses=Pauses(handover=0.25)))
    assert msgspec.msgpack.decode(sent, type=Assignment).pauses == Pauses(handover=0.25)


@pytest.mark.process
def test_no_setting_and_no_variable_of_the_environment_names_a_wait() -> None:
    ended = run_pdp("config", "check", "--example", env={"PDP__PAUSES__HANDOVER": "0"}, fresh=True)
    assert ended.returncode == 1
    assert "unknown key `pauses`" in ended.stdout
