"""Environment variables that the service does not read: of Nessie and Lakekeeper, and misspelt ones of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import structlog

from pdp.config.load import unread_variables
from pdp.errors import ConfigError

LAKEKEEPER: Final = "LAKEKEEPER__"
"""The beginning of Lakekeeper's variables."""
_NESSIE: Final = re.compile(r"(?:_.+_)?NESSIE[^A-Z0-9]SERVER[^A-Z0-9]AUTHORIZATION[^A-Z0-9].+", re.IGNORECASE)
log = structlog.get_logger()


def check_foreign_variables(environment: Mapping[str, str]) -> None:
    """Warn of variables that nothing reads; raise ConfigError for a variable of Nessie's authorization."""
    error = refuse_nessie(environment)
    if error:
        raise ConfigError(error)
    for warning in unread_warnings(environment):
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


def unread_warnings(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the warnings of an environment with Lakekeeper's variables, and with names that begin like the service's.

    A misspelt name that spells a key stops the start before.
    """
    others = sorted(name for name in environment if name.startswith(LAKEKEEPER))
    if others:
        yield (
            f"the environment has `{others[0]}`{_more(others)}, which the service does not read: "
            "`pdp migrate lakekeeper` translates them"
        )
    for name, near in unread_variables(environment):
        yield f"the environment has `{name}`, which nothing reads{f': the nearest key is `{near}`' if near else ''}"


def _more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""
