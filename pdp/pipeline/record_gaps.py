"""Gaps in the records of a lake: accesses that a replay cannot see, and so cannot prove to be kept."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pdp.audit.queue.intake import DROPPED
from pdp.audit.records.recorded import NO_CHECK
from pdp.errors import InvalidArgument
from pdp.pipeline.lake import Lake
from pdp.pipeline.replay_rows import ReplayChoice, chosen, undecidable_records


class RecordGaps(msgspec.Struct, frozen=True):
    """Gaps that leave a proof in part: checks that could not be decided again by cause, and lines in quarantine.

    Duplicates in quarantine are no gap.
    """

    undecidable: Mapping[str, int] = {}
    quarantined: int = 0

    @property
    def checks(self) -> int:
        """Return the number of checks that could not be decided again."""
        return sum(self.undecidable.values())


def require_whole(lake: Lake, choice: ReplayChoice) -> None:
    """Raise InvalidArgument for records without all permits: an unused right would only look unused."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    rows = chosen(lake.table("requests"), choice).agg(sql.min("sampled"), sql.sum("left_out")).collect()
    sampled, left_out = rows[0]
    if (sampled is not None and sampled < 1) or left_out:
        raise InvalidArgument(
            f"the permits of this lake were sampled ({left_out or 0:,} have no record), so that used rights look unused"
        )
    if sampled is None:
        raise InvalidArgument("the lake has no such records: run `pdp pipeline ingest`")
    _require_no_dropped(lake, choice)


def _require_no_dropped(lake: Lake, choice: ReplayChoice) -> None:
    """Raise InvalidArgument if a service dropped records because its audit could not be written."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    number = sql.get_json_object("details", "$.details.records").cast("bigint")
    of_the_time = msgspec.structs.replace(choice, listings=True)  # events of a service have no surface
    rows = chosen(lake.table("events"), of_the_time)
    rows = rows.where((sql.col("event") == "service") & (sql.col("kind") == DROPPED))
    found = rows.agg(sql.count(sql.lit(1)), sql.sum(number), sql.max("time").cast("string")).collect()
    announced, records, last = found[0]
    if announced:
        raise InvalidArgument(
            f"{records or announced:,} records of this lake were dropped, the last before {last} UTC, so that used "
            "rights look unused: choose later records with --since"
        )


def lost_lines(lake: Lake) -> int:
    """Return the number of lines in quarantine that are no duplicates."""
    return lake.table("quarantine").where("reason <> 'duplicate'").count() if lake.exists("quarantine") else 0


def unread_causes(lake: Lake, choice: ReplayChoice) -> dict[str, int]:
    """Return the numbers of checks in unreadable records, by cause. A request without a check is no gap."""
    return {row.cause: row.checks for row in undecidable_records(lake, choice).collect() if row.cause != NO_CHECK}
