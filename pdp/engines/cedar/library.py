"""The package cedarpy, imported when a Cedar engine is built and not before."""

from __future__ import annotations

import importlib
from types import ModuleType

from pdp.errors import ConfigError


def load_cedarpy() -> ModuleType:
    """Return the package; raise ConfigError with the command that installs it."""
    try:
        return importlib.import_module("cedarpy")
    except ImportError:
        raise ConfigError("the engine `cedar` needs the package cedarpy: pip install 'pdp[cedar]'") from None
