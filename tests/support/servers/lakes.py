"""Audit folders and lakes for tests: segments of few records, ingested in this process."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import zstandard
from uuid_utils import uuid7

from pdp.lake.ingest.batches import BatchCounts
from pdp.lake.ingest.ingest import AuditIngest, IngestOptions
from pdp.lake.lake import Lake

TABLES = ("decisions", "requests", "events", "facts", "bundles", "quarantine", "sources")


def decision_line(seq: int, *, instance: str = "a1", day: int = 5, id: str = "", user: str = "user:oidc~bob") -> bytes:
    """The line of a record with one check."""
    return (
        f'{{"event":"decision","schema":1,"id":"{id or uuid7()}","instance":"{instance}","seq":{seq},"time":'
        f'"2026-01-{day:02d}T10:00:{seq % 60:02d}.000001Z","latencyUs":60,"surface":"http","caller":"c","inputs":'
        f'{{"principal":{{"id":"{user}","roles":[],"groups":[],"attributes":{{}}}},"actingRole":null,"context":'
        f'{{"actions":[]}}}},"revision":"e.1.d","checks":[{{"action":"read_data","as":"{user}","delegated":false,"cached":'
        f'false,"at":0,"resource":"table:lake/s/t{seq}@main","allowed":true,"by":["cel:r"],"errors":[]}}]}}\n'
    ).encode()


def event_line(seq: int, *, instance: str = "a1", day: int = 5) -> bytes:
    """The line of a record of the service."""
    return (
        f'{{"event":"service","schema":1,"id":"{uuid7()}","instance":"{instance}","seq":{seq},"time":'
        f'"2026-01-{day:02d}T10:00:00.000001Z","what":"started","details":{{}}}}\n'
    ).encode()


def control_lines() -> tuple[bytes, bytes]:
    """The first and the last lines of a segment."""
    first = b'{"event":"segment","schema":1,"instance":"a1","number":1,"seq":0,"time":"","previous":""}\n'
    return (
        first,
        b'{"event":"chain","records":1,"seq":0,"crc":[1],"digest":"d"}\n{"event":"segment_end","digest":"d"}\n',
    )


def write_segment(folder: Path, number: int, lines: Sequence[bytes], *, instance: str = "a1", end: str = "") -> Path:
    """Write a complete segment, compressed as the end of its name says."""
    folder.mkdir(parents=True, exist_ok=True)
    first, last = control_lines()
    data = first + b"".join(lines) + last
    packed = {"": data, ".gz": gzip.compress(data), ".zst": zstandard.compress(data)}[end]
    file = folder / f"decisions-{instance}-{number:06d}.jsonl{end}"
    file.write_bytes(packed)
    return file


def ingest(lake: Lake, *folders: Path | str, **options: Any) -> BatchCounts:
    """Ingest folders once, and return the counts."""
    chosen = IngestOptions(tuple(map(str, folders)), once=True, **options)
    return AuditIngest(lake, chosen, lambda _: None, lambda _: None).run()


def rows(lake: Lake, table: str, *columns: str) -> list[Any]:
    """Rows of a table as they are on disk now, sorted by their columns."""
    lake.spark.catalog.refreshTable(lake.name(table))
    found = [tuple(row) for row in lake.table(table).select(*columns).collect()]
    return sorted(found, key=repr)


def snapshots(lake: Lake) -> dict[str, int]:
    """Table -> number of its snapshots."""
    return {name: lake.spark.table(f"{lake.name(name)}.snapshots").count() for name in TABLES}


def ids_of(lines: Sequence[bytes]) -> Iterator[str]:
    for line in lines:
        yield line.split(b'"id":"')[1].split(b'"')[0].decode()
