"""Events of the file system that call for a look at once, by the package watchfiles. Stamps alone tell a change.

Network file systems report no events of other machines, so looks at regular times go on beside the events.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import structlog

from pdp.app.reload.watched_files import pattern_folders, take_stamps
from pdp.config.settings import Settings
from pdp.errors import ConfigError

_DEBOUNCE_MS: Final = 200
"""Longest wait for further events of the same change."""
_STEP_MS: Final = 20
"""Silence after which a change counts as complete."""
_ARMED_SECONDS: Final = 0.5
"""Time until new watches are sure to work. A look afterwards finds changes of the meantime."""
_AGAIN_SECONDS: Final = 60.0
"""Pause after a failure, such as too many watches of the system."""
log = structlog.get_logger()


def require_watchfiles() -> None:
    """Raise ConfigError if the package is not installed."""
    try:
        import watchfiles  # noqa: F401, PLC0415  an extra
    except ImportError:
        raise ConfigError("`policies.watch` needs the package watchfiles: install `pdp[watch]`") from None


async def follow_events(settings: Settings, more: Callable[[], Iterable[str]], look: Callable[[], None]) -> None:
    """Call `look` whenever something happens in a folder of the files behind policies, until cancelled.

    `more` returns files without an entry in the lists of the settings.
    """
    while True:
        folders = await asyncio.to_thread(_folders, settings, more())
        try:
            await _follow(folders, lambda: _folders(settings, more()), look)
        except OSError as error:
            log.warning("no events of files, regular looks go on", cause=error.strerror or str(error))
            await asyncio.sleep(_AGAIN_SECONDS)


async def _follow(
    folders: dict[str, tuple[int, int]], present: Callable[[], dict[str, tuple[int, int]]], look: Callable[[], None]
) -> None:
    """Call `look` for each event until the folders are others."""
    from watchfiles import awatch  # noqa: PLC0415  an extra

    if not folders:
        await asyncio.sleep(_AGAIN_SECONDS)
        return
    asyncio.get_running_loop().call_later(_ARMED_SECONDS, look)
    events = awatch(*folders, watch_filter=None, recursive=False, debounce=_DEBOUNCE_MS, step=_STEP_MS)
    async for _ in events:
        look()
        if await asyncio.to_thread(present) != folders:
            return


def _folders(settings: Settings, more: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return device and inode of each folder in which a change can change a file: those of links, too."""
    found = {folder for file in take_stamps(settings, more) for folder in _folders_of(file)}
    found |= {str(folder) for folder in pattern_folders(settings)}
    stats = {folder: Path(folder).stat() for folder in sorted(found) if Path(folder).is_dir()}
    return {folder: (stat.st_dev, stat.st_ino) for folder, stat in stats.items()}


def _folders_of(file: str) -> Iterator[str]:
    """Yield the folder of a file, the folder of the file behind links, and the folders of all links on the way."""
    yield os.path.dirname(file)  # noqa: PTH120  a path with `..` stays as written
    yield os.path.dirname(os.path.realpath(file))  # noqa: PTH120
    for path in (Path(file), *Path(file).parents):
        if path.is_symlink():
            yield str(path.parent)
