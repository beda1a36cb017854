"""Candidate policies for a replay: each given kind replaces the recorded kind. Everything else stays as recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from pdp.decision.bundle import source_text
from pdp.errors import Place, PolicyError
from pdp.facts.snapshot import Facts


class CandidatePolicies(msgspec.Struct, frozen=True):
    """New policies. None keeps the recorded policies of a kind.

    `rules`, `forbid` and `row_access` replace their kind in each recorded bundle, `bundle` replaces all of it. `cedar`
    replaces policies, entities or the schema of the engine `cedar`, `permissions` the entries of the engine `scopes`.
    `facts` replace the facts of every revision; facts without row rules keep the recorded ones.
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
