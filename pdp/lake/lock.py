"""Locks of a lake on this machine, held by the virtual machine that writes: a kill leaves no lock behind.

The kernel frees a lock when the process ends. An orphaned virtual machine that still commits keeps the lock. Lakes of
other catalogs have no lock: their commits name the snapshot before, and a second writer loses.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pdp.errors import InvalidArgument, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INGEST: Final = ".pdp-ingest.lock"
"""File in the folder of a lake: locked while an ingest runs."""
COMMIT: Final = ".pdp-commit.lock"
"""File in the folder of a lake: locked while a job changes tables. Hadoop's catalog cannot tell two renames apart."""
_TURN_SECONDS: Final = 0.1
_held: Final[set[Path]] = set()
"""Files with a lock of this process. A second opening of such a file would free the lock when it is closed."""


@contextmanager
def ingest_lock(spark: SparkSession, folder: Path | None) -> Iterator[None]:
    """Hold the lock of the only ingest of a lake; raise Unavailable if another one runs. No folder has no lock."""
    if folder is None:
        yield
        return
    lock = _take(spark, folder / INGEST)
    if lock is None:
        raise Unavailable(f"another ingest of the lake `{folder}` runs: let it end, or stop it")
    with _freeing(lock, folder / INGEST):
        yield


@contextmanager
def commit_lock(spark: SparkSession, folder: Path | None) -> Iterator[None]:
    """Hold the lock of the only commit to a lake, after all commits before. No folder has no lock."""
    if folder is None:
        yield
        return
    while (lock := _take(spark, folder / COMMIT)) is None:
        time.sleep(_TURN_SECONDS)
    with _freeing(lock, folder / COMMIT):
        yield


@contextmanager
def _freeing(lock: Any, file: Path) -> Iterator[None]:
    try:
        yield
    finally:
        _held.discard(file)
        lock.close()


def _take(spark: SparkSession, file: Path) -> Any:
    """Return a file with a lock, to be closed; None if another job has the lock."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  an extra

    if file in _held:
        return None
    jvm: Any = spark._jvm  # noqa: SLF001  PySpark has no other way to the virtual machine
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        opened = jvm.java.io.RandomAccessFile(str(file), "rw")
        if opened.getChannel().tryLock() is not None:
            _held.add(file)
            return opened
    except OSError as error:
        raise InvalidArgument(f"cannot make the folder `{file.parent}`: {error.strerror}") from None
    except Py4JJavaError as error:
        raise Unavailable(f"cannot lock `{file}`: {error.java_exception.getMessage()}") from None
    opened.close()
    return None
