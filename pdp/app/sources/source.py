"""Newest usable tree of policies of a source: fetched, verified, never older than a known one, unpacked to a folder.

Content that is refused is remembered by its tag, and not fetched again. A failure of the machine, such as a full disk,
is no refusal: the content waits in memory, and each look tries it again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pdp.app.sources.client import BundleFolder, FetchedBundle, SourceClient, SourceState, SourceUnreachable
from pdp.app.sources.git import GitSource
from pdp.app.sources.http import HttpFetcher, HttpSource, OciSource
from pdp.config.bundles.archive import unpack, write_files
from pdp.config.bundles.manifest import BundleRefused, read_public_key
from pdp.config.policies import SourceSettings
from pdp.config.settings import Settings
from pdp.errors import ConfigError

if TYPE_CHECKING:
    from pdp.config.bundles.manifest import PublicKey


class PolicyTree(NamedTuple):
    """Folder with the policies of one revision. `sizes` are those of the files; `tag` is empty for a kept bundle."""

    folder: Path
    revision: str
    sequence: int = 0
    digest: str = ""
    archive: bytes = b""
    tag: str = ""
    sizes: Mapping[str, int] = {}

    def is_whole(self) -> bool:
        """Tell whether the folder has all files: somebody may have removed it, or parts of it."""
        try:
            return all((self.folder / path).stat().st_size == size for path, size in self.sizes.items())
        except OSError:
            return False


class PolicySource:
    """Source of one configuration. `tree` is the newest fetched one, `good` the newest one that was accepted."""

    def __init__(self, settings: Settings, source: SourceSettings) -> None:
        self.good: PolicyTree | None = None
        self.state = SourceState()
        self._settings = settings
        self._source = source
        self._most_bytes = source.max_mib << 20
        self._client = _client_of(settings, source, self._most_bytes)
        self._folder = BundleFolder(settings.path(source.folder), source.place)
        self._folder.open()
        self._tag = ""
        self._waiting: FetchedBundle | None = None
        """Newest content, until it is accepted or refused."""
        self._silent_until = 0.0
        self._numbers = count()

    def forget(self) -> None:
        """Fetch and verify the content again at the next look."""
        self._tag = ""

    def is_silent(self) -> bool:
        """Tell whether the source has just not answered: a change of local files need not wait for a silence again."""
        return time.monotonic() < self._silent_until

    def look(self) -> PolicyTree | None:
        """Return a new tree; None if there is nothing new, also because of a silent source, as `state` tells.

        Raise BundleRefused for content that must not be used, ConfigError for an unusable key or folder. After a
        ConfigError the same content is tried again.
        """
        self._fetch()
        if self._waiting is None:
            return None
        try:
            return self._take(self._waiting)
        except BundleRefused:
            self._waiting = None
            raise

    def _fetch(self) -> None:
        """Let newer content of the source wait; note a silent source."""
        try:
            fetched = self._client.fetch(self._tag)
        except SourceUnreachable as error:
            self.state = msgspec.structs.replace(self.state, trouble=str(error))
            self._silent_until = time.monotonic() + self._source.timeout_seconds
            return
        self._silent_until = 0.0
        self.state = msgspec.structs.replace(self.state, contact=time.time(), trouble="")
        if fetched is not None:
            # the tag stays also if the content is refused: the same is then refused without a download
            self._waiting, self._tag = fetched, fetched.tag

    def last_good(self) -> PolicyTree | None:
        """Return the tree of the last good bundle on disk; None without one. Raise BundleRefused or ConfigError."""
        kept = self._folder.note()
        archive = self._folder.archive(kept) if kept else b""
        if kept is None or not archive:
            return None
        tree = self._unpacked(archive)
        if tree.digest != kept.digest:
            raise BundleRefused("the bundle on disk is not the one that was accepted")
        if not self.state.contact:
            self.state = msgspec.structs.replace(self.state, contact=kept.checked)
        return tree

    def accept(self, tree: PolicyTree) -> None:
        """Take a tree as the newest good one, and keep the archive on disk first.

        Raise ConfigError, and remove the tree, if the disk takes nothing: no bundle serves whose number a restart would
        not know.
        """
        if self.good and self.good.folder == tree.folder:
            return
        try:
            self._keep(tree)
        except ConfigError:
            self.reject(tree, passing=True)
            raise
        if self.good:
            shutil.rmtree(self.good.folder, ignore_errors=True)
        self.good = tree
        self.state = msgspec.structs.replace(self.state, revision=tree.revision)
        self._settle(tree)

    def reject(self, tree: PolicyTree, *, passing: bool) -> None:
        """Remove a tree that cannot be used. `passing`: the cause is not in the content, which is tried again."""
        shutil.rmtree(tree.folder, ignore_errors=True)
        if not passing:
            self._settle(tree)

    def _settle(self, tree: PolicyTree) -> None:
        """Forget the content of a tree that was accepted or refused."""
        if self._waiting and self._waiting.tag == tree.tag:
            self._waiting = None

    def _keep(self, tree: PolicyTree) -> None:
        if not tree.archive:
            return
        kept = self._folder.note()
        try:
            self._folder.keep(tree.sequence, tree.digest, tree.archive)
        except OSError as error:
            if kept and kept.digest == tree.digest and self._folder.archive(kept):
                return  # it was kept before: the time of use alone is older
            raise ConfigError(f"cannot keep the bundle in `policies.source.folder`: {error.strerror}") from None

    def _take(self, fetched: FetchedBundle) -> PolicyTree:
        if fetched.files is not None:
            return self._written(PolicyTree(Path(), fetched.tag[:12], tag=fetched.tag), fetched.files)
        return self._unpacked(fetched.archive, fetched.tag)

    def _unpacked(self, archive: bytes, tag: str = "") -> PolicyTree:
        """Return the tree of an archive; raise BundleRefused, also for a bundle that is older than a known one."""
        bundle = unpack(archive, self._keys(), self._most_bytes)
        number = bundle.manifest.sequence
        for known in (self._folder.note(), self.good):  # somebody may have removed the note
            if known and number < known.sequence:
                raise BundleRefused(f"the bundle has number {number}, and {known.sequence} was in use already")
            if known and number == known.sequence and bundle.digest != known.digest:
                raise BundleRefused(f"another bundle with number {number} was in use already")
        revision = bundle.manifest.revision or str(number)
        return self._written(PolicyTree(Path(), revision, number, bundle.digest, archive, tag), bundle.files)

    def _written(self, tree: PolicyTree, files: Mapping[str, bytes]) -> PolicyTree:
        """Return the tree with its folder; leave nothing behind after a failure, which would keep a full disk full."""
        folder: Path | None = None
        try:
            folder = self._folder.make_tree(next(self._numbers), self.good.folder if self.good else None)
            write_files(files, folder)
        except (OSError, BundleRefused) as error:
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, BundleRefused):
                raise
            raise ConfigError(f"cannot unpack to `policies.source.folder`: {error.strerror}") from None
        return tree._replace(folder=folder, sizes={path: len(content) for path, content in files.items()})

    def _keys(self) -> Sequence[PublicKey]:
        return [read_public_key(self._settings.path(key)) for key in self._source.keys]


def open_source(settings: Settings) -> PolicySource | None:
    """Return the source of settings; None if policies are in folders. Raise ConfigError."""
    source = settings.policies.source
    return PolicySource(settings, source) if source else None


def _client_of(settings: Settings, source: SourceSettings, most_bytes: int) -> SourceClient:
    if source.git:
        return GitSource(settings.path(source.git), source.path, most_bytes, source.timeout_seconds)
    client = OciSource if source.oci else HttpSource
    return client(HttpFetcher(settings, source), source.place, most_bytes)
