"""Services that decide recorded checks again: by the bundle and the facts of their revision, or by a candidate.

Needs nothing but an archive of bundles by digest and of facts by revision. The audit folder is one: `bundles/` and
`facts/`. With a `CandidatePolicies`, new policies replace their kind in the recorded bundle, or all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from pdp.audit.facts.history import FactsHistory
from pdp.audit.reader import read_bundle_text
from pdp.decision.active_policies import source_text
from pdp.decision.ports import AuditLog
from pdp.decision.service import Pdp
from pdp.errors import ConfigError, InvalidArgument, MissingFacts, PdpError, Place, PolicyError
from pdp.facts.snapshot import Facts
from pdp.model.bounded_cache import BoundedCache
from pdp.model.revision import Revision


class CandidatePolicies(msgspec.Struct, frozen=True):
    """New policies. None keeps the recorded policies of a kind.

    `rules`, `forbid` and `row_access` replace their kind in each recorded bundle, `bundle` replaces all of it. `cedar`
    replaces policies, entities or the schema of the engine `cedar`, `permissions` the entries of the engine `scopes`.
    `facts` replace the facts of every revision; facts without row policies keep the recorded ones.
    """

    rules: Mapping[str, str] | None = None
    forbid: Mapping[str, str] | None = None
    row_access: Sequence[Mapping[str, Any]] | None = None
    bundle: bytes | None = None
    facts: Facts | None = None
    cedar: Mapping[str, Any] | None = None
    permissions: Sequence[Mapping[str, Any]] | None = None

    @property
    def replaces_policies(self) -> bool:
        """Tell whether the policies differ from the recorded ones."""
        kinds = (self.rules, self.forbid, self.row_access, self.bundle, self.cedar, self.permissions)
        return any(each is not None for each in kinds)

    @property
    def is_complete(self) -> bool:
        """Tell whether nothing recorded but the checks is needed."""
        return self.bundle is not None and self.facts is not None

    def text_from(self, recorded: bytes) -> bytes:
        """Return the text of a bundle with the new policies; raise PolicyError for a text that is no bundle."""
        if self.bundle is not None:
            return self.bundle
        new = {"rules": self.rules, "forbid": self.forbid, "rowAccess": self.row_access}
        replaced: dict[str, Any] = {name: value for name, value in new.items() if value is not None}
        of_engines: dict[str, Mapping[str, Any]] = {"cedar": self.cedar} if self.cedar is not None else {}
        if self.permissions is not None:
            of_engines["scopes"] = {"permissions": self.permissions}
        if not replaced and not of_engines:
            return recorded
        try:
            sources = msgspec.json.decode(recorded, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise PolicyError(f"no bundle of this version: {error}", Place("<bundle>", 0)) from None
        engines = dict(sources.get("engines", {}))
        for name, changed in of_engines.items():
            if name not in engines:
                raise PolicyError(f"the recorded policies have no engine `{name}`", Place("<bundle>", 0))
            engines[name] = engines[name] | changed
        if of_engines:
            replaced["engines"] = engines
        return source_text(sources | replaced)[0]


AS_RECORDED: Final = CandidatePolicies()
"""No new policies: every check is decided as recorded."""


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

    async def at_least(self, revision: Revision) -> None:
        """Do nothing: a recorded check has its revision."""


class PolicyArchive(Protocol):
    """Everything that deciding again needs."""

    def bundle_text(self, digest: str) -> bytes | None:
        """Return the archived bundle of a digest; None without one."""

    def facts_at(self, revision: Revision) -> Facts:
        """Return the facts of a revision; raise MissingFacts."""


class FolderArchive:
    """Archive of an audit folder."""

    def __init__(self, audit: Path) -> None:
        self._audit = audit
        self._history = FactsHistory(audit)

    def bundle_text(self, digest: str) -> bytes | None:
        """Return the text of `bundles/<digest>`; None without the file."""
        return read_bundle_text(self._audit, digest)

    def facts_at(self, revision: Revision) -> Facts:
        """Return the facts by `facts/`; raise MissingFacts."""
        return self._history.at(revision)


class _Rebuilt(NamedTuple):
    """Service of a bundle, or the reason why there is none."""

    pdp: Pdp | None
    cause: str = ""


class HistoricalPdps:
    """Services by revision. `rebuild` makes a service without facts from the text of a bundle."""

    def __init__(
        self, archive: PolicyArchive, rebuild: Callable[[bytes], Pdp], candidate: CandidatePolicies = AS_RECORDED
    ) -> None:
        self._archive = archive
        self._rebuild = rebuild
        self._candidate = candidate
        self._rebuilt: BoundedCache[str, _Rebuilt] = BoundedCache(_MOST_BUNDLES)

    def pdp(self, revision: str, audit: AuditLog, *, stale: bool) -> Pdp:
        """Return the service that decided at a revision; raise UndecidableCheck if the folder does not have it all."""
        try:
            parsed = Revision.parse(revision)
        except InvalidArgument as error:
            if self._candidate.is_complete:
                parsed = Revision("", 0, "")
            else:
                raise UndecidableCheck("its revision is unreadable", str(error)) from None
        digest = "" if self._candidate.bundle else parsed.digest
        rebuilt = self._rebuilt.get(digest) or self._rebuilt.keep(digest, self._service(digest))
        if rebuilt.pdp is None:
            raise UndecidableCheck(rebuilt.cause, f"bundle {digest}")
        facts = self._facts(parsed)
        pdp = copy(rebuilt.pdp)
        known_stale = stale and self._candidate.facts is None
        pdp.source = RecordedFacts(replace(facts, projects=_projects(pdp)), stale=known_stale)
        pdp.audit = audit
        return pdp

    def _facts(self, revision: Revision) -> Facts:
        given = self._candidate.facts
        if given is not None and given.index.rules:
            return given
        try:
            recorded = self._archive.facts_at(revision)
        except MissingFacts as error:
            if given is not None:
                return given
            raise UndecidableCheck(error.cause, error.place) from None
        # files of a candidate world name no row policies: the stored ones stay as recorded
        return recorded if given is None else given.with_rules_of(recorded)

    def _service(self, digest: str) -> _Rebuilt:
        text = self._candidate.bundle or self._archive.bundle_text(digest)
        if text is None:
            return _Rebuilt(None, "its bundle is not in the folder")
        if digest and not sha256(text).hexdigest().startswith(digest):
            return _Rebuilt(None, "its bundle was changed")
        try:
            pdp = self._rebuild(self._candidate.text_from(text))
        except (ConfigError, PolicyError, InvalidArgument) as error:
            return _Rebuilt(None, f"its bundle cannot be used: {error}")
        if not self._candidate.replaces_policies and pdp.bundle.digest != digest:
            return _Rebuilt(None, "its bundle means something else to this version of pdp")
        return _Rebuilt(pdp)


def _projects(pdp: Pdp) -> Mapping[str, str]:
    """Return the projects of warehouses that the configuration of the deciding service had."""
    return {name: warehouse.project for name, warehouse in pdp.bundle.warehouses.items() if warehouse.project}
