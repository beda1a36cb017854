"""Files that are newer than what the service serves: a seed after the first start, and an edited world file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import structlog

from pdp.config.settings import Settings
from pdp.facts.snapshot import Facts
from pdp.store.sql import SqlStore

LOOK_SECONDS: Final = 5.0
"""Time between two looks at the file."""
log = structlog.get_logger()


def warn_of_newer_seed(file: Path, seed: Facts, facts: Facts, store: SqlStore) -> None:
    """Log a seed that was edited after the database was made from it, and has something that the database lacks."""
    if file.stat().st_mtime <= store.time_of(1):
        return
    lacks = sum(not facts.has(grant) for grant in seed.grants())
    lacks += sum(facts.node(object.key).registered != object for object in seed.objects())
    if lacks:
        log.warning(
            "`store.seed` is newer than the database that was made from it, and is not read again",
            file=str(file),
            entries_not_in_the_database=lacks,
            remedy=f"pdp grants import {file}",
        )


class WorldEdits:
    """Edits of the world file since the start. The file is read at the start alone."""

    def __init__(self, settings: Settings) -> None:
        world = settings.store.world_file()
        self._file = settings.path(world) if world else None
        self._seen = self._look()

    async def watch(self) -> None:
        """Log each edit once, until cancelled."""
        while self._file:
            await asyncio.sleep(LOOK_SECONDS)
            if await asyncio.to_thread(self.is_edited):
                log.warning("the world file has changed since the start: restart to serve it", file=str(self._file))

    def is_edited(self) -> bool:
        """Tell whether the file was changed or removed since the start or the last call."""
        before, self._seen = self._seen, self._look()
        return self._seen != before

    def _look(self) -> tuple[int, int] | None:
        """Return the time and size of the file; None without one."""
        try:
            stat = self._file.stat() if self._file else None
        except OSError:
            return None
        return (stat.st_mtime_ns, stat.st_size) if stat else None
