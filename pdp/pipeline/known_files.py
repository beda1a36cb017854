"""Files of audits that are in the lake, and how far: what of a listing is new."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from pdp.pipeline.audit_files import AuditFile
from pdp.pipeline.lake import Lake


class KnownFile(NamedTuple):
    """File in the lake. `end`: the bytes of a plain file so far. `whole`: a compressed form has no further lines."""

    end: int
    whole: bool


class KnownFiles:
    """Files in the lake by folder and name, as `sources` has them."""

    def __init__(self, rows: Iterable[tuple[tuple[str, str], KnownFile]] = ()) -> None:
        self._known = dict(rows)

    def has(self, file: AuditFile) -> bool:
        """Tell whether the lake has the file, or a part."""
        return file.place in self._known

    def new(self, files: Iterable[AuditFile]) -> list[AuditFile]:
        """Return the files, or their parts, that the lake lacks. Of two forms of one file, the plain one counts."""
        chosen: dict[tuple[str, str], AuditFile] = {}
        for file in sorted(files, key=lambda each: not each.end):
            known = self._known.get(file.place)
            if file.place in chosen:
                continue
            if known is None:
                chosen[file.place] = file
            elif file.end > known.end or not (file.end or known.whole):
                chosen[file.place] = msgspec.structs.replace(file, start=known.end)
        return list(chosen.values())

    def add(self, file: AuditFile, *, complete: bool) -> None:
        """Keep a file that is in the lake. `complete`: the part ends with the end of a segment."""
        known = self._known.get(file.place, KnownFile(0, False))
        whole = known.whole or complete or not file.end
        self._known[file.place] = KnownFile(max(known.end, file.end), whole)


def read_known_files(lake: Lake) -> KnownFiles:
    """Return the files in a lake."""
    from pyspark.sql import functions as sql  # noqa: PLC0415  an extra

    whole = (sql.col("end") == 0) | sql.coalesce(sql.col("complete"), sql.lit(False))
    rows: list[Any] = (
        lake.table("sources").groupBy("folder", "source").agg(sql.max("end"), sql.bool_or(whole)).collect()
    )
    return KnownFiles(((folder, source), KnownFile(end, whole)) for folder, source, end, whole in rows)
