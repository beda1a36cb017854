"""Instances that a start finds in the audit folder. Its record names them, so that none can be taken away unseen.

Only complete segments count: they are on disk for good.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from pdp.audit.segments import segment_files

MOST_NAMED: Final = 100
"""Newest instances that a start names. Older ones are named by earlier starts."""


class KnownInstance(msgspec.Struct, frozen=True):
    """An instance in an audit folder, and the number of its newest complete segment."""

    instance: str
    number: int


def known_instances(folder: Path) -> list[KnownInstance]:
    """Return the newest instances with complete segments; none if nobody can tell."""
    try:
        files = segment_files(folder)
    except OSError:
        return []
    newest = {file.instance: file.number for file in files if file.complete and file.number}
    return [KnownInstance(instance, newest[instance]) for instance in sorted(newest)[-MOST_NAMED:]]
