"""Questions of the report: SQL files beside this module, each with a title, an order and a bound on its rows.

Knows no Spark. `sql/views` has what the questions share, in the order of VIEWS.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import msgspec

VIEWS: Final = ("usage", "loads", "known_views", "accesses", "grants_now")
"""Views that questions read, in the order of their making."""
QUESTIONS: Final = (
    "totals", "days", "hours", "principals", "roles", "objects", "actions", "engines", "callers", "trusted_engines",
    "denials", "after_removal", "delegated", "unused_grants", "unused_rules", "dormant", "first_access", "errors",
    "changes",
)  # fmt: skip
_FIELD: Final = "-- "


class LakeQuestion(msgspec.Struct, frozen=True):
    """Question about the lake. `order` is that of its rows; `sums` have a sum over the rows left out."""

    name: str
    title: str
    text: str
    order: str
    sums: tuple[str, ...]
    sql: str


def read_view(name: str) -> str:
    """Return the SQL of a view."""
    return _read(f"views/{name}")


def read_question(name: str) -> LakeQuestion:
    """Return a question: the fields of the comment at its top, and its SQL."""
    text = _read(f"questions/{name}")
    lines = text.splitlines()
    fields = dict(line.removeprefix(_FIELD).split(": ", 1) for line in lines if line.startswith(_FIELD))
    sums = tuple(filter(None, fields.get("sum", "").split(", ")))
    return LakeQuestion(name, fields["title"], fields["text"], fields["order"], sums, text)


def _read(name: str) -> str:
    return files(__package__).joinpath(f"sql/{name}.sql").read_text(encoding="utf-8")
