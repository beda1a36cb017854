"""Old name of `pdp.model.question` and `pdp.model.answer`, for one release: engines of other packages import it."""

import warnings
from typing import Any, Final

from pdp.model import answer, question

_RENAMED: Final = {"Env": "RequestContext", "RowView": "TableAccess"}


def __getattr__(name: str) -> Any:
    """Return what has the name today, with a warning."""
    new = _RENAMED.get(name, name)
    for module in (question, answer):
        if not new.startswith("_") and hasattr(module, new):
            place = f"{module.__name__}.{new}"
            message = f"`{__name__}.{name}` goes with the next release: use `{place}`"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return getattr(module, new)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
