"""Settings of the example, which a service serves without a configuration of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pdp.config.load import load_settings
from pdp.config.settings import Settings

EXAMPLE: Final = next(
    path for path in (Path(__file__).parents[1] / "example", Path(__file__).parents[2] / "rules") if path.is_dir()
)
"""Folder of the example configuration, for a service that starts without a configuration file."""


def embedded_settings(overrides: tuple[str, ...] = ()) -> Settings:
    """Return the settings of the example, with the audit and the database in the working folder."""
    audit = f"audit.sinks=[{{file: {str(Path.cwd() / 'audit')!r}}}]"
    store = f"store.url={f'sqlite:///{Path.cwd()}/pdp.db'!r}"
    return load_settings(EXAMPLE / "pdp.yaml", (audit, store, *overrides))
