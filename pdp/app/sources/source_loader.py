"""Loads of a source: the newest tree that is verified and makes a bundle, else the last good one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from pdp.app.reload.load_messages import LoadedPolicies
from pdp.app.reload.watched_files import Stamps
from pdp.app.sources.policy_source import PolicySource, PolicyTree, open_source
from pdp.config.settings import Settings
from pdp.errors import PdpError


class FileLoader(Protocol):
    """Loader of policies in a folder."""

    def load(self, folder: Path | None = None) -> LoadedPolicies:
        """Return the bundle of the files, or the cause of a failure."""
        ...

    def failed(self, cause: str) -> LoadedPolicies:
        """Return a failure that rests on the files as they are now."""
        ...


class SourceLoader:
    """Loader of policies in a source, or in folders alone."""

    def __init__(self, settings: Settings, files: FileLoader) -> None:
        self._settings = settings
        self._files = files
        self._source: PolicySource | None = None
        self._stamps: Stamps = {}
        self._failure = ""
        """Cause why the newest content of the source is not in use."""

    def load(self, *, poll: bool) -> LoadedPolicies:
        """Return the bundle, the cause of a failure, or both if the last good bundle is in place of a refused one."""
        if self._settings.policies.source is None:
            return self._files.load()
        try:
            self._source = self._source or open_source(self._settings)
            assert self._source is not None
            return self._load(self._source, poll=poll)
        except PdpError as error:
            return self._files.failed(self._words(error))

    def _load(self, source: PolicySource, *, poll: bool) -> LoadedPolicies:
        if not poll:
            source.forget()
        try:
            new = None if source.good and not poll and source.is_silent() else source.look()
        except PdpError as error:
            new, self._failure = None, self._words(error)
            if source.good:
                return msgspec.structs.replace(self._files.failed(self._failure), source=source.state)
        result = self._files.failed("")
        if new is None and source.good and poll and result.stamps == self._stamps:
            return LoadedPolicies(unchanged=True, source=source.state)
        for tree in self._candidates(source, new):
            result = self._files.load(tree.folder)
            self._stamps = result.stamps
            if not result.failure:
                source.accept(tree)
                self._failure = "" if tree is new else self._failure
                result = msgspec.structs.replace(result, failure=self._failure)
                break
            if tree is not source.good:
                source.reject(tree)
            self._failure = self._words(result.failure)
            result = msgspec.structs.replace(result, failure=self._failure)
        if source.good is None:
            causes = [self._words(source.state.trouble)] if source.state.trouble else []
            result = msgspec.structs.replace(result, failure="; ".join([*causes, *filter(None, [self._failure])]))
        return msgspec.structs.replace(result, source=source.state)

    def _candidates(self, source: PolicySource, new: PolicyTree | None) -> Iterator[PolicyTree]:
        """Yield trees in the order of preference. A running service keeps its policies, so one is enough for it."""
        if new or source.good:
            yield new or source.good  # type: ignore[misc]
        if source.good is None:
            try:
                kept = source.last_good()
            except PdpError as error:
                self._failure = self._failure or f"the last good bundle cannot be used: {error}"
                return
            if kept:
                yield kept

    def _words(self, cause: PdpError | str) -> str:
        """Return a cause with the place of the source."""
        source = self._settings.policies.source
        return f"`policies.source`, {source.place if source else ''}: {cause}"
