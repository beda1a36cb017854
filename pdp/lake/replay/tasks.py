"""Work of the executors: questions as Arrow batches to results as Arrow batches.

Bundles are compiled and facts are built once for each Python process of an executor, and serve all of its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_type_hints

import msgspec

from pdp.audit.facts.log import FactLog
from pdp.audit.records.tables import TableRow
from pdp.audit.records.writing import timestamp
from pdp.decision.service import Pdp
from pdp.facts.snapshot import without_collection
from pdp.lake.replay.archive import LakeArchive
from pdp.model.revision import Revision
from pdp.offline.replay.basis import CandidatePolicies
from pdp.offline.replay.table_replay import ReplayedQuestion, RowQuestion, TableReplay

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Broadcast

_TIMES: Final = ("first_used", "last_used")
_SQL_TYPES: Final[Mapping[Any, str]] = {int: "bigint", bool: "boolean", tuple[str, ...]: "array<string>"}
_ERRORS: Final = msgspec.json.Decoder(tuple[str, ...])
ROW: Final = tuple(name for name in TableRow.__struct_fields__ if name not in ("time", "decision", "at"))
SENT: Final = (*ROW, "second", "question", "checks", "first", "last")
"""Columns of a batch of questions. Times are microseconds since 1970."""


class ReplayOrder(NamedTuple):
    """Everything that an executor needs. `candidate` has no facts: `facts` at `revision` are the candidate's."""

    archive: LakeArchive
    candidate: CandidatePolicies
    facts: FactLog | None = None
    revision: Revision = Revision("", 0)

    def begin(self, rebuild: Callable[[bytes], Pdp]) -> TableReplay:
        """Return a replay. `rebuild` makes a service without facts from the text of a bundle."""
        policies = self.candidate
        if self.facts is not None:
            policies = msgspec.structs.replace(policies, facts=self.facts.at(self.revision))
        return TableReplay(self.archive, rebuild, policies)


_REPLAYS: Final[dict[str, TableReplay]] = {}
"""Replay of this process by run. A process of an executor serves one run after the other."""


def result_schema() -> str:
    """Return the columns of results as a schema of Spark."""
    hints = get_type_hints(ReplayedQuestion)
    types = {name: _SQL_TYPES.get(hints[name], "string") for name in ReplayedQuestion.__struct_fields__}
    types |= dict.fromkeys(_TIMES, "timestamp")
    return ", ".join(f"`{name}` {type}" for name, type in types.items())


def replay_task(
    run: str, order: Broadcast[ReplayOrder], rebuild: Callable[[bytes], Pdp]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that decides the questions of batches."""

    def decide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if run not in _REPLAYS:
                _REPLAYS.clear()
                _REPLAYS[run] = order.value.begin(rebuild)
            with without_collection():
                results = _REPLAYS[run].decide(read_questions(batch))
            yield results_batch(results)

    return decide


def read_questions(batch: pa.RecordBatch) -> Iterator[RowQuestion]:
    """Yield the questions of a batch with the columns SENT."""
    columns = {name: _values(batch.column(name)) for name in SENT}
    columns["errors"] = [None if text is None else _errors(text) for text in columns["errors"]]
    rows = map(TableRow, *(columns[name] for name in ROW), map(_text, columns["second"]))
    yield from map(RowQuestion, rows, *(columns[name] for name in ("checks", "question", "first", "last")))


def _values(column: Any) -> list[Any]:
    """Return the values of a column. Equal texts are one object, whose hash Python reckons once."""
    import pyarrow as pa  # noqa: PLC0415  an extra

    if not pa.types.is_string(column.type):
        values: list[Any] = column.to_pylist()
        return values
    encoded = column.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    return [None if at is None else texts[at] for at in encoded.indices.to_pylist()]


def results_batch(results: Sequence[ReplayedQuestion]) -> pa.RecordBatch:
    """Return results as a batch."""
    import pyarrow as pa  # noqa: PLC0415  an extra

    hints = get_type_hints(ReplayedQuestion)
    arrays = []
    for name in ReplayedQuestion.__struct_fields__:
        values = [getattr(result, name) for result in results]
        type = pa.timestamp("us", "UTC") if name in _TIMES else _arrow_type(hints[name])
        arrays.append(pa.array(values, type))
    return pa.RecordBatch.from_arrays(arrays, list(ReplayedQuestion.__struct_fields__))


def _arrow_type(hint: Any) -> pa.DataType:
    import pyarrow as pa  # noqa: PLC0415  an extra

    types = {"bigint": pa.int64(), "boolean": pa.bool_(), "array<string>": pa.list_(pa.string())}
    return types.get(_SQL_TYPES.get(hint, ""), pa.string())


def _errors(text: str) -> tuple[str, ...]:
    return () if text == "[]" else _ERRORS.decode(text)


def _text(second: int | None) -> str:
    """Return a second since 1970 as records write times; empty without one."""
    return "" if second is None else timestamp(second)
