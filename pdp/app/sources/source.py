"""Newest usable tree of policies of a source: fetched, verified, never older than a known one, unpacked to a folder."""

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
from pdp.app.sources.http import HttpFetcher, HttpSource
from pdp.app.sources.oci import OciSource
from pdp.config.bundles.archive import unpack, write_files
from pdp.config.bundles.manifest import BundleRefused
from pdp.config.bundles.signing import read_public_key
from pdp.config.policies import SourceSettings
from pdp.config.settings import Settings
from pdp.errors import ConfigError

if TYPE_CHECKING:
    from pdp.config.bundles.signing import PublicKey


class PolicyTree(NamedTuple):
    """Folder with the policies of one revision."""

    folder: Path
    revision: str
    sequence: int = 0
    digest: str = ""
    archive: bytes = b""


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
        self._silent_until = 0.0
        self._numbers = count()

    def forget(self) -> None:
        """Fetch and verify the content again at the next look."""
        self._tag = ""

    def is_silent(self) -> bool:
        """Tell whether the source has just not answered: a change of local files need not wait for a silence again."""
        return time.monotonic() < self._silent_until

    def look(self) -> PolicyTree | None:
        """Return a new tree; None if the source has nothing new or does not answer, as `state` tells.

        Raise BundleRefused for content that must not be used, ConfigError for an unusable key or folder.
        """
        try:
            fetched = self._client.fetch(self._tag)
        except SourceUnreachable as error:
            self.state = msgspec.structs.replace(self.state, trouble=str(error))
            self._silent_until = time.monotonic() + self._source.timeout_seconds
            return None
        self._silent_until = 0.0
        self.state = msgspec.structs.replace(self.state, contact=time.time(), trouble="")
        if fetched is None:
            return None
        self._tag = fetched.tag  # also of a refused one: the same content is refused without a download
        return self._take(fetched)

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
        """Take a tree as the newest good one, and keep the archive on disk; raise ConfigError for a full disk."""
        if self.good and self.good.folder != tree.folder:
            shutil.rmtree(self.good.folder, ignore_errors=True)
        self.good = tree
        self.state = msgspec.structs.replace(self.state, revision=tree.revision)
        if tree.archive:
            try:
                self._folder.keep(tree.sequence, tree.digest, tree.archive)
            except OSError as error:
                raise ConfigError(f"cannot keep the bundle in `policies.source.folder`: {error.strerror}") from None

    def reject(self, tree: PolicyTree) -> None:
        """Remove a tree that nobody can use."""
        shutil.rmtree(tree.folder, ignore_errors=True)

    def _take(self, fetched: FetchedBundle) -> PolicyTree:
        if fetched.files is not None:
            return self._written(PolicyTree(Path(), fetched.tag[:12]), fetched.files)
        return self._unpacked(fetched.archive)

    def _unpacked(self, archive: bytes) -> PolicyTree:
        """Return the tree of an archive; raise BundleRefused, also for a bundle that is older than a known one."""
        bundle = unpack(archive, self._keys(), self._most_bytes)
        number, kept = bundle.manifest.sequence, self._folder.note()
        if kept and number < kept.sequence:
            raise BundleRefused(f"the bundle has number {number}, and {kept.sequence} was in use already")
        if kept and number == kept.sequence and bundle.digest != kept.digest:
            raise BundleRefused(f"another bundle with number {number} was in use already")
        revision = bundle.manifest.revision or str(number)
        return self._written(PolicyTree(Path(), revision, number, bundle.digest, archive), bundle.files)

    def _written(self, tree: PolicyTree, files: Mapping[str, bytes]) -> PolicyTree:
        try:
            folder = self._folder.make_tree(next(self._numbers))
            write_files(files, folder)
        except OSError as error:
            raise ConfigError(f"cannot unpack to `policies.source.folder`: {error.strerror}") from None
        return tree._replace(folder=folder)

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
