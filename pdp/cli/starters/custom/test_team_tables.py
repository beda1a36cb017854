"""Contract of engines, on the engine of this project, for pytest."""

from __future__ import annotations

from collections.abc import Sequence

from team_tables import TeamTables  # type: ignore[import-not-found, unused-ignore]

from pdp.engines.contract import EngineContract
from pdp.engines.engine import Engine, EngineQuestion
from pdp.model.question import Principal, Question, Resource


class TestTeamTables(EngineContract):
    """Tests of the contract, with questions that the engine permits, forbids and leaves open."""

    def make_engine(self) -> Engine:
        """Return the engine with the options of pdp.yaml."""
        engine: Engine = TeamTables({"archives": ["archive"]})
        return engine

    def groups(self) -> Sequence[EngineQuestion]:
        """Return the questions: two actions, for somebody of the team and for somebody else."""
        users = (Principal("user", "oidc~alice", groups=("sales",)), Principal("user", "oidc~bob"))
        actions = ("read_data", "drop")
        return [EngineQuestion(Question(user, action), "table", "lake", None) for user in users for action in actions]

    def resources(self) -> Sequence[Resource]:
        """Return tables of the team, of the archive, and of others."""
        return [Resource("table", "lake", (team, "orders")) for team in ("sales", "archive", "hr")]
