"""Decision ids: UUIDv7, ordered by time, unique across processes."""

from __future__ import annotations

import subprocess
import sys
from uuid import UUID

import pytest
from support.generators.generated_pdps import decide_and_record, make_pdp

CHECK = {"principal": "anonymous", "action": "read_data", "resource": "table:w/a/b"}
PRINT_IDS = """
from uuid_utils import uuid7
print(*(uuid7() for _ in range(20_000)))
"""


def test_ids_are_ordered_by_time() -> None:
    pdp = make_pdp({}, {})
    ids = [decide_and_record(pdp, [CHECK])[0].id for _ in range(200)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    assert {(UUID(id).version, UUID(id).variant, str(UUID(id)) == id) for id in ids} == {
        (7, "specified in RFC 4122", True)
    }


@pytest.mark.process
def test_processes_make_no_equal_ids() -> None:
    started = [subprocess.Popen([sys.executable, "-c", PRINT_IDS], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    made = [process.communicate(timeout=60)[0].split() for process in started]
    assert made == [sorted(made[0]), sorted(made[1])]
    assert len({*made[0], *made[1]}) == 40_000
