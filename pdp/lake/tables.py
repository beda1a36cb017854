"""Tables of the lake, the results of replays among them: names, columns and partitions.

A later version may add columns at the end, and never renames, removes or retypes one. Must not know Spark or a catalog.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from pdp.audit.records.tables import COLUMNS, MORE_COLUMNS, ColumnType

SqlType: TypeAlias = Literal[
    "string", "array<string>", "boolean", "int", "bigint", "double", "timestamp", "date", "binary"
]
_TYPES: Final[dict[ColumnType, SqlType]] = {
    "text": "string",
    "texts": "array<string>",
    "flag": "boolean",
    "number": "bigint",
    "ratio": "double",
    "time": "timestamp",
    "json": "string",
}


class LakeColumn(msgspec.Struct, frozen=True):
    """Column of a table. `text` says what the values are."""

    name: str
    type: SqlType
    text: str

    @property
    def sql(self) -> str:
        """Return the column as SQL defines it."""
        return f"`{self.name}` {self.type}"


class LakeTable(msgspec.Struct, frozen=True):
    """Table of the lake. `partitions` are Iceberg's transforms in SQL."""

    name: str
    text: str
    columns: tuple[LakeColumn, ...]
    partitions: tuple[str, ...] = ()

    @property
    def schema(self) -> str:
        """Return the columns as a schema of Spark."""
        return ", ".join(column.sql for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(column.name for column in self.columns)


_EXPORTED: Final = "as in `pdp audit export`"
DECISIONS: Final = LakeTable(
    "decisions",
    "one row for each concrete check: the columns of `pdp audit export`, and what deciding again needs",
    (
        *(LakeColumn(name, _TYPES[type], _EXPORTED) for name, type in COLUMNS.items() if name not in MORE_COLUMNS),
        LakeColumn("day", "date", "day of `time`, UTC"),
        LakeColumn("warehouse", "string", "warehouse of the resource"),
        LakeColumn("decision_id", "string", "key of the row: `<id>#<number of the row in its record>`"),
        LakeColumn("record_version", "int", "`schema` of the record"),
        LakeColumn("inputs", "string", "JSON: the inputs of the check, as recorded"),
        LakeColumn("entry", "string", "JSON: `load` or `change` of the entry, as recorded; null without both"),
        LakeColumn("errors_json", "string", "JSON: `errors`. Spark reads rows without lists in a faster way"),
        LakeColumn("source", "string", "file of the audit, without the end of a compressed one"),
        LakeColumn(
            "single", "boolean", "the record has this check alone, and its row in `requests` has the same values"
        ),
        *(LakeColumn(name, _TYPES[type], _EXPORTED) for name, type in MORE_COLUMNS.items()),
    ),
    ("day", "bucket(16, principal)"),
)
REQUESTS: Final = LakeTable(
    "requests",
    "one row for each record of `decision` and `filter`",
    (
        LakeColumn("event", "string", "`decision` or `filter`"),
        LakeColumn("id", "string", "id of the record"),
        LakeColumn("instance", "string", "start of a service that wrote the record"),
        LakeColumn("seq", "bigint", "number of the record within its instance"),
        LakeColumn("time", "timestamp", "time of the decision"),
        LakeColumn("day", "date", "day of `time`, UTC"),
        LakeColumn("latency_us", "bigint", "time that deciding took"),
        LakeColumn("surface", "string", "surface that received the request"),
        LakeColumn("caller", "string", "sender of the request"),
        LakeColumn("request_id", "string", "the sender's own id"),
        LakeColumn("trace_id", "string", "trace of the request"),
        LakeColumn("query_id", "string", "query of an engine"),
        LakeColumn("revision", "string", "facts and policies"),
        LakeColumn("stale", "boolean", "the facts were too old to permit anything"),
        LakeColumn("sampled", "double", "share of such requests that get a record"),
        LakeColumn("left_out", "bigint", "permits without a record before this one"),
        LakeColumn("checks", "bigint", "rows in `decisions`"),
        LakeColumn("allowed", "bigint", "rows in `decisions` that are allowed"),
        LakeColumn(
            "asked",
            "string",
            "JSON: checks of the caller that became several, as groups of resources with the same decision; null "
            "if no check did",
        ),
        LakeColumn("listing", "string", "JSON: `listing` of the record"),
        LakeColumn("masks", "string", "JSON: `masks` of the record"),
        LakeColumn("unencodable", "string", "cause why a record could not be encoded"),
        LakeColumn("record_version", "int", "`schema` of the record"),
        LakeColumn("source", "string", "file of the audit, without the end of a compressed one"),
        LakeColumn("operation", "string", "`operation` of the record"),
        LakeColumn("probe", "boolean", "`probe` of the record"),
    ),
    ("day",),
)
EVENTS: Final = LakeTable(
    "events",
    "one row for each record of `management`, `refusal` and `service`",
    (
        LakeColumn("event", "string", "`management`, `refusal` or `service`"),
        LakeColumn("id", "string", "id of the record"),
        LakeColumn("instance", "string", "start of a service that wrote the record"),
        LakeColumn("seq", "bigint", "number of the record within its instance"),
        LakeColumn("time", "timestamp", "time of the event"),
        LakeColumn("day", "date", "day of `time`, UTC"),
        LakeColumn("kind", "string", "`operation` of management, `code` of a refusal, `what` of the service"),
        LakeColumn("allowed", "boolean", "outcome of management; false for a refusal; null for the service"),
        LakeColumn("actor", "string", "principal of management, else the caller"),
        LakeColumn("caller", "string", "sender of the request"),
        LakeColumn("surface", "string", "surface of a refusal"),
        LakeColumn("revision", "string", "revision of the result of management"),
        LakeColumn("details", "string", "JSON: the whole record"),
        LakeColumn("record_version", "int", "`schema` of the record"),
        LakeColumn("source", "string", "file of the audit, without the end of a compressed one"),
    ),
    ("day",),
)
FACTS: Final = LakeTable(
    "facts",
    "the history of facts: one row for each change; a snapshot begins an epoch, with a row of its own",
    (
        LakeColumn("epoch", "string", "history that the sequence belongs to"),
        LakeColumn("sequence", "bigint", "revision within the epoch"),
        LakeColumn("number", "bigint", "place of the change within its revision"),
        LakeColumn("time", "timestamp", "time of the revision"),
        LakeColumn("day", "date", "day of `time`, UTC"),
        LakeColumn("actor", "string", "writer, as it named itself; empty in a snapshot"),
        LakeColumn(
            "kind",
            "string",
            "`put`, `delete`, `grant_added`, `grant_removed`, `rule_put`, `rule_removed`; `revision` for a row without "
            "a change",
        ),
        LakeColumn("snapshot", "boolean", "the row is a part of all facts of its revision, not a change"),
        LakeColumn("object", "string", "object of the change: `table:lake/sales/orders`"),
        LakeColumn("principal", "string", "principal of a grant"),
        LakeColumn("privilege", "string", "privilege of a grant"),
        LakeColumn("change", "string", "JSON: the change, as the audit folder has it"),
        LakeColumn("source", "string", "file of the history"),
    ),
)
BUNDLES: Final = LakeTable(
    "bundles",
    "policies by digest",
    (
        LakeColumn("digest", "string", "last part of the revisions that these policies decided"),
        LakeColumn("text", "string", "the archived bundle"),
        LakeColumn("source", "string", "folder of the audit"),
    ),
)
QUARANTINE: Final = LakeTable(
    "quarantine",
    "lines that are no new record",
    (
        LakeColumn("source", "string", "file of the audit, without the end of a compressed one"),
        LakeColumn("folder", "string", "folder of the file"),
        LakeColumn("line_number", "bigint", "number of the line in the file, from 1"),
        LakeColumn("reason", "string", "`duplicate`, `late`, `malformed`, `torn`, `schema`, `event` or `damaged`"),
        LakeColumn("problem", "string", "what is wrong"),
        LakeColumn("id", "string", "id of the record, if readable"),
        LakeColumn("text", "string", "beginning of the line"),
        LakeColumn("time", "timestamp", "time of the ingest"),
        LakeColumn("batch", "string", "batch of the ingest"),
    ),
)
SOURCES: Final = LakeTable(
    "sources",
    "files of the audit that are in the tables; the ingest finds here what it has done",
    (
        LakeColumn("source", "string", "file of the audit, without the end of a compressed one"),
        LakeColumn("folder", "string", "folder of the file"),
        LakeColumn("path", "string", "the file, as it was read"),
        LakeColumn("start", "bigint", "first byte of the part that is in the tables"),
        LakeColumn("end", "bigint", "end of that part in bytes; 0 for a compressed file, which is whole"),
        LakeColumn("batch", "string", "batch of the ingest"),
        LakeColumn("state", "string", "`begun`, then a second row with `done`"),
        LakeColumn("decisions", "bigint", "lines that say that they are a record of decisions"),
        LakeColumn("events", "bigint", "lines that say that they are a record of an event"),
        LakeColumn("others", "bigint", "lines that say neither"),
        LakeColumn("duplicates", "string", "JSON: first and last numbers of lines that are duplicates"),
        LakeColumn("oldest", "bigint", "first day that is not late, in days since 1970; null for none"),
        LakeColumn("time", "timestamp", "time of the ingest"),
        LakeColumn("complete", "boolean", "the part ends with the end of a segment; a compressed form adds nothing"),
    ),
)
TABLES: Final = {table.name: table for table in (DECISIONS, REQUESTS, EVENTS, FACTS, BUNDLES, QUARANTINE, SOURCES)}
"""Tables that the ingest writes, by name."""


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
