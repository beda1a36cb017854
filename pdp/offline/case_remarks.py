"""Remarks on checks of tests that name a warehouse or identity provider which the configuration does not know."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import Final

from pdp.config.settings import Settings
from pdp.model.checks import CONTENT_TYPES, Batch, Check
from pdp.offline.case_outcomes import Problem
from pdp.offline.cases import Case

_IN_WAREHOUSES: Final = CONTENT_TYPES | {"warehouse", "reference", "repository_config"}


def unknown_names(case: Case, batch: Batch, settings: Settings) -> Iterator[Problem]:
    """Yield a remark for each check with an unknown name, unless the case wants a reason by `by`.

    Names are compared only if the configuration has any of the kind. A misspelt name denies, for the wrong reason.
    """
    warehouses = {*settings.warehouses, *(catalog.warehouse for catalog in settings.trino.catalogs.values())}
    for check in batch.checks:
        for at, resource in zip(check.at, check.resources, strict=True):
            if _wants_reason(case, at):
                continue
            if settings.warehouses and resource.type in _IN_WAREHOUSES and resource.warehouse not in warehouses:
                yield Problem(_text("warehouses", resource.warehouse, warehouses), at)
            if provider := _unknown_provider(check, settings):
                yield Problem(_text("identity.providers", provider, settings.identity.providers), at)


def _wants_reason(case: Case, at: int) -> bool:
    want = case.data.get("want", [])
    return at < len(want) and isinstance(want[at], dict) and "by" in want[at]


def _unknown_provider(check: Check, settings: Settings) -> str:
    principal, providers = check.principal, settings.identity.providers
    provider = principal.name.partition("~")[0] if principal.type == "user" else ""
    return provider if providers and provider not in providers else ""


def _text(key: str, name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    hint = f" (did you mean `{near[0]}`?)" if near else ""
    return f"`{name}` is none of `{key}`{hint}: want this by `by`"
