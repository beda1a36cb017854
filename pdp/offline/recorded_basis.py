"""Services that decide recorded checks again as they were decided: by the bundle and the facts of their revision.

Needs nothing but the audit folder: `bundles/` has every bundle by digest, `facts/` every revision of the facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from pdp.audit.fact_history import FactsHistory
from pdp.audit.reader import read_bundle_text
from pdp.decision.ports import AuditLog
from pdp.decision.service import Pdp
from pdp.errors import ConfigError, InvalidArgument, MissingFacts, PdpError, PolicyError
from pdp.facts.snapshot import Facts
from pdp.memo import Memo
from pdp.model.revision import Revision

_MOST_BUNDLES: Final = 32
"""Services that are kept, one for each bundle."""


class UndecidableCheck(PdpError):
    """A check that the folder alone cannot decide again. `cause` is one of few, `place` is exact."""

    code = "undecidable"

    def __init__(self, cause: str, place: str) -> None:
        super().__init__(f"{cause}: {place}")
        self.cause = cause
        self.place = place


class RecordedFacts:
    """Facts of a recorded revision, in the state in which they decided."""

    def __init__(self, facts: Facts, *, stale: bool) -> None:
        self.facts = facts
        self._stale = stale

    def is_stale(self) -> bool:
        """Tell whether the facts were too old to permit anything."""
        return self._stale

    async def catch_up(self) -> None:
        """Do nothing: the past has no newer facts."""

    async def at_least(self, epoch: str, sequence: int) -> None:
        """Do nothing: a recorded check has its revision."""


class _Rebuilt(NamedTuple):
    """Service of a bundle, or the reason why there is none."""

    pdp: Pdp | None
    cause: str = ""


class RecordedBasis:
    """Services by revision. `rebuild` makes a service without facts from the text of a bundle."""

    def __init__(self, audit: Path, rebuild: Callable[[bytes], Pdp]) -> None:
        self._audit = audit
        self._rebuild = rebuild
        self._history = FactsHistory(audit)
        self._rebuilt: Memo[str, _Rebuilt] = Memo(_MOST_BUNDLES)

    def pdp(self, revision: str, audit: AuditLog, *, stale: bool) -> Pdp:
        """Return the service that decided at a revision; raise UndecidableCheck if the folder does not have it all."""
        try:
            parsed = Revision.parse(revision)
        except InvalidArgument as error:
            raise UndecidableCheck("its revision is unreadable", str(error)) from None
        rebuilt = self._rebuilt.get(parsed.digest) or self._rebuilt.keep(parsed.digest, self._service(parsed.digest))
        if rebuilt.pdp is None:
            raise UndecidableCheck(rebuilt.cause, f"bundle {parsed.digest}")
        try:
            facts = self._history.at(parsed)
        except MissingFacts as error:
            raise UndecidableCheck(error.cause, error.place) from None
        pdp = copy(rebuilt.pdp)
        pdp.source = RecordedFacts(replace(facts, projects=_projects(pdp)), stale=stale)
        pdp.audit = audit
        return pdp

    def _service(self, digest: str) -> _Rebuilt:
        text = read_bundle_text(self._audit, digest)
        if text is None:
            return _Rebuilt(None, "its bundle is not in the folder")
        if not sha256(text).hexdigest().startswith(digest):
            return _Rebuilt(None, "its bundle was changed")
        try:
            pdp = self._rebuild(text)
        except (ConfigError, PolicyError, InvalidArgument) as error:
            return _Rebuilt(None, f"its bundle cannot be used: {error}")
        if pdp.bundle.digest != digest:
            return _Rebuilt(None, "its bundle means something else to this version of pdp")
        return _Rebuilt(pdp)


def _projects(pdp: Pdp) -> Mapping[str, str]:
    """Return the projects of warehouses that the configuration of the deciding service had."""
    return {name: warehouse.project for name, warehouse in pdp.bundle.warehouses.items() if warehouse.project}
