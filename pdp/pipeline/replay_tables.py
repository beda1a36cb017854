"""Table of the results of replays."""

from __future__ import annotations

from typing import Final

from pdp.pipeline.tables import LakeColumn, LakeTable

RECORDED: Final = "recorded"
"""`candidate` of a replay without one."""
REPLAY_DIFFERENCES: Final = LakeTable(
    "replay_differences",
    "results of `pdp pipeline replay`: one row for each difference, and one for all equal decisions of a run",
    (
        LakeColumn("run", "string", "id of the replay"),
        LakeColumn("run_time", "timestamp", "time of the replay"),
        LakeColumn("candidate", "string", "`recorded`, or the files of the candidate"),
        LakeColumn("kind", "string", "`gained`, `lost`, `reason`, `errors`, `same` or `undecidable`"),
        LakeColumn("event", "string", "`decision`, or `filter` for a row view"),
        LakeColumn("principal", "string", "subject of the check"),
        LakeColumn("acting_role", "string", "role that was assumed"),
        LakeColumn("action", "string", "action of the check"),
        LakeColumn("container", "string", "object above the checked object"),
        LakeColumn("resource", "string", "checked object"),
        LakeColumn("destination", "string", "new name of a rename"),
        LakeColumn("delegated", "boolean", "the check was made for the owner of a view"),
        LakeColumn("checks", "bigint", "number of recorded checks"),
        LakeColumn("first_used", "timestamp", "time of the first of these checks"),
        LakeColumn("last_used", "timestamp", "time of the last of these checks"),
        LakeColumn("by_before", "string", "reason of the record"),
        LakeColumn("by_after", "string", "reason of the replay"),
        LakeColumn("errors_before", "array<string>", "rules that raised, by the record"),
        LakeColumn("errors_after", "array<string>", "rules that raised in the replay"),
        LakeColumn("rows_before", "string", "row filter of the recorded revision"),
        LakeColumn("rows_after", "string", "row filter of the candidate"),
        LakeColumn("rows_seen", "boolean", "further rows may be visible"),
        LakeColumn("rows_hidden", "boolean", "rows may be hidden"),
        LakeColumn("columns_seen", "array<string>", "columns with values that a mask hid"),
        LakeColumn("columns_hidden", "array<string>", "columns with values that a mask hides now"),
        LakeColumn("cause", "string", "reason why a check could not be decided again"),
        LakeColumn("detail", "string", "exact place or problem of the cause"),
        LakeColumn("samples", "array<string>", "ids of decisions: the first and the last"),
    ),
    ("days(run_time)",),
)
