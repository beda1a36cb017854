"""Single flight: one request decides, and nobody waits for a request that fails or is gone."""

from __future__ import annotations

import asyncio

from pdp.decision.cache.cache import CachedVerdict
from pdp.decision.cache.local import Flights, await_landings
from pdp.engines.engine import PERMIT

PERMITTED = CachedVerdict(PERMIT, "r")


async def test_the_first_leads_and_others_follow() -> None:
    flights = Flights()
    leader, followed = flights.begin(b"k", [b"a", b"b"])
    assert followed == {}
    follower, followed = flights.begin(b"k", [b"b", b"c", b"a"])
    assert followed == {0: leader, 2: leader}
    assert follower.fields == [b"c"]
    other, followed = flights.begin(b"other key", [b"a"])
    assert followed == {}
    flights.land(leader, {b"a": PERMITTED})
    await await_landings([leader], 1)
    assert leader.verdicts == {b"a": PERMITTED}
    for flight in (follower, other):
        flights.land(flight, {})
    assert flights.count() == 0


async def test_a_second_landing_changes_nothing() -> None:
    flights = Flights()
    flight, _ = flights.begin(b"k", [b"a"])
    flights.land(flight, {b"a": PERMITTED})
    flights.land(flight, {})
    assert flight.verdicts == {b"a": PERMITTED}


async def test_a_question_may_name_a_resource_twice() -> None:
    flights = Flights()
    flight, followed = flights.begin(b"k", [b"a", b"a"])
    assert followed == {}
    flights.land(flight, {b"a": PERMITTED})
    assert flights.count() == 0


async def test_nobody_waits_longer_than_the_timeout() -> None:
    flights = Flights()
    flight, _ = flights.begin(b"k", [b"a"])
    await asyncio.wait_for(await_landings([flight], 0.01), 5)
    assert not flight.landed.done()


async def test_a_cancelled_follower_leaves_the_flight_alone() -> None:
    flights = Flights()
    flight, _ = flights.begin(b"k", [b"a"])
    waiting = asyncio.create_task(await_landings([flight], 60))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert not flight.landed.cancelled()
    flights.land(flight, {b"a": PERMITTED})
    assert flight.verdicts
