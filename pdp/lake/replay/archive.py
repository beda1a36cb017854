"""Archive of a lake at one state: its bundles and its history of facts, read once and sent to all executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pdp.audit.facts.log import ChangeRow, FactLog
from pdp.facts.snapshot import Facts
from pdp.model.revision import Revision

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pdp.lake.lake import Lake


class LakeArchive:
    """Bundles by digest, and facts by revision. Small to send: facts stay packed until a revision needs them."""

    def __init__(self, bundles: Mapping[str, bytes], facts: FactLog) -> None:
        self.bundles = bundles
        self._facts = facts

    def bundle_text(self, digest: str) -> bytes | None:
        """Return the archived bundle of a digest; None without one."""
        return self.bundles.get(digest)

    def facts_at(self, revision: Revision) -> Facts:
        """Return the facts of a revision; raise MissingFacts."""
        return self._facts.at(revision)


def read_archive(lake: Lake) -> LakeArchive:
    """Return the archive of a lake; raise InvalidArgument if the lake has no such tables."""
    texts = lake.table("bundles").select("digest", "text")
    bundles = {digest: _bytes(text) for digest, text in _rows(texts)}
    return LakeArchive(bundles, FactLog(fact_rows(lake)))


def fact_rows(lake: Lake) -> Iterator[ChangeRow]:
    """Yield the history of facts in order: by epoch, snapshots first, then by revision."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    rows = lake.table("facts").orderBy("epoch", sql.col("snapshot").desc(), "sequence", "number")
    for epoch, sequence, snapshot, change in _rows(rows.select("epoch", "sequence", "snapshot", "change")):
        yield ChangeRow(epoch, sequence, bool(snapshot), change or "")


def _rows(frame: DataFrame) -> Iterator[tuple[Any, ...]]:
    for row in frame.toLocalIterator(prefetchPartitions=True):
        yield tuple(row)


def _bytes(text: str | bytes | bytearray) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)


def utc_time(time: datetime) -> datetime:
    """Return a collected time in UTC. PySpark gives times without a zone: those of the local zone of this process."""
    return time.astimezone(UTC)


def utc_value(value: Any) -> Any:
    """Return a collected value, a time in UTC."""
    return utc_time(value) if isinstance(value, datetime) else value
