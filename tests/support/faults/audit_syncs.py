"""Syncs of an audit folder under the control of a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pdp.audit.files.folder import AuditFolder


def before_each_sync(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    """Call a function before each sync, and before each write that syncs. The thread of the writer calls it."""
    append, sync = AuditFolder.append, AuditFolder.sync

    def appended(folder: AuditFolder, lines: Sequence[bytes], **options: bool) -> bool:
        if options.get("sync"):
            call()
        return append(folder, lines, **options)

    def synced(folder: AuditFolder) -> None:
        call()
        sync(folder)

    monkeypatch.setattr(AuditFolder, "append", appended)
    monkeypatch.setattr(AuditFolder, "sync", synced)
