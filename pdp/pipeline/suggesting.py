"""Least-privilege proposals from a lake: uses from native Spark, proofs by replays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from pdp.decision.service import Pdp
from pdp.errors import InvalidArgument, MissingFacts, PdpError
from pdp.facts.snapshot import Facts
from pdp.model.revision import Revision
from pdp.offline.candidates import CandidatePolicies
from pdp.offline.least_privilege import GrantNeeds, GrantUse, split_rules, unused_rules
from pdp.offline.table_replay import RowQuestion, TableReplay
from pdp.pipeline.lake import Lake
from pdp.pipeline.recorded_archive import LakeArchive
from pdp.pipeline.replay_rows import ReplayChoice, question_rows, questions
from pdp.pipeline.replay_tasks import SENT, read_questions
from pdp.pipeline.replaying import LakeReplay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROUNDS: Final = 4
"""Replays with more kept each time, before a proposal keeps everything."""
_MOST_USES: Final = 2_000_000
_MOST_SEEN: Final = 20_000
_MOST_TRIED: Final = 3_000
"""Questions on which single rules are tried."""
_CHANGES: Final = ("gained", "lost")
_ALL: Final = ReplayChoice(by_revision=False)


class Suggestion(msgspec.Struct, frozen=True):
    """Proposal that loses no recorded access. `rights` count pairs of privilege and seen object; zero for rules.

    `earlier` are recorded accesses that today's policies deny already, or permit although they were denied.
    """

    before: int
    after: int
    dropped: int
    narrowed: int
    decided: int
    earlier: int
    rights_before: int = 0
    rights_after: int = 0
    facts: Facts | None = None
    rules: Mapping[str, str] = {}


class LakeSuggestion:
    """Search for a proposal in the newest policies and facts of a lake. `say` gets the stages."""

    def __init__(
        self, lake: Lake, archive: LakeArchive, rebuild: Callable[[bytes], Pdp], say: Callable[[str], None]
    ) -> None:
        _require_whole(lake)
        self._lake = lake
        self._archive = archive
        self._rebuild = rebuild
        self._say = say
        newest = _newest_revision(lake)
        text = archive.bundle_text(newest.digest)
        if text is None:
            raise InvalidArgument(f"the lake has no bundle {newest.digest}, the newest one: run `pdp pipeline ingest`")
        self._bundle = text
        try:
            self.facts = archive.facts_at(newest)
        except MissingFacts as error:
            raise InvalidArgument(f"the lake lacks the newest facts: {error}") from None
        say("replaying under today's policies")
        self._decided, self._changed = self._replay(CandidatePolicies(bundle=text, facts=self.facts))

    def grants(self) -> Suggestion:
        """Return fewer and weaker grants; raise InvalidArgument if a loss remains in spite of all grants."""
        self._say("reading uses of grants")
        needs = GrantNeeds(self.facts, self._permits("grants:"), self._managers())
        for round in range(_ROUNDS + 1):
            if round == _ROUNDS:
                needs.restore_all()
            proposal = needs.proposal()
            self._say(f"replaying under {sum(1 for _ in proposal.facts.grants()):,} grants")
            changed = self._replay(CandidatePolicies(bundle=self._bundle, facts=proposal.facts))[1]
            hurt = {principal for id, principal in changed.items() if id not in self._changed}
            hurt |= {principal for id, principal in self._changed.items() if id not in changed}
            if not hurt:
                break
            restored = [needs.restore(principal) for principal in sorted(hurt)]
            if not any(restored):
                needs.restore_all()
        else:
            raise InvalidArgument("no proposal: the replay under all grants differs from the one before")
        seen = self._seen()
        rights = needs.rights(self.facts, seen), needs.rights(proposal.facts, seen)
        counts = sum(1 for _ in self.facts.grants()), sum(1 for _ in proposal.facts.grants())
        earlier = len(self._changed)
        return Suggestion(*counts, proposal.dropped, proposal.narrowed, self._decided, earlier, *rights, proposal.facts)

    def rules(self) -> Suggestion:
        """Return the rules that are needed, without unused rules and unused alternatives of rules."""
        rules: dict[str, str] = msgspec.json.decode(self._bundle)["rules"]
        split = self._usable_split(rules)
        self._say("reading uses of rules")
        kept = set(split) - unused_rules(split, self._reasons(split))
        hurt = self._hurt(_chosen(split, kept))
        if hurt:
            kept |= self._regaining(split, kept, hurt)
            if self._hurt(_chosen(split, kept)):
                kept = set(split)
        whole = {
            id: text
            for id, text in rules.items()
            if id in kept or (_parts_of(id, split) and _parts_of(id, split) <= kept)
        }
        parts = {id: split[id] for id in kept if not any(id in _parts_of(each, split) for each in whole)}
        proposed = dict(sorted({**whole, **parts}.items()))
        dropped = [id for id in rules if not ({id} | _parts_of(id, split)) & kept]
        narrowed = len(rules) - len(whole) - len(dropped)
        return Suggestion(
            len(rules), len(proposed), len(dropped), narrowed, self._decided, len(self._changed), rules=proposed
        )

    def _usable_split(self, rules: Mapping[str, str]) -> Mapping[str, str]:
        split = split_rules(rules)
        try:
            self._rebuild(CandidatePolicies(rules=split).text_from(self._bundle))
        except PdpError:
            return rules  # an alternative that is no rule by itself
        return split

    def _under(self, rules: Mapping[str, str]) -> CandidatePolicies:
        return CandidatePolicies(bundle=CandidatePolicies(rules=rules).text_from(self._bundle), facts=self.facts)

    def _reasons(self, rules: Mapping[str, str]) -> set[str]:
        """Return all reasons of permits: those of records, and those of a replay under split rules."""
        recorded = {use.by for use in self._permits("cel:")}
        results = self._results(self._under(rules)).where("kind IN ('reason', 'gained')").select("by_after").distinct()
        return recorded | {by for (by,) in results.collect()}

    def _hurt(self, rules: Mapping[str, str]) -> list[int]:
        """Return the questions that rules decide otherwise than today's rules."""
        self._say(f"replaying under {len(rules):,} rules")
        changed = self._replay(self._under(rules))[1]
        return sorted(set(changed) ^ set(self._changed))

    def _regaining(self, split: Mapping[str, str], kept: set[str], hurt: Sequence[int]) -> set[str]:
        """Return the rules of which one alone gives some lost access back."""
        rows = self._question_rows(hurt[:_MOST_TRIED])
        found: set[str] = set()
        for id in sorted(set(split) - kept):
            tried = TableReplay(self._archive, self._rebuild, self._under(_chosen(split, {*kept, id})))
            results = tried.decide(rows)
            if len([each for each in results if each.kind in _CHANGES]) < len(rows):
                found.add(id)
        return found

    def _question_rows(self, ids: Sequence[int]) -> list[RowQuestion]:
        chosen = questions(question_rows(self._lake, _ALL)).selectExpr(*SENT)
        rows = chosen.where(chosen["question"].isin(list(ids)))
        return [each for batch in rows.toArrow().to_batches() for each in read_questions(batch)]

    def _results(self, candidate: CandidatePolicies) -> DataFrame:
        return LakeReplay(self._lake, self._archive, self._rebuild, _ALL, candidate).decided

    def _replay(self, candidate: CandidatePolicies) -> tuple[int, dict[int, str]]:
        """Return the number of decided checks, and the principals of changed questions."""
        results = self._results(candidate).persist()
        try:
            counts = results.where("kind <> 'undecidable'").groupBy().sum("checks").collect()
            changed = results.where(results["kind"].isin(*_CHANGES)).select("id", "principal").collect()
        finally:
            results.unpersist()
        return counts[0][0] or 0, dict(changed)

    def _permits(self, prefix: str) -> list[GrantUse]:
        """Return the distinct permits whose reason has a prefix."""
        from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

        rows = self._lake.table("decisions").where("allowed").where(sql.col("by").startswith(prefix))
        subject = sql.coalesce(sql.col("as"), sql.col("acting_role"), sql.col("principal"))
        found = rows.select("by", subject, "action", "resource").distinct().limit(_MOST_USES + 1).collect()
        if len(found) > _MOST_USES:
            raise InvalidArgument(f"more than {_MOST_USES:,} different uses: give a shorter time to the lake")
        return [GrantUse(*(value or "" for value in row)) for row in found]

    def _managers(self) -> set[str]:
        """Return the principals who changed objects or grants: records of decisions do not show what they need."""
        rows = self._lake.table("events").where("event = 'management' AND allowed").select("actor").distinct()
        return {actor for (actor,) in rows.collect() if actor}

    def _seen(self) -> list[str]:
        rows = self._lake.table("decisions").select("resource").where("resource IS NOT NULL").distinct()
        return sorted(resource for (resource,) in rows.limit(_MOST_SEEN).collect())


def _chosen(rules: Mapping[str, str], ids: Collection[str]) -> dict[str, str]:
    return {id: text for id, text in rules.items() if id in ids}


def _parts_of(id: str, split: Mapping[str, str]) -> set[str]:
    """Return the ids of the alternatives of a rule; none for a rule that was not split."""
    if id in split:
        return set()
    numbers = itertools.takewhile(lambda number: f"{id}-{number}" in split, itertools.count(1))
    return {f"{id}-{number}" for number in numbers}


def _require_whole(lake: Lake) -> None:
    """Raise InvalidArgument for a lake that lacks permits: an unused right would only look unused."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    rows = lake.table("requests").agg(sql.min("sampled"), sql.sum("left_out")).collect()
    sampled, left_out = rows[0]
    if (sampled is not None and sampled < 1) or left_out:
        raise InvalidArgument(
            f"the permits of this lake were sampled ({left_out or 0:,} have no record), so that used rights look unused"
        )
    if sampled is None:
        raise InvalidArgument("the lake has no records: run `pdp pipeline ingest`")


def _newest_revision(lake: Lake) -> Revision:
    """Return the policies of the newest record, and the newest facts of its epoch."""
    newest = lake.table("requests").selectExpr("max_by(revision, struct(time, seq))").collect()[0][0]
    revision = Revision.parse(newest)
    facts = lake.table("facts")
    last = facts.where(facts["epoch"] == revision.epoch).agg({"sequence": "max"}).collect()[0][0]
    return revision if last is None else Revision(revision.epoch, last, revision.digest)
