"""Replay of a lake: questions in native Spark, decisions in Python workers, results in a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

from pdp.audit.facts.log import FactLog, change_rows
from pdp.decision.service import Pdp
from pdp.lake.lake import Lake, pinned
from pdp.lake.replay.archive import LakeArchive, utc_value
from pdp.lake.replay.questions import RecordedQuestions, ReplayChoice, numbered, undecidable_records
from pdp.lake.replay.tasks import SENT, ReplayOrder, replay_task, result_schema
from pdp.lake.session import SILENT, StageNotices, plan_text
from pdp.lake.tables import REPLAY_DIFFERENCES
from pdp.model.revision import Revision, new_id
from pdp.offline.replay.basis import AS_RECORDED, CandidatePolicies

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REVISION: Final = (
    "get(split(revision, '[.]'), 0) AS epoch",
    "try_cast(get(split(revision, '[.]'), 1) AS bigint) AS sequence",
)
"""Parts of a revision, by which questions are sorted."""
_SUMMED: Final = ("checks", "first_used", "last_used", "samples", "detail")
"""Columns of the table that join several questions. All others tell rows apart."""


class ReplayTotals(msgspec.Struct, frozen=True):
    """Numbers of checks. `decided` have a result; `same` have the same verdict, by any reason."""

    decided: int = 0
    same: int = 0
    gained: int = 0
    lost: int = 0
    undecidable: int = 0
    reason: int = 0
    errors: int = 0

    @property
    def differs(self) -> bool:
        """Tell whether a decision differs, or only its reason."""
        return bool(self.gained or self.lost or self.reason or self.errors)


class ReplayPolicies(NamedTuple):
    """Policies that decide: those of an archive, changed by a candidate. `rebuild` makes a service from a bundle."""

    archive: LakeArchive
    rebuild: Callable[[bytes], Pdp]
    candidate: CandidatePolicies = AS_RECORDED


def decide_questions(questions: DataFrame, policies: ReplayPolicies, run: str) -> DataFrame:
    """Return the results of questions. Facts advance within a partition, and equal subjects are neighbours.

    Equal subjects and actions of one revision come to one partition: the engines decide them together.
    """
    spark = questions.sparkSession
    order = _order(policies.archive, policies.candidate)
    task = replay_task(run, spark.sparkContext.broadcast(order), policies.rebuild)
    partitions = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    spread = questions.selectExpr(*SENT, *_REVISION).repartition(partitions, "revision", "inputs", "action")
    ordered = spread.sortWithinPartitions("epoch", "sequence", "revision", "stale", "inputs", "action")
    return ordered.mapInArrow(task, result_schema())


class LakeReplay:
    """Replay of the chosen records of a lake under a candidate. `decided` are the results of the questions.

    Spark keeps numbers of the questions until the replay is closed.
    """

    def __init__(
        self,
        lake: Lake,
        archive: LakeArchive,
        rebuild: Callable[[bytes], Pdp],
        choice: ReplayChoice,
        candidate: CandidatePolicies = AS_RECORDED,
    ) -> None:
        self.run = new_id()
        self._lake = pinned(lake)
        self._choice = choice
        self._policies = ReplayPolicies(archive, rebuild, candidate)
        self.questions = RecordedQuestions(self._lake, choice)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.questions.close()

    @cached_property
    def decided(self) -> DataFrame:
        """Return the results of all questions."""
        return decide_questions(self.questions.frame(), self._policies, self.run)

    def plan(self) -> str:
        """Return Spark's plan, without a look at the records."""
        return plan_text(decide_questions(self.questions.frame(planned=True), self._policies, self.run))

    def save(self, candidate: str, stages: StageNotices = SILENT) -> DataFrame:
        """Write the results into the table of the lake, and return the rows of this run."""
        self._lake.create([REPLAY_DIFFERENCES])
        name = self._lake.name(REPLAY_DIFFERENCES.name)
        with stages.stage("grouping checks", "check") as stage:
            stage.count(self.questions.checks)
        results = self.decided.persist()
        try:
            with stages.stage("deciding questions", "question") as stage:
                self.questions.require(_checks_of(results))
                stage.count(self.questions.number)
            with stages.stage("writing differences"):
                rows = self._summed(self._sampled(results)).unionByName(self._unread_records())
                self._labelled(rows, candidate, datetime.now(UTC)).writeTo(name).append()
        finally:
            results.unpersist()
        return self._lake.spark.table(name).where(_column("run") == self.run)

    def _sampled(self, results: DataFrame) -> DataFrame:
        """Return results with the ids of the first and the last decision of each changed question."""
        from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

        changed = results.where("kind <> 'same'")
        # the second reading of the rows is skipped where nothing changed
        if changed.isEmpty():
            none = sql.lit(None).cast("struct<time:timestamp,id:string>")
            return results.withColumns({"oldest": none, "newest": none})
        ids = changed.select(sql.col("id").alias("question")).distinct()
        decision = sql.struct("time", "id")
        found = (
            numbered(self.questions.rows)
            .join(ids, "question", "left_semi")
            .groupBy("question")
            .agg(sql.min(decision).alias("oldest"), sql.max(decision).alias("newest"))
        )
        return results.join(found, results["id"] == found["question"], "left").drop("question")

    def _summed(self, results: DataFrame) -> DataFrame:
        """Return one row for each difference, whatever number of questions has it."""
        from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

        columns = [column for column in REPLAY_DIFFERENCES.names if column in results.columns]
        samples = sql.array_distinct(sql.array_compact(sql.array(sql.min("oldest")["id"], sql.max("newest")["id"])))
        return results.groupBy(*(name for name in columns if name not in _SUMMED)).agg(
            sql.sum("checks").alias("checks"),
            sql.min("first_used").alias("first_used"),
            sql.max("last_used").alias("last_used"),
            sql.min("detail").alias("detail"),
            samples.alias("samples"),
        )

    def _unread_records(self) -> DataFrame:
        """Return the records without checks as undecidable results."""
        from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

        causes = undecidable_records(self._lake, self._choice)
        kind = sql.lit("undecidable").alias("kind")
        given = {"checks": "checks", "first_used": "first", "last_used": "last", "cause": "cause"}
        columns: list[Any] = [sql.col(source).alias(name) for name, source in given.items()]
        rest = [
            sql.lit(None).cast(column.type).alias(column.name)
            for column in REPLAY_DIFFERENCES.columns
            if column.name not in (*given, "kind", "samples", "run", "run_time", "candidate")
        ]
        return causes.select(kind, *columns, sql.array("id").alias("samples"), *rest)

    def _labelled(self, rows: DataFrame, candidate: str, time: datetime) -> DataFrame:
        from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

        labels = {"run": sql.lit(self.run), "run_time": sql.lit(time), "candidate": sql.lit(candidate)}
        return rows.withColumns(labels).select(*REPLAY_DIFFERENCES.names)


class ReplayResult(msgspec.Struct, frozen=True):
    """Rows of a run: totals, and the rows of most checks of each kind. `further` counts the rows that are not here."""

    run: str
    totals: ReplayTotals
    rows: Mapping[str, Sequence[Mapping[str, Any]]] = {}
    further: Mapping[str, int] = {}


def read_result(rows: DataFrame, limit: int = 200) -> ReplayResult:
    """Return the totals of a run, and at most `limit` rows of each kind of difference."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    numbers = rows.groupBy("kind").agg(sql.sum("checks"), sql.count(sql.lit(1)), sql.min("run")).collect()
    counts: dict[str, int] = {kind: checks for kind, checks, _, _ in numbers}
    undecidable = counts.pop("undecidable", 0)
    decided, gained, lost = sum(counts.values()), counts.get("gained", 0), counts.get("lost", 0)
    same = decided - gained - lost
    found = ReplayTotals(decided, same, gained, lost, undecidable, counts.get("reason", 0), counts.get("errors", 0))
    listed = [(kind, number) for kind, _, number, _ in numbers if kind != "same"]
    shown = {kind: _heaviest(rows, kind, limit) for kind, _ in listed}
    further = {kind: number - limit for kind, number in listed if number > limit}
    return ReplayResult(numbers[0][3] if numbers else "", found, shown, further)


def _heaviest(rows: DataFrame, kind: str, limit: int) -> list[dict[str, Any]]:
    """Return the rows of a kind, those of most checks first."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    order = (sql.col("checks").desc(), "principal", "action", "resource", "by_before", "by_after", "detail")
    found = rows.where(sql.col("kind") == kind).orderBy(*order).limit(limit).collect()
    return [{name: utc_value(value) for name, value in row.asDict().items()} for row in found]


def _order(archive: LakeArchive, candidate: CandidatePolicies) -> ReplayOrder:
    """Return the order for executors. Facts travel as changes, which are smaller and are built once there."""
    facts = candidate.facts
    if facts is None:
        return ReplayOrder(archive, candidate)
    policies = msgspec.structs.replace(candidate, facts=None)
    return ReplayOrder(archive, policies, FactLog(change_rows(facts)), Revision(facts.epoch, facts.sequence))


def _column(name: str) -> Any:
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    return sql.col(name)


def _checks_of(results: DataFrame) -> int:
    """Return the number of checks behind results."""
    return results.selectExpr("coalesce(sum(checks), 0)").collect()[0][0] or 0
