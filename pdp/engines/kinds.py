"""Old name of `pdp.engines.engine_types`, for one release: packages with engines import it."""

import warnings
from typing import Any, Final

from pdp.engines import engine_types

_NAMES: Final = {
    "EngineKind": "EngineType",
    "PolicySources": "PolicySources",
    "no_policies": "no_policies",
    "only_policies": "only_policies",
}


def __getattr__(name: str) -> Any:
    """Return what has the name today, with a warning."""
    if name not in _NAMES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    place = f"{engine_types.__name__}.{_NAMES[name]}"
    message = f"`{__name__}.{name}` goes with the next release: use `{place}`"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return getattr(engine_types, _NAMES[name])
