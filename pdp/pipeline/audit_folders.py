"""Folders of audits: paths of this machine, and addresses of any file system that Hadoop knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pdp.audit.files.segments import SUFFIXES
from pdp.errors import InvalidArgument, Unavailable
from pdp.pipeline.audit_files import AuditFile, audit_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
