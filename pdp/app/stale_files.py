"""Files that are newer than what the service serves: a seed after the first start, and edited policies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from pdp.config.policies import PolicyFiles
from pdp.config.policy_files import FILE_KEYS, patterns_of
from pdp.config.settings import Settings
from pdp.errors import ConfigError
from pdp.facts.snapshot import Facts
from pdp.store.sql import SqlStore

LOOK_SECONDS: Final = 5.0
"""Time between two looks at the files."""
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


class PolicyEdits:
    """Edits of policy files since the start. Files are read at the start alone."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._seen = self._look()

    async def watch(self) -> None:
        """Log each edit once, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if edited := await asyncio.to_thread(self.edited):
                log.warning(
                    "policy files have changed since the start: restart to serve them",
                    first=edited[0],
                    count=len(edited),
                )

    def edited(self) -> list[str]:
        """Return the files that were made, changed or removed since the start or the last call."""
        now = self._look()
        files = sorted(now.keys() | self._seen.keys())
        changed = [str(file) for file in files if now.get(file) != self._seen.get(file)]
        self._seen = now
        return changed

    def _look(self) -> Mapping[Path, tuple[int, int]]:
        """Return the time and size of each file that the settings name."""
        stamps = {}
        policies, world = self._settings.policies, self._settings.store.world_file()
        files = [file for key in FILE_KEYS for file in self._paths(patterns_of(policies, key))]
        for file in (*files, *([self._settings.path(world)] if world else [])):
            try:
                stat = file.stat()
            except OSError:
                continue
            stamps[file] = stat.st_mtime_ns, stat.st_size
        return stamps

    def _paths(self, patterns: Sequence[str | PolicyFiles]) -> Sequence[Path]:
        try:
            return self._settings.paths(patterns)
        except (ConfigError, OSError):  # a folder that cannot be listed now
            return ()
