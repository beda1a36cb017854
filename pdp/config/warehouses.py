"""Keys of `authorities` and `warehouses`: the engines that decide, and the catalogs behind warehouses."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from pdp.config.policies import ThroughViews
from pdp.config.section import Section

PRODUCT_ENGINES: Final = frozenset({"cel", "grants", "scopes", "cedar", "allow_all"})
"""Engines of the product. Every other name in `authorities` is an engine of another package."""


class AuthoritySettings(Section):
    """Engines of an authority and the combination of their verdicts. A forbid always wins; silence denies."""

    engines: tuple[str, ...] = Field(min_length=1, description="engines in order; the first that permits is named")
    combine: Literal["any", "all"] = Field("any", description="`any` engine that applies, or `all` of them")
    warehouses: tuple[str, ...] = Field((), description="the warehouses it decides; `default` has the rest")
    mode: Literal["enforce", "report"] = Field(
        "enforce", description="`report` changes no answer: the audit has the differences from the other engines"
    )


class CatalogSettings(Section):
    """Iceberg REST catalog that supplies the view properties that a load request leaves out."""

    uri: str = Field(pattern=r"^https?://[^\s?#]+$", description="the REST catalog's address, without `/v1`")
    warehouse: str | None = Field(None, min_length=1, description="the catalog's own name of the warehouse")
    token_file: str | None = Field(None, description="a file with the bearer token; read again when it is refused")
    timeout_seconds: float = Field(5, gt=0, le=60, description="for one answer of the catalog")
    ttl_seconds: float = Field(5, ge=0, le=3600, description="how long a view's properties are taken as read")


class WarehouseSettings(Section):
    """Description of a warehouse."""

    project: str | None = Field(None, description="the project it belongs to")
    default_ref: str | None = Field(None, min_length=1, description="the ref of resources that name none")
    kind: Literal["iceberg", "nessie", "hive"] = Field("iceberg", description="the catalog behind it")
    through_views: ThroughViews | None = Field(
        None, description="`row_access.through_views` of this warehouse, if another"
    )
    catalog: CatalogSettings | None = Field(None, description="where views are read that a request does not bring")
