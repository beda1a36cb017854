"""Environment variables of Nessie and Lakekeeper in the environment of the service."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import structlog

from pdp.errors import ConfigError

LAKEKEEPER: Final = "LAKEKEEPER__"
"""The beginning of Lakekeeper's variables."""
_NESSIE: Final = re.compile(r"(?:_.+_)?NESSIE[^A-Z0-9]SERVER[^A-Z0-9]AUTHORIZATION[^A-Z0-9].+", re.IGNORECASE)
log = structlog.get_logger()


def check_foreign_variables(environment: Mapping[str, str]) -> None:
    """Warn of Lakekeeper's variables; raise ConfigError for a variable of Nessie's authorization."""
    error = refuse_nessie(environment)
    if error:
        raise ConfigError(error)
    warning = warn_of_lakekeeper(environment)
    if warning:
        log.warning("server", warning=warning)


def refuse_nessie(environment: Mapping[str, str]) -> str:
    """Return the error of an environment with variables of Nessie's authorization; "" without such variables.

    The service does not read these variables, and a skipped rule could be the rule that hides a branch.
    """
    rules = sorted(name for name in environment if _NESSIE.fullmatch(name))
    if not rules:
        return ""
    return (
        f"the environment has `{rules[0]}`{_more(rules)}, and rules are read from files only: "
        "`pdp migrate nessie --env-file` translates variables; unset them"
    )


def warn_of_lakekeeper(environment: Mapping[str, str]) -> str:
    """Return the warning of an environment with Lakekeeper's variables; "" without such variables."""
    others = sorted(name for name in environment if name.startswith(LAKEKEEPER))
    if not others:
        return ""
    return (
        f"the environment has `{others[0]}`{_more(others)}, which the service does not read: "
        "`pdp migrate lakekeeper` translates them"
    )


def _more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""
