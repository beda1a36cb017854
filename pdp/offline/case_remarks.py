"""Remarks on checks of tests that name a warehouse or identity provider which the configuration does not know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pdp.config.origins import suggest
from pdp.config.references import known_warehouses, unknown_warehouse
from pdp.config.settings import Settings
from pdp.model.question import CONTENT_TYPES, Batch
from pdp.offline.case_outcomes import Problem
from pdp.offline.cases import Case

_IN_WAREHOUSES: Final = CONTENT_TYPES | {"warehouse", "reference", "repository_config"}


def remarks_on_names(case: Case, batch: Batch, settings: Settings) -> Iterator[Problem]:
    """Yield a remark for each check with an unknown name, unless the case wants a reason by `by`.

    Names are compared only if the configuration has any of the kind. A misspelt name denies, for the wrong reason.
    """
    warehouses, providers = known_warehouses(settings), settings.identity.providers
    for check in batch.checks:
        provider = check.principal.name.partition("~")[0] if check.principal.type == "user" else ""
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
