"""Files behind the policies and the certificates, and signs of their changes. Must not read content.

A mounted ConfigMap changes by one swap of the link `..data`. All stamps follow links, so a swap changes every stamp.
Events of the file system, by the package watchfiles, only call for a look at once.

Network file systems report no events of other machines, so looks at regular times go on beside the events.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import takewhile
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from pdp.config.policies import CedarSchemaFiles
from pdp.config.policy_files import FILE_KEYS, patterns_of
from pdp.config.settings import Settings
from pdp.config.warehouses import PRODUCT_ENGINES
from pdp.errors import ConfigError

log = structlog.get_logger()
Stamp: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last change of the content and of the inode, in nanoseconds.

Without size and times for anything but a regular file: readers refuse such a name, and only a replacement matters.
"""
Stamps: TypeAlias = dict[str, Stamp]
"""Stamps of existing names by path: a name that no reader takes fails a load, and a load must follow the removal."""
SETTLED_SECONDS: Final = 0.02
"""Age of the newest change from which a further change is sure to have another time. Kernels count in ticks."""
_MODULES: Final = (".py", ".pyc", ".so")


def take_stamps(settings: Settings, more: Iterable[str] = ()) -> Stamps:
    """Return the stamps of all policy files of settings, their certificates and keys, and the files of `more`."""
    stamps: Stamps = {}
    for file in (*_policies(settings), *_schemas(settings), *_certificates(settings), *more):
        if found := _status(file):
            is_regular = stat.S_ISREG(found.st_mode)
            rest = (found.st_size, found.st_mtime_ns, found.st_ctime_ns) if is_regular else (-1, 0, 0)
            stamps[file] = found.st_dev, found.st_ino, *rest
    return stamps


def _status(file: str) -> os.stat_result | None:
    """Return the status of a file, or of a link that leads nowhere; None for a missing file."""
    with contextlib.suppress(OSError):
        return Path(file).stat()
    with contextlib.suppress(OSError):
        return Path(file).lstat()
    return None


def has_unlisted_files(settings: Settings) -> bool:
    """Tell whether engines or resolvers of other packages decide: a load alone shows the files that they read."""
    named = {engine for authority in settings.authorities.values() for engine in authority.engines}
    scopes = settings.policies.scopes
    return not named <= PRODUCT_ENGINES or bool(scopes.read_resolver or scopes.write_resolver)


def unsettled_seconds(stamps: Stamps) -> float:
    """Return the seconds until a further change of these files is sure to change a stamp; 0 for none."""
    newest = max((max(stamp[3:]) for stamp in stamps.values()), default=0)
    age = time.time() - newest / 1e9
    return SETTLED_SECONDS - age if 0 <= age < SETTLED_SECONDS else 0.0


def changed_files(before: Stamps, now: Stamps) -> list[str]:
    """Return the new, changed and removed files."""
    return sorted(file for file in before.keys() | now.keys() if before.get(file) != now.get(file))


class OpenedFiles:
    """Files that this process opens for reading while `recording`, but for modules and the system's own.

    An engine may read files outside of all lists, such as a schema. The interpreter reports every open file, so a
    bundle cannot rest on a file without a stamp.
    """

    def __init__(self) -> None:
        self.recording = False
        self.known: AbstractSet[str] = frozenset()
        """Files of the lists."""
        self._found: set[str] = set()
        sys.addaudithook(self._note)

    def take(self) -> tuple[str, ...]:
        """Return the files since the last call, sorted."""
        found, self._found = self._found, set()
        return tuple(sorted(found - self.known))

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.recording or event != "open":
            return
        file, mode = arguments[0], arguments[1]
        if isinstance(file, (str, bytes, os.PathLike)) and not (isinstance(mode, str) and set(mode) & set("wax+")):
            path = os.fsdecode(file)
            if path.endswith(_MODULES) or path.startswith(("/proc/", "/sys/", "/dev/", sys.prefix, sys.base_prefix)):
                return
            self._found.add(os.path.abspath(path))  # noqa: PTH100  a link stays a link: a swap must be seen


def pattern_folders(settings: Settings) -> set[Path]:
    """Return the existing folder at the beginning of each pattern: a new file there may match."""
    found = set()
    for key in FILE_KEYS:
        for pattern in patterns_of(settings.policies, key):
            text = pattern if isinstance(pattern, str) else pattern.path
            plain = Path(*takewhile(lambda part: not any(mark in part for mark in "*?["), Path(text).parts))
            with contextlib.suppress(ConfigError):  # files of a source
                path = settings.policy_path(str(plain))
                found.add(next(each for each in (path, *path.parents) if each.is_dir()))
    return found


def _policies(settings: Settings) -> Iterator[str]:
    """Yield the files of the lists in the section `policies`, without those of a source."""
    for key in FILE_KEYS:
        for pattern in patterns_of(settings.policies, key):
            try:
                yield from map(str, settings.paths((pattern,)))
            except (ConfigError, OSError):
                continue  # a folder that cannot be listed now, or a file of a source


def _schemas(settings: Settings) -> Iterator[str]:
    chosen = settings.policies.cedar.schema
    files = (chosen.replace, chosen.extend) if isinstance(chosen, CedarSchemaFiles) else (chosen,)
    for file in files:
        if isinstance(file, str):
            with contextlib.suppress(ConfigError):  # a file of a source
                yield str(settings.policy_path(file))


def _certificates(settings: Settings) -> Iterator[str]:
    tls, source = settings.server.tls, settings.policies.source
    for file in (tls.cert, tls.key, tls.client_ca, *(source.keys if source else ())):
        if file is not None:
            yield str(settings.path(file))


_DEBOUNCE_MS: Final = 200
"""Longest wait for further events of the same change."""
_STEP_MS: Final = 20
"""Silence after which a change counts as complete."""
_ARMED_SECONDS: Final = 0.5
"""Time until new watches are sure to work. A look afterwards finds changes of the meantime."""
_AGAIN_SECONDS: Final = 60.0
"""Pause after a failure, such as too many watches of the system."""


def require_watchfiles() -> None:
    """Raise ConfigError if the package is not installed."""
    try:
        import watchfiles  # noqa: F401, PLC0415  an extra
    except ImportError:
        raise ConfigError("`policies.watch` needs the package watchfiles: install `lakehouse-pdp[watch]`") from None


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
