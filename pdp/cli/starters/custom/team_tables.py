"""Engine of your own: a team reads the tables of its namespace, and nobody drops a table of an archive.

The contract is on the page docs/engines.md of pdp. Change `_verdict` first, then the tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from pdp.engines.engine import ABSTAIN, EFFECT_NAMES, FORBID, PERMIT, READS_POLICIES, Cost, EngineQuestion, Verdicts
from pdp.facts.snapshot import Facts
from pdp.model.answer import Trace
from pdp.model.question import Resource

ACTIONS: Final = ("read_data", "drop")


class TeamTables:
    """Engine that knows teams by the groups of a user: `sales` reads tables in `lake/sales`."""

    name = "team_tables"  # the name of the entry point; each reason begins with it
    reads = READS_POLICIES  # verdicts follow from options and question alone, so they can be cached
    cost = Cost.MICROSECONDS

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Take the options of `policies.engines.team_tables`. An exception here stops the start of pdp."""
        self.archives = frozenset(options.get("archives", ()))
        # equal policies have equal digests in every process; another digest makes a new bundle
        self.digest = sha256(repr(sorted(self.archives)).encode()).hexdigest()

    def applies(self, action: str, type: str) -> bool:
        """Tell whether the engine has an opinion on an action on a type of object."""
        return type == "table" and action in ACTIONS

    def decide(self, group: EngineQuestion, resources: Sequence[Resource], facts: Facts) -> Verdicts:
        """Return one effect and one reason for each table, in order."""
        found = [self._verdict(group, resource) for resource in resources]
        return Verdicts(bytes([effect for effect, _ in found]), [reason for _, reason in found])

    def explain(self, group: EngineQuestion, resource: Resource, facts: Facts) -> Trace:
        """Return the verdict on one table for `pdp explain`."""
        effect, reason = self._verdict(group, resource)
        return Trace(f"{self.name}: {group.action}", EFFECT_NAMES[effect], reason or "no rule of this engine")

    def _verdict(self, group: EngineQuestion, resource: Resource) -> tuple[int, str | None]:
        """Return the effect and the reason: a forbid wins over every permit, silence leaves the answer to others."""
        team = resource.path[0]
        if group.action == "drop":
            return (FORBID, f"{self.name}:archive") if team in self.archives else (ABSTAIN, None)
        return (PERMIT, f"{self.name}:{team}") if team in group.principal.groups else (ABSTAIN, None)
