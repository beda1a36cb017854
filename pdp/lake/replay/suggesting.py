"""Least-privilege proposals from a lake: uses from native Spark, proofs by replays."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

from pdp.audit.records.schema import FILTER_EVENT
from pdp.decision.service import Pdp
from pdp.errors import InvalidArgument, MissingFacts, PdpError
from pdp.facts.snapshot import Facts
from pdp.lake.lake import Lake, pinned
from pdp.lake.replay.archive import LakeArchive
from pdp.lake.replay.questions import (
    RecordedQuestions,
    RecordGaps,
    ReplayChoice,
    chosen,
    lost_lines,
    require_whole,
    unread_causes,
)
from pdp.lake.replay.replaying import ReplayPolicies, decide_questions
from pdp.lake.replay.tasks import SENT, read_questions
from pdp.lake.session import SILENT, StageNotices, plan_text
from pdp.model.revision import Revision, new_id
from pdp.offline.replay.basis import CandidatePolicies
from pdp.offline.replay.least_privilege import GrantNeeds, GrantUse, split_rules, unused_rules
from pdp.offline.replay.table_replay import ReplayedQuestion, RowQuestion, TableReplay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROUNDS: Final = 4
"""Replays with more kept each time, before a proposal keeps everything."""
_MOST_USES: Final = 2_000_000
_MOST_SEEN: Final = 20_000
_MOST_TRIED: Final = 3_000
"""Questions on which single rules are tried."""
_RULE: Final = "cel:"
_UNDECIDABLE: Final = "undecidable"
_CHANGES: Final = ("gained", "lost", _UNDECIDABLE)
_IS_CHANGE: Final = f"kind IN {_CHANGES} OR event = '{FILTER_EVENT}'"
"""Condition on results that selects the same as `_is_change`. The result of all equal decisions has no event."""
_OUTCOME: Final = ("id", "principal", "kind", "event", "by_after", "rows_after", "columns_seen", "columns_hidden")


class Suggestion(msgspec.Struct, frozen=True):
    """Proposal that loses no replayed access. `rights` count pairs of privilege and seen object; zero for rules.

    `earlier` are recorded accesses that today's policies deny already, or permit although they were denied. `gaps` are
    records that nothing is proven about.
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
    gaps: RecordGaps = RecordGaps()


class _Replayed(NamedTuple):
    """Result of a replay. `changed`: principal and new outcome of each question with another outcome than recorded."""

    decided: int
    changed: Mapping[int, tuple[str, str]]
    undecidable: Sequence[Any]

    @property
    def earlier(self) -> int:
        """Return the number of questions that are decided otherwise than recorded."""
        return sum(1 for _, outcome in self.changed.values() if outcome != _UNDECIDABLE)

    def differing(self, other: _Replayed) -> dict[int, str]:
        """Return the questions that the other replay decides otherwise, with their principals."""
        ids = {id for id, _ in self.changed.items() ^ other.changed.items()}
        return {id: (self.changed.get(id) or other.changed[id])[0] for id in ids}


class LakeSuggestion:
    """Search for a proposal in the newest policies and facts of a lake. Close it: Spark keeps questions.

    `since` chooses records from a time on. Principals of checks that cannot be decided again keep all of their grants,
    and the rules that permitted such checks stay: nothing else would keep these accesses.
    """

    def __init__(
        self,
        lake: Lake,
        archive: LakeArchive,
        rebuild: Callable[[bytes], Pdp],
        stages: StageNotices = SILENT,
        since: str = "",
    ) -> None:
        self._choice = ReplayChoice(since, listings=True, by_revision=False)
        require_whole(lake, self._choice)
        self._lake = pinned(lake)
        self._archive = archive
        self._rebuild = rebuild
        self._stages = stages
        newest = _newest_revision(lake)
        text = archive.bundle_text(newest.digest)
        if text is None:
            raise InvalidArgument(f"the lake has no bundle {newest.digest}, the newest one: run `pdp pipeline ingest`")
        self._bundle = text
        try:
            self.facts = archive.facts_at(newest)
        except MissingFacts as error:
            raise InvalidArgument(f"the lake lacks the newest facts: {error}") from None
        self._choice = msgspec.structs.replace(self._choice, by_second=rebuild(text).bundle.reads_time)
        self._recorded = RecordedQuestions(self._lake, self._choice)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if "_questions" in self.__dict__:
            self._questions.unpersist()
        self._recorded.close()

    def plan(self) -> str:
        """Return Spark's plan of a replay of all records under today's policies."""
        return plan_text(self._results(self._present, self._recorded.frame(planned=True)))

    @property
    def _present(self) -> CandidatePolicies:
        return CandidatePolicies(bundle=self._bundle, facts=self.facts)

    @cached_property
    def _questions(self) -> DataFrame:
        """Return all questions, which all replays share."""
        with self._stages.stage("grouping checks", "check") as stage:
            stage.count(self._recorded.checks)
        return self._recorded.frame().persist()

    @cached_property
    def _today(self) -> _Replayed:
        return self._replay("today's policies", self._present)

    @cached_property
    def _gaps(self) -> RecordGaps:
        causes = Counter(unread_causes(self._lake, self._choice))
        for row in self._today.undecidable:
            causes[row.cause] += row.checks
        return RecordGaps(dict(causes), lost_lines(self._lake))

    def _kept_principals(self) -> set[str]:
        """Return the principals who keep all grants: writers of grants and objects, and those of undecidable checks."""
        return self._managers() | {row.principal for row in self._today.undecidable if row.principal}

    def grants(self) -> Suggestion:
        """Return fewer and weaker grants; raise InvalidArgument if a loss remains in spite of all grants."""
        with self._stages.stage("reading uses of grants"):
            needs = GrantNeeds(self.facts, self._permits("grants:"), self._kept_principals())
        for round in range(_ROUNDS + 1):
            if round == _ROUNDS:
                needs.restore_all()
            proposal = needs.proposal()
            policies = CandidatePolicies(bundle=self._bundle, facts=proposal.facts)
            replayed = self._replay(f"{sum(1 for _ in proposal.facts.grants()):,} grants", policies)
            hurt = set(self._today.differing(replayed).values())
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
        return Suggestion(
            *counts, proposal.dropped, proposal.narrowed, self._today.decided, self._today.earlier, *rights,
            proposal.facts, gaps=self._gaps,
        )  # fmt: skip

    def rules(self) -> Suggestion:
        """Return the rules that are needed, without unused rules and unused alternatives of rules."""
        rules: dict[str, str] = msgspec.json.decode(self._bundle)["rules"]
        split = self._usable_split(rules)
        with self._stages.stage("reading uses of rules"):
            kept = set(split) - unused_rules(split, self._reasons(split)) | self._needed_blindly(split)
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
            len(rules), len(proposed), len(dropped), narrowed, self._today.decided, self._today.earlier,
            rules=proposed, gaps=self._gaps,
        )  # fmt: skip

    def _needed_blindly(self, split: Mapping[str, str]) -> set[str]:
        """Return the rules that undecidable checks name, with all alternatives: any of these may have permitted."""
        named = {
            row.by_before.removeprefix(_RULE) for row in self._today.undecidable if row.by_before.startswith(_RULE)
        }
        return {part for id in named for part in _parts_of(id, split) | ({id} & set(split))}

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
        recorded = {use.by for use in self._permits(_RULE)}
        results = (
            self._results(self._under(rules), self._questions)
            .where("kind IN ('reason', 'gained')")
            .select("by_after")
            .distinct()
        )
        return recorded | {by for (by,) in results.collect()}

    def _hurt(self, rules: Mapping[str, str]) -> list[int]:
        """Return the questions that rules decide otherwise than today's rules."""
        return sorted(self._today.differing(self._replay(f"{len(rules):,} rules", self._under(rules))))

    def _regaining(self, split: Mapping[str, str], kept: set[str], hurt: Sequence[int]) -> set[str]:
        """Return the rules of which one alone gives some outcome of today back."""
        rows = self._question_rows(hurt[:_MOST_TRIED])
        found: set[str] = set()
        for id in sorted(set(split) - kept):
            tried = TableReplay(self._archive, self._rebuild, self._under(_chosen(split, {*kept, id})))
            outcomes = {each.id: _outcome(each) for each in tried.decide(rows) if _is_change(each)}
            if any(outcomes.get(row.id, "") == self._today.changed.get(row.id, ("", ""))[1] for row in rows):
                found.add(id)
        return found

    def _question_rows(self, ids: Sequence[int]) -> list[RowQuestion]:
        chosen = self._questions.selectExpr(*SENT)
        rows = chosen.where(chosen["question"].isin(list(ids)))
        return [each for batch in rows.toArrow().to_batches() for each in read_questions(batch)]

    def _results(self, candidate: CandidatePolicies, questions: DataFrame) -> DataFrame:
        return decide_questions(questions, ReplayPolicies(self._archive, self._rebuild, candidate), new_id())

    def _replay(self, name: str, candidate: CandidatePolicies) -> _Replayed:
        """Return the numbers and the changed outcomes of a replay of all records."""
        results = self._results(candidate, self._questions).persist()
        try:
            with self._stages.stage(f"replaying under {name}", "question") as stage:
                decided = f"coalesce(sum(checks) FILTER (WHERE kind <> '{_UNDECIDABLE}'), 0)"
                counts = results.selectExpr(decided, "coalesce(sum(checks), 0)").collect()
                self._recorded.require(counts[0][1])
                stage.count(self._recorded.number)
            changed = results.where(_IS_CHANGE).select(*_OUTCOME).collect()
            undecidable = results.where(f"kind = '{_UNDECIDABLE}'").groupBy("cause", "principal", "by_before")
            gaps = undecidable.agg({"checks": "sum"}).withColumnRenamed("sum(checks)", "checks").collect()
        finally:
            results.unpersist()
        return _Replayed(counts[0][0], {row.id: (row.principal, _outcome(row)) for row in changed}, gaps)

    def _permits(self, prefix: str) -> list[GrantUse]:
        """Return the distinct permits whose reason has a prefix."""
        from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

        rows = self._rows("decisions").where("allowed").where(sql.col("by").startswith(prefix))
        subject = sql.coalesce(sql.col("as"), sql.col("acting_role"), sql.col("principal"))
        found = rows.select("by", subject, "action", "resource").distinct().limit(_MOST_USES + 1).collect()
        if len(found) > _MOST_USES:
            raise InvalidArgument(f"more than {_MOST_USES:,} different uses: choose fewer records with --since")
        return [GrantUse(*(value or "" for value in row)) for row in found]

    def _managers(self) -> set[str]:
        """Return the principals who changed objects or grants: records of decisions do not show what they need."""
        rows = self._rows("events").where("event = 'management' AND allowed").select("actor").distinct()
        return {actor for (actor,) in rows.collect() if actor}

    def _seen(self) -> list[str]:
        rows = self._rows("decisions").select("resource").where("resource IS NOT NULL").distinct()
        return sorted(resource for (resource,) in rows.limit(_MOST_SEEN).collect())

    def _rows(self, table: str) -> DataFrame:
        return chosen(self._lake.table(table), self._choice)


def _chosen(rules: Mapping[str, str], ids: Collection[str]) -> dict[str, str]:
    return {id: text for id, text in rules.items() if id in ids}


def _parts_of(id: str, split: Mapping[str, str]) -> set[str]:
    """Return the ids of the alternatives of a rule; none for a rule that was not split."""
    if id in split:
        return set()
    numbers = itertools.takewhile(lambda number: f"{id}-{number}" in split, itertools.count(1))
    return {f"{id}-{number}" for number in numbers}


def _is_change(result: ReplayedQuestion) -> bool:
    """Tell whether a question has another outcome than recorded. A row view has one for every change of its reasons."""
    return result.kind in _CHANGES or result.event == FILTER_EVENT


def _outcome(result: Any) -> str:
    """Return the new outcome of a changed question: equal texts show the same rows and columns."""
    if result.event != FILTER_EVENT or result.kind == _UNDECIDABLE:
        return str(result.kind)
    columns = list(result.columns_seen), list(result.columns_hidden)
    return "\n".join(map(str, (result.kind, result.by_after, result.rows_after, *columns)))


def _newest_revision(lake: Lake) -> Revision:
    """Return the policies of the newest record, and the newest facts of its epoch."""
    newest = lake.table("requests").selectExpr("max_by(revision, struct(time, seq))").collect()[0][0]
    revision = Revision.parse(newest)
    facts = lake.table("facts")
    last = facts.where(facts["epoch"] == revision.epoch).agg({"sequence": "max"}).collect()[0][0]
    return revision if last is None else Revision(revision.epoch, last, revision.digest)
