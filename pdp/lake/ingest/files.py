"""Files of audit folders: their names and lines, whether the bytes come from a disk or from Spark."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import msgspec
import zstandard

from pdp.audit.files.segments import SUFFIXES, segment_of
from pdp.audit.reader import TORN, TrailLine, trail_lines
from pdp.errors import InvalidArgument, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOCAL: Final = "file:"
_BUFFER_BYTES: Final = 1 << 20
_COMPRESSED: Final = tuple(suffix for suffix in SUFFIXES.values() if suffix)


class AuditFile(msgspec.Struct, frozen=True):
    """File of an audit. `name` has no end of a compressed file: a segment keeps it when it is compressed later.

    The part of a plain file from the byte `start` to the byte `end` counts. `end` is 0 for a compressed file. `gone`:
    somebody removed the file before its batch ended.
    """

    path: str
    folder: str
    name: str
    end: int
    start: int = 0
    gone: bool = False

    @property
    def place(self) -> tuple[str, str]:
        """Return the folder and the name, which stay the same for the life of the file."""
        return self.folder, self.name

    @property
    def local(self) -> Path | None:
        """Return the path on this machine; None for a file elsewhere."""
        return Path(self.path.removeprefix(_LOCAL)) if self.path.startswith(_LOCAL) else None


def audit_file(path: str, size: int) -> AuditFile | None:
    """Return the file at a path as Spark writes it; None if the name is not that of complete records."""
    path = plain_path(path)
    folder, _, name = path.rpartition("/")
    segment = segment_of(Path(name))
    if segment is None or not segment.complete:
        return None
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return AuditFile(path, folder, name, 0 if path.endswith(_COMPRESSED) else size)


def file_lines(file: AuditFile, content: bytes | None = None) -> Iterator[TrailLine]:
    """Yield the lines of a file that count. `content` are its bytes, if the file is not on this machine.

    A file that was compressed since the listing is read in its new form. In a file that has grown since, the line
    across the end is cut there: every pass reads the same lines.
    """
    if file.gone:
        yield TrailLine(1, b"", "the file was removed before its batch ended")
        return
    position = 0
    for line in _all_lines(file, content):
        if file.end and position >= file.end:
            return
        begin, position = position, position + len(line.data)
        if file.end and position > file.end:
            line = TrailLine(line.number, line.data[: file.end - begin], line.problem or TORN)  # noqa: PLW2901
        if position > file.start or line.problem:
            yield line


def _all_lines(file: AuditFile, content: bytes | None) -> Iterator[TrailLine]:
    if content is not None:
        yield from _lines(io.BytesIO(content), file.path)
        return
    local = file.local
    assert local is not None
    for path in (local, *(local.with_name(file.name + suffix) for suffix in SUFFIXES.values())):
        try:
            stream = path.open("rb")
        except FileNotFoundError:
            continue
        with stream:
            yield from _lines(stream, path.name)
        return
    raise InvalidArgument(f"cannot read `{local}`: no such file or directory")


def _lines(stream: BinaryIO, name: str) -> Iterator[TrailLine]:
    if name.endswith(".zst"):
        unpacked = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True)
        stream = cast(BinaryIO, io.BufferedReader(unpacked, _BUFFER_BYTES))
    elif name.endswith(".gz"):
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    return trail_lines(stream)


def plain_path(path: str) -> str:
    """Return a path as Spark writes it, with one slash after `file:`."""
    return f"{_LOCAL}/{path.removeprefix(_LOCAL).lstrip('/')}" if path.startswith(_LOCAL) else path


def audit_folder(text: str) -> str:
    """Return the address of a folder, as Spark writes it."""
    if "://" in text or text.startswith("file:"):
        return text.rstrip("/")
    return f"file:{Path(text).absolute()}"


def check_folder(spark: SparkSession, folder: str, *, needs_files: bool) -> list[AuditFile]:
    """Return the complete files of a folder; raise InvalidArgument without a folder, or a file that is needed."""
    shown = folder.removeprefix("file:")
    files = _local_files(Path(shown)) if folder.startswith("file:") else _files(spark, folder)
    if files is None:
        raise InvalidArgument(f"there is no audit folder `{shown}`")
    found = [file for path, size in sorted(files) if (file := audit_file(path, size))]
    if needs_files and not found:
        raise InvalidArgument(f"no audit in `{shown}`: it has no complete file `decisions-*.jsonl`")
    return found


def _local_files(folder: Path) -> list[tuple[str, int]] | None:
    if not folder.is_dir():
        return None
    return [(f"file:{path}", path.stat().st_size) for path in folder.glob("decisions-*") if path.is_file()]


def _files(spark: SparkSession, folder: str) -> list[tuple[str, int]] | None:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  an extra

    place, system = file_system(spark, folder)
    try:
        if not system.exists(place):
            return None
        statuses = system.listStatus(place)
    except Py4JJavaError as error:
        raise Unavailable(f"cannot read `{folder}`: {error.java_exception.getMessage()}") from None
    return [(each.getPath().toString(), each.getLen()) for each in statuses if each.isFile()]


def present_file(spark: SparkSession, file: AuditFile) -> AuditFile:
    """Return a file in the form that its folder has now, or marked as gone."""
    for suffix in SUFFIXES.values():
        path = f"{file.folder}/{file.name}{suffix}"
        if _exists(spark, path):
            return msgspec.structs.replace(file, path=path)
    return msgspec.structs.replace(file, gone=True)


def _exists(spark: SparkSession, path: str) -> bool:
    if path.startswith("file:"):
        return Path(path.removeprefix("file:")).is_file()
    place, system = file_system(spark, path)
    return bool(system.exists(place))


def file_system(spark: SparkSession, address: str) -> tuple[Any, Any]:
    """Return an address as a path of Hadoop, and its file system; raise InvalidArgument for an unknown kind."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  an extra

    jvm: Any = spark._jvm  # noqa: SLF001  PySpark has no other way to Hadoop's file systems
    configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
    place = jvm.org.apache.hadoop.fs.Path(address)
    try:
        return place, place.getFileSystem(configuration)
    except Py4JJavaError as error:
        raise InvalidArgument(f"cannot read `{address}`: {error.java_exception.getMessage()}") from None


def tree_files(spark: SparkSession, address: str) -> list[tuple[str, int]]:
    """Return the files below an address with their sizes, in order; none if there is nothing."""
    if address.startswith("file:"):
        below = Path(address.removeprefix("file:")).rglob("*")
        return sorted((str(path), path.stat().st_size) for path in below if path.is_file())
    place, system = file_system(spark, address)
    if not system.exists(place):
        return []
    found: list[tuple[str, int]] = []
    left = system.listFiles(place, True)
    while left.hasNext():
        each = left.next()
        found.append((each.getPath().toString(), each.getLen()))
    return sorted(found)


def copy_files(spark: SparkSession, address: str, target: Path) -> None:
    """Copy the files below an address to a new folder of this machine; none if there is nothing."""
    place, system = file_system(spark, address)
    target.mkdir()
    if not system.exists(place):
        return
    jvm: Any = spark._jvm  # noqa: SLF001  PySpark has no other way to Hadoop's file systems
    local = jvm.org.apache.hadoop.fs.Path(f"file:{target}")
    for each in system.listStatus(place):
        system.copyToLocalFile(False, each.getPath(), local, True)
