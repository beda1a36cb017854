"""Log of all processes: JSON lines on stderr, from the level that PDP_LOG_LEVEL names."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, Final

import structlog

from pdp.errors import ConfigError

_LEVELS: Final = {name: logging.getLevelNamesMapping()[name.upper()] for name in ("debug", "info", "warning", "error")}


def configure_logging(**fields: Any) -> None:
    """Write the log of this process to stderr, each line with `fields`; raise ConfigError for an unknown level."""
    level = os.environ.get("PDP_LOG_LEVEL", "info")
    if level not in _LEVELS:
        raise ConfigError(f"PDP_LOG_LEVEL is none of {', '.join(_LEVELS)}: `{level}`")
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    # aiohttp logs every malformed request of a client: silence it, because our handlers log our own failures
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)

    def add_fields(_: Any, __: str, event: Any) -> Any:
        return {**event, **fields}

    structlog.configure(
        processors=[
            *([add_fields] if fields else []),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
