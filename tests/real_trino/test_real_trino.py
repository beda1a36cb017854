"""Trino's own answers to users with different rights, with the service in front of it.

Both Trinos are started once for a run, the second while the first is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from support.pages import scenarios
from support.servers.real_trino import LEFT_OUT, Stand, standing
from support.servers.trino_distribution import java, server_folder

from pdp.model.trino_operations import TRINO_OPERATIONS

# what may take long at first is fetching the server, in a fixture
pytestmark = [pytest.mark.process, pytest.mark.timeout(120, func_only=True)]


@pytest.fixture(scope="session")
def stands(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Stand]]]:
    """The stands that the collected tests need, as they become ready, one after the other."""
    server_folder()
    java()
    calls = [item.callspec for item in request.session.items if hasattr(item, "callspec")]
    modes = {call.params.get("stand") for call in calls}
    with ExitStack() as held, ThreadPoolExecutor(max_workers=1) as starter:

        def start(mode: str) -> Stand:
            started = held.enter_context(standing(tmp_path_factory.mktemp(mode), mode))
            wrong = started.play("base")
            assert not wrong, "\n".join(wrong)
            return started

        yield {mode: starter.submit(start, mode) for mode in LEFT_OUT if mode in modes}


NEWER = {"SetMaterializedViewComment"}
"""Operations of the next release of Trino."""


@pytest.fixture(scope="session", params=list(LEFT_OUT))
def stand(request: pytest.FixtureRequest, stands: dict[str, Future[Stand]]) -> Stand:
    """A Trino that asks one question per object, then one that asks many at once."""
    return stands[request.param].result()


@pytest.mark.parametrize("name", scenarios.names())
def test_every_user_gets_what_their_rights_give(stand: Stand, name: str) -> None:
    wrong = stand.play(name)
    assert not wrong, "\n".join(("", *wrong))


def test_every_operation_that_trino_sent_is_known(stand: Stand) -> None:
    assert stand.metric("pdp_trino_unknown_operations_total") == 0
    assert stand.metric("pdp_trino_failures_total") == 0


def test_every_operation_that_trino_knows_was_asked(stand: Stand) -> None:
    left_out = set(scenarios.names()) - stand.played
    if left_out:
        pytest.skip(f"not all scenarios were played: {', '.join(sorted(left_out))}")
    assert set(TRINO_OPERATIONS) - stand.operations() == NEWER


def test_notes_are_unique() -> None:
    notes = [step.note for name in ("base", *scenarios.names()) for step in scenarios.load(name).steps]
    assert len(notes) == len(set(notes))
