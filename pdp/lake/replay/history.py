"""Time travel: the right of a principal on one day, by the facts and policies of that day, and its use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from pdp.decision.service import Pdp
from pdp.errors import InvalidArgument
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.lake.lake import Lake
from pdp.lake.replay.archive import LakeArchive, utc_time
from pdp.lake.session import plan_text
from pdp.model.answer import DEFAULT_DENY
from pdp.model.question import Batch, Check
from pdp.model.revision import Revision
from pdp.offline.replay.basis import HistoricalPdps, UndecidableCheck
from pdp.offline.replay.replay import CapturingAudit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_MOST_CHANGES: Final = 2_000
"""Changes of policies on one day."""


class RightInterval(msgspec.Struct, frozen=True):
    """Part of a day with one answer: from a time on, by a revision. `actor` wrote the facts that begin the part.

    Empty for the beginning of the day, and for a part that begins with other policies.
    """

    since: datetime
    until: datetime
    allowed: bool
    by: str
    revision: str
    actor: str = ""


class RightUse(msgspec.Struct, frozen=True):
    """Recorded checks of one action, with the ids of the first and the last decision."""

    action: str
    allowed: bool
    checks: int
    first: datetime
    last: datetime
    by: tuple[str, ...]
    samples: tuple[str, ...]


class RightHistory(msgspec.Struct, frozen=True):
    """Right of a day, and its use."""

    intervals: Sequence[RightInterval]
    uses: Sequence[RightUse]

    @property
    def could(self) -> bool:
        """Tell whether the principal had the right at any time of the day."""
        return any(interval.allowed for interval in self.intervals)

    @property
    def did(self) -> int:
        """Return the number of permitted checks."""
        return sum(use.checks for use in self.uses if use.allowed)


class _Moment(NamedTuple):
    """Beginning of a revision of the facts, or of a bundle."""

    time: datetime
    epoch: str
    sequence: int
    digest: str
    actor: str


def right_on(
    lake: Lake, archive: LakeArchive, rebuild: Callable[[bytes], Pdp], check: Check, day: date
) -> RightHistory:
    """Return the right that a check of one resource asks for, and its use, on a day in UTC.

    Raise InvalidArgument if the lake has no facts or policies of the day.
    """
    begin = datetime.combine(day, datetime.min.time(), UTC)
    end = begin + timedelta(days=1)
    moments = _moments(lake, begin, end)
    basis = HistoricalPdps(archive, rebuild)
    intervals = [
        _interval(basis, check, now, later.time) for now, later in pairwise([*moments, moments[-1]._replace(time=end)])
    ]
    return RightHistory(list(_joined(intervals)), _uses(lake, check, day))


def _moments(lake: Lake, begin: datetime, end: datetime) -> list[_Moment]:
    """Return the states of a day: the one at its beginning, or the first known one, and each change.

    Only a change of facts within the day has an actor. Policies that come back are a change, too.
    """
    changes = sorted([*_fact_changes(lake, begin, end), *_bundle_changes(lake, begin, end)])
    states: list[_Moment] = []
    facts_now = bundle_now = None
    for change in changes:
        facts_now, bundle_now = (facts_now, change) if change.digest else (change, bundle_now)
        if facts_now and bundle_now:
            state = facts_now._replace(time=change.time, digest=bundle_now.digest, actor=change.actor)
            if change.time <= begin:
                states = [state._replace(time=begin, actor="")]
            else:
                states.append(state)
    if not states:
        raise InvalidArgument(f"the lake has no facts or no policies of {begin:%Y-%m-%d} or earlier")
    return states


def _fact_changes(lake: Lake, begin: datetime, end: datetime) -> list[_Moment]:
    """Return the revisions of the facts that begin within a day, and the last one before."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    rows = lake.table("facts").where(sql.col("time") < end).groupBy("epoch", "sequence")
    revisions = rows.agg(sql.min("time").alias("time"), sql.max("actor").alias("actor"))
    before = revisions.where(sql.col("time") <= begin).orderBy(sql.desc("time"), sql.desc("sequence")).limit(1)
    found = [*before.collect(), *revisions.where(sql.col("time") > begin).collect()]
    return [_Moment(utc_time(row.time), row.epoch, row.sequence, "", row.actor or "") for row in found]


def _bundle_changes(lake: Lake, begin: datetime, end: datetime) -> list[_Moment]:
    """Return the times within a day at which other policies decided than before, and the policies before the day."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    digest = sql.substring_index("revision", ".", -1).alias("digest")
    requests = lake.table("requests").select("time", "seq", "day", digest)
    before = requests.where((sql.col("day") <= sql.lit(begin.date())) & (sql.col("time") <= begin))
    last = before.selectExpr("max_by(digest, struct(time, seq)) AS digest", "max(time) AS time").where("digest <> ''")
    changes = _changing(requests.where((sql.col("day") == sql.lit(begin.date())) & (sql.col("time") > begin)))
    found = [*last.collect(), *changes.orderBy("time").limit(_MOST_CHANGES + 1).collect()]
    if len(found) > _MOST_CHANGES:
        raise InvalidArgument(
            f"policies changed more than {_MOST_CHANGES:,} times on {begin:%Y-%m-%d}: services with different policies "
            "share this lake"
        )
    moments = [_Moment(utc_time(row.time), "", 0, row.digest, "") for row in found]
    return [now for at, now in enumerate(moments) if not at or now.digest != moments[at - 1].digest]


def _changing(requests: DataFrame) -> DataFrame:
    """Return the requests whose policies differ from those of the request before, and the first of each hour."""
    from pyspark.sql import Window  # noqa: PLC0415  an extra
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    # by hours, so that no worker sorts a whole day
    order = Window.partitionBy(sql.date_trunc("hour", "time")).orderBy("time", "seq")
    compared = requests.withColumn("former", sql.lag("digest").over(order))
    return compared.where("former IS NULL OR former <> digest").select("time", "digest")


def _interval(basis: HistoricalPdps, check: Check, now: _Moment, until: datetime) -> RightInterval:
    revision = str(Revision(now.epoch, now.sequence, now.digest))
    try:
        pdp = basis.pdp(revision, CapturingAudit(), stale=False)
    except UndecidableCheck as error:
        raise InvalidArgument(f"the revision {revision} cannot be decided again: {error}") from None
    seconds = int(now.time.timestamp())
    timed = check.asking(context=msgspec.structs.replace(check.question.context, now=seconds))
    answer = asyncio.run(pdp.check(Batch("history", EMBEDDED_CALLER, 1, (timed if pdp.bundle.reads_time else check,))))
    return RightInterval(now.time, until, bool(answer.allowed[0]), answer.by[0] or DEFAULT_DENY, revision, now.actor)


def _joined(intervals: Sequence[RightInterval]) -> Iterator[RightInterval]:
    """Yield intervals, with neighbours of the same answer as one."""
    current: RightInterval | None = None
    for each in intervals:
        if current and (current.allowed, current.by) == (each.allowed, each.by):
            current = msgspec.structs.replace(current, until=each.until)
            continue
        if current:
            yield current
        current = each
    if current:
        yield current


def plan_of_uses(lake: Lake, check: Check, day: date) -> str:
    """Return Spark's plan for the recorded checks of a day."""
    return plan_text(_use_rows(lake, check, day))


def _use_rows(lake: Lake, check: Check, day: date) -> DataFrame:
    """Return the recorded checks of a principal about an object by action and verdict, whatever the ref."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    from pdp.model.references import format_resource  # noqa: PLC0415

    bare = format_resource(msgspec.structs.replace(check.resources[0], ref=None)).partition(":")[2]
    resource = sql.regexp_replace(sql.regexp_replace("resource", "@[^@]*$", ""), "^[^:]*:", "")
    rows = lake.table("decisions").where(sql.col("day") == sql.lit(day)).where(resource == bare)
    subject = sql.coalesce(sql.col("as"), sql.col("principal"))
    rows = rows.where((sql.col("principal") == check.question.principal.id) | (subject == check.question.principal.id))
    place: Any = sql.struct("time", "id")
    return rows.groupBy("action", "allowed").agg(
        sql.count(sql.lit(1)), sql.min(place), sql.max(place), sql.sort_array(sql.collect_set("by"))
    )


def _uses(lake: Lake, check: Check, day: date) -> list[RightUse]:
    """Return the recorded uses, by action."""
    found = sorted(_use_rows(lake, check, day).collect(), key=lambda row: (row[0] or "", not row[1]))
    return [
        RightUse(action or "", bool(allowed), checks, *_ends(first, last), tuple(by), _samples(first, last))
        for action, allowed, checks, first, last, by in found
    ]


def _ends(first: Any, last: Any) -> tuple[datetime, datetime]:
    return utc_time(first[0]), utc_time(last[0])


def _samples(first: Any, last: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys((first[1], last[1])))
