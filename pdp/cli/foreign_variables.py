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
    """Warn of Lakekeeper's variables, which the service does not read.

    Raise ConfigError for a variable of Nessie's authorization: a rule that the service does not read could be the rule
    that hides a branch.
    """
    rules = sorted(name for name in environment if _NESSIE.fullmatch(name))
    if rules:
        raise ConfigError(
            f"the environment has `{rules[0]}`{_more(rules)}, and rules are read from files only: "
            "`pdp migrate nessie --env-file` translates variables; unset them"
        )
    others = sorted(name for name in environment if name.startswith(LAKEKEEPER))
    if others:
        log.warning(
            "server",
            warning=f"the environment has `{others[0]}`{_more(others)}, which the service does not read: "
            "`pdp migrate lakekeeper` translates them",
        )


def _more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""
