"""Writes that run out of time on a real PostgreSQL: an answer of 503 means that nothing is written, now or later."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest
from support.clients.http_client import client_of
from support.service.serving import settings_of

pytestmark = pytest.mark.waits

GRANT = {"principal": "user:oidc~eve", "privilege": "select", "object": "table:lake/sales/orders"}


async def test_a_write_answered_with_503_is_not_committed_afterwards(database: str, tmp_path: Path) -> None:
    """Another writer holds the lock for longer than a request may take, and then lets go."""
    callers = {"here": {"loopback": True, "may_assert": ["principals"], "may_write": True}}
    config = {
        "store": {"url": database},
        "limits": {"request_timeout_seconds": 1},
        "identity": {"callers": callers},
    }
    grants = [GRANT | {"principal": f"user:oidc~eve{number}"} for number in range(6)]
    async with client_of(settings_of(config, tmp_path)) as http:
        with psycopg.connect(database) as other:
            other.execute("SELECT 1 FROM meta FOR UPDATE")
            answers = await asyncio.gather(*(http.post("/v1/grants", {"add": [grant]}) for grant in grants))
        assert [status for status, _ in answers] == [503] * len(grants)
        await asyncio.sleep(1.5)  # the threads of the writes get the lock
        with psycopg.connect(database) as other:
            assert other.execute("SELECT count(*) FROM grants").fetchone() == (0,)
        status, answer = await http.post("/v1/grants", {"add": [GRANT]})
        assert status == 200, answer
        assert answer["revision"].split(".")[1] == "1"
