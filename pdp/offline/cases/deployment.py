"""Deployed policies that decide policy tests instead of the tests' own, and the facts and files that a case names.

Remarks on checks that name a warehouse or identity provider which the configuration does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

from pdp.config.origins import suggest
from pdp.config.policies import CedarSchemaFiles
from pdp.config.references import known_warehouses, listed_warehouses, unknown_warehouse
from pdp.config.settings import Settings
from pdp.decision.ports import AuditLog
from pdp.decision.service import Pdp
from pdp.facts.snapshot import Facts
from pdp.model.question import CONTENT_TYPES, Batch
from pdp.offline.cases.cases import Case, InvalidCase
from pdp.offline.cases.outcomes import Problem
from pdp.store.replica import FixedFacts
from pdp.store.world import load_world, parse_world

_OWN_SETTINGS: Final = ("config", "engines")
_OWN_POLICIES: Final = ("rules", "forbid", "policies", "permissions")


class Deployment:
    """Service of a configuration. A case may bring a world of its own; otherwise the stored facts count.

    `read_facts` is called for the first case without a world.
    """

    def __init__(self, settings: Settings, pdp: Pdp, read_facts: Callable[[], Facts]) -> None:
        self.settings = settings
        self._pdp = pdp
        self._read_facts = read_facts
        policies = settings.policies
        configured = (policies.rules, policies.forbid, policies.row_access, policies.scopes.permissions)
        self._files = {
            key: frozenset(path.resolve() for path in settings.paths(patterns))
            for key, patterns in zip(_OWN_POLICIES, configured, strict=True)
        }

    def pdp_for(self, case: Case, audit: AuditLog) -> Pdp:
        """Return the deployed service on the facts of a case; raise InvalidCase for a case with other policies."""
        self._refuse_other_policies(case)
        facts = case_facts(case, listed_warehouses(self.settings))
        own = self._facts if facts is None else facts.with_projects(self._projects)
        pdp = copy(self._pdp)
        pdp.source, pdp.audit = FixedFacts(own), audit
        set_clock(pdp, case)
        return pdp

    @cached_property
    def _facts(self) -> Facts:
        return self._read_facts()

    @cached_property
    def _projects(self) -> dict[str, str]:
        return {name: warehouse.project for name, warehouse in self.settings.warehouses.items() if warehouse.project}

    def _refuse_other_policies(self, case: Case) -> None:
        """Raise InvalidCase if a case names policies or settings that are not deployed: nothing would use them."""
        for key in _OWN_SETTINGS:
            if key in case.data:
                raise InvalidCase(f"`{key}` of a test has no effect under deployed settings: leave it out")
        for key in _OWN_POLICIES:
            value = case.data.get(key) or ()
            files = None if _is_inline(value) else case_files(case, value)
            if files is None or any(file.resolve() not in self._files[key] for file in files):
                raise InvalidCase(f"`{key}` of the test are not deployed: leave them out, or run without -c")
        self._refuse_other_cedar(case)

    def _refuse_other_cedar(self, case: Case) -> None:
        """Raise InvalidCase for Cedar that is not deployed. Deployed files may be named, as a test alone needs them."""
        deployed, given = self.settings.policies.cedar, case.data.get("cedar") or {}
        if not isinstance(given, Mapping):
            raise InvalidCase("`cedar` is a mapping of `policies`, `entities` and `schema`")
        chosen = deployed.schema
        schema = (
            chosen if isinstance(chosen, CedarSchemaFiles) else CedarSchemaFiles(replace=chosen) if chosen else None
        )
        files = {
            "policies": {path.resolve() for path in self.settings.paths(deployed.policies)},
            "entities": {path.resolve() for path in self.settings.paths(deployed.entities)},
            "replace": self._schema_file(schema.replace if schema else None),
            "extend": self._schema_file(schema.extend if schema else None),
        }
        named = {key: given.get(key) for key in ("policies", "entities")} | (given.get("schema") or {})
        for key, value in named.items():
            texts = [value] if isinstance(value, str) else value or ()
            known = files.get(key, set())
            if any(not isinstance(text, str) or not _is_one_of(known, case.folder, text) for text in texts):
                raise InvalidCase(f"`cedar`: `{key}` of the test are not deployed: leave them out, or run without -c")

    def _schema_file(self, file: str | None) -> set[Path]:
        return {self.settings.path(file).resolve()} if file else set()


def _is_one_of(files: set[Path], folder: Path, text: str) -> bool:
    """Tell whether a text names one of the files. A policy in the place of a name is no file."""
    return "\n" not in text and (folder / text).resolve() in files


def _is_inline(value: str | Sequence[Any] | Mapping[str, Any]) -> bool:
    """Tell whether a key of a case has policies, not files."""
    return isinstance(value, Mapping) or (
        not isinstance(value, str) and not all(isinstance(part, str) for part in value)
    )


def set_clock(pdp: Pdp, case: Case) -> None:
    """Let the service decide at the time of a case, if the case names a time."""
    seconds = case.seconds
    if seconds is not None:
        pdp.clock = lambda: seconds


def case_files(case: Case, value: str | Sequence[str]) -> tuple[Path, ...]:
    """Return the files that a key of a case names, from the folder of the case."""
    return tuple(case.folder / file for file in ([value] if isinstance(value, str) else value))


def case_facts(case: Case, warehouses: frozenset[str] = frozenset()) -> Facts | None:
    """Return the facts of a case's world; None for a case without a world.

    Raise PolicyError or WorldError for an invalid world, and for an entry in none of the `warehouses`, if any.
    """
    world = case.data.get("world")
    if world is None:
        return None
    if isinstance(world, str):
        return _world_file(case.folder / world, warehouses)
    return parse_world(world, warehouses)


def forget_worlds() -> None:
    """Forget the world files read so far: they may have changed."""
    _world_file.cache_clear()


@lru_cache(maxsize=64)
def _world_file(file: Path, warehouses: frozenset[str]) -> Facts:
    return load_world(file, warehouses)


_IN_WAREHOUSES: Final = CONTENT_TYPES | {"warehouse", "reference", "repository_config"}


def remarks_on_names(case: Case, batch: Batch, settings: Settings) -> Iterator[Problem]:
    """Yield a remark for each check with an unknown name, unless the case wants a reason by `by`.

    Names are compared only if the configuration has any of the kind. A misspelt name denies, for the wrong reason.
    """
    warehouses, providers = known_warehouses(settings), settings.identity.providers
    for check in batch.checks:
        provider = check.question.principal.name.partition("~")[0] if check.question.principal.type == "user" else ""
        for at, resource in zip(check.at, check.resources, strict=True):
            if _wants_reason(case, at):
                continue
            if resource.type in _IN_WAREHOUSES and (message := unknown_warehouse(resource.warehouse, warehouses)):
                yield Problem(f"{message}: want this by `by`", at)
            if provider and providers and provider not in providers:
                message = f"no provider `{provider}` is configured{suggest(provider, providers)}"
                yield Problem(f"{message}: want this by `by`", at)


def _wants_reason(case: Case, at: int) -> bool:
    want = case.data.get("want", [])
    return at < len(want) and isinstance(want[at], dict) and "by" in want[at]
