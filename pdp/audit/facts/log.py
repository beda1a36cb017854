"""History of facts as rows of changes: the facts of any revision, from a snapshot and all changes behind.

Small to send and to keep: changes stay packed JSON until a revision needs them. `history` reads the files of an
audit folder in place of rows, and gives the same facts.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from pdp.audit.facts.history import build_facts
from pdp.errors import MissingFacts
from pdp.facts.objects import Change
from pdp.facts.snapshot import Facts
from pdp.model.revision import Revision

_PART: Final = 5_000
"""Changes of a snapshot in one packed part."""
_FEW_BYTES: Final = 1_000
"""Changes of a revision up to this size are kept as they are."""
_CHANGES: Final = msgspec.json.Decoder(list[Change])
_ENCODER: Final = msgspec.json.Encoder()


class ChangeRow(NamedTuple):
    """One change of a revision as JSON. `snapshot`: the change is a part of all facts of the revision.

    A row without a `change` stands for the revision alone: a snapshot or a revision can be empty.
    """

    epoch: str
    sequence: int
    snapshot: bool
    change: str


class FactLog:
    """Facts by revision. Rows come by epoch, sequence and place within their revision."""

    def __init__(self, rows: Iterable[ChangeRow] = ()) -> None:
        self._epochs: dict[str, _EpochLog] = {}
        pending: list[str] = []
        last: tuple[str, int, bool] | None = None
        for row in rows:
            key = row[:3]
            if last is not None and (key != last or len(pending) >= _PART):
                self._epoch(last[0]).keep(last[1], pending, snapshot=last[2])
                pending = []
            last = key
            if row.change:
                pending.append(row.change)
        if last is not None:
            self._epoch(last[0]).keep(last[1], pending, snapshot=last[2])

    def at(self, revision: Revision) -> Facts:
        """Return the facts of a revision; raise MissingFacts. The next later revision costs the changes in between."""
        known = self._epochs.get(revision.epoch)
        if known is None:
            raise MissingFacts(f"no facts of the epoch `{revision.epoch}`", "there are none")
        return known.at(revision.sequence)

    def _epoch(self, epoch: str) -> _EpochLog:
        known = self._epochs.get(epoch)
        if known is None:
            known = self._epochs[epoch] = _EpochLog(epoch)
        return known

    def __getstate__(self) -> dict[str, object]:
        """Leave built facts out of a copy that is sent."""
        epochs = {name: epoch.without_facts() for name, epoch in self._epochs.items()}
        return {"_epochs": epochs}


class _EpochLog:
    """Changes of one epoch, and the newest built facts."""

    def __init__(self, epoch: str) -> None:
        self._epoch = epoch
        self._snapshots: dict[int, list[bytes]] = {}
        self._changes: dict[int, list[bytes]] = {}
        self._built: dict[int, Facts] = {}

    def keep(self, sequence: int, changes: Sequence[str], *, snapshot: bool) -> None:
        """Keep further changes of a revision."""
        parts = (self._snapshots if snapshot else self._changes).setdefault(sequence, [])
        parts.append(_pack(f"[{','.join(changes)}]".encode()))

    def without_facts(self) -> _EpochLog:
        """Return a copy without built facts."""
        copy = _EpochLog(self._epoch)
        copy._snapshots, copy._changes = self._snapshots, self._changes
        return copy

    def at(self, sequence: int) -> Facts:
        """Return the facts of a revision."""
        facts = self._built.get(sequence)
        if facts is None:
            facts = self._advance(self._nearest(sequence), sequence)
            self._built = {facts.sequence: facts, **_first(self._built)}
        return facts

    def _nearest(self, sequence: int) -> Facts:
        """Return known facts at or before a revision."""
        snapshots = sorted(self._snapshots)
        place = bisect_right(snapshots, sequence)
        if not place:
            raise MissingFacts(
                f"no snapshot of the epoch `{self._epoch}` is old enough", f"revision {self._epoch}.{sequence}"
            )
        first = snapshots[place - 1]
        built = max((known for known in self._built if first <= known <= sequence), default=None)
        if built is not None:
            return self._built[built]
        changes = (change for part in self._snapshots[first] for change in _unpack(part))
        facts = build_facts(self._epoch, first, changes)
        self._built = {first: facts, **self._built}
        return facts

    def _advance(self, facts: Facts, sequence: int) -> Facts:
        changes: list[Change] = []
        for now in range(facts.sequence + 1, sequence + 1):
            parts = self._changes.get(now)
            if parts is None:
                raise MissingFacts(
                    f"changes of the epoch `{self._epoch}` are missing", f"revision {self._epoch}.{now} and later"
                )
            changes += (change for part in parts for change in _unpack(part))
        return facts.apply(sequence, changes) if sequence > facts.sequence else facts


def _first(built: dict[int, Facts]) -> dict[int, Facts]:
    """Return the oldest known facts, from which a second pass over the revisions begins."""
    oldest = min(built, default=None)
    return {} if oldest is None else {oldest: built[oldest]}


def _pack(text: bytes) -> bytes:
    return text if len(text) <= _FEW_BYTES else zlib.compress(text, 1)


def _unpack(part: bytes) -> list[Change]:
    try:
        return _CHANGES.decode(part if part.startswith(b"[") else zlib.decompress(part))
    except (msgspec.MsgspecError, zlib.error) as error:
        raise MissingFacts("a change is damaged", str(error)) from None


def change_rows(facts: Facts) -> Iterator[ChangeRow]:
    """Yield all facts of a revision as rows of a snapshot. The first row stands for the snapshot alone."""
    yield ChangeRow(facts.epoch, facts.sequence, True, "")
    for change in facts.as_changes():
        yield ChangeRow(facts.epoch, facts.sequence, True, _ENCODER.encode(change).decode())
