"""Tables of metadata: INFORMATION_SCHEMA, and tables beside a table such as `"orders$files"` and `orders.files`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from pdp.rewrite.catalog import Catalog
from pdp.rewrite.errors import METADATA_TABLE, UNKNOWN_RELATION, RewriteRefused
from pdp.rewrite.names import INFORMATION_SCHEMA, METADATA_SUFFIXES, READABLE_INFORMATION

_INFORMATION_PARTS: Final = 3
"""Parts of the longest name of a view of INFORMATION_SCHEMA outside of BigQuery."""


def is_information(parts: Sequence[str]) -> bool:
    """Tell whether a name is of a view of INFORMATION_SCHEMA."""
    return len(parts) > 1 and parts[-2].lower() == INFORMATION_SCHEMA


def check_information(parts: Sequence[str], dialect: str, catalog: Catalog) -> None:
    """Raise RewriteRefused unless a name is of a readable view of a known catalog.

    A catalog that no file describes can hold a table of that name. BigQuery keeps the name for the views.
    """
    name = ".".join(parts)
    if parts[-1].lower() not in READABLE_INFORMATION:
        raise RewriteRefused(METADATA_TABLE, f"`{name}` is not among the readable views of metadata")
    is_known = len(parts) < _INFORMATION_PARTS or parts[0].lower() in catalog.containers
    if dialect != "bigquery" and (len(parts) > _INFORMATION_PARTS or not is_known):
        raise RewriteRefused(UNKNOWN_RELATION, f"`{name}` is in no known catalog")


def metadata_base(parts: tuple[str, ...], dialect: str) -> tuple[str, ...] | None:
    """Return the name of the table that a name of metadata belongs to; None for another name."""
    base, dollar, suffix = parts[-1].partition("$")
    if dollar and base:
        is_suffix = dialect == "trino" and suffix.lower() in METADATA_SUFFIXES
        is_partition = dialect == "bigquery" and suffix.isdigit()
        return (*parts[:-1], base) if is_suffix or is_partition else None
    if dialect == "spark" and len(parts) > 1 and parts[-1].lower() in METADATA_SUFFIXES:
        return parts[:-1]
    return None


def check_dots(node: exp.Table, dialect: str) -> None:
    """Raise RewriteRefused for a dot in a quoted name: only in BigQuery the dot divides the name."""
    if dialect != "bigquery" and any("." in part.name for part in node.parts):
        raise RewriteRefused(UNKNOWN_RELATION, f"`{node.name}` has a dot inside of a quoted name")


def check_new_name(parts: Sequence[str]) -> None:
    """Raise RewriteRefused for a new relation with a name of metadata: later reads would pass as metadata."""
    folded = [part.lower() for part in parts]
    if folded[-1] in METADATA_SUFFIXES or INFORMATION_SCHEMA in folded or any("$" in part for part in folded):
        raise RewriteRefused(METADATA_TABLE, f"`{'.'.join(parts)}` is a name of metadata")
