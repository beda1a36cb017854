"""Keys of `trino`: how names and operations of Trino map to warehouses, principals and roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from pdp.config.section import Section, defaults


class TrinoCatalogSettings(Section):
    """Warehouse behind a Trino catalog."""

    warehouse: str
    ref: str | None = Field(None, min_length=1, description="the ref it reads; the warehouse's default otherwise")
    materialized_views: Literal["unrestricted", "denied", "allowed"] = Field(
        "unrestricted",
        description="creating and refreshing is denied where the warehouse has any row policy or mask, always denied, "
        "or allowed, because policies on the view's own name protect it",
    )


class TrinoFunctionSettings(Section):
    """Functions that need no check on their schema."""

    allow: tuple[str, ...] = Field((), description="functions in `system` schemas, as catalog.schema.function")
    builtin_catalogs: tuple[str, ...] = Field((), description="catalogs that `sql.path` names: all functions allowed")


class TrinoProcedureSettings(Section):
    """Procedures that every user may call, and table procedures that need the right to write alone."""

    allow: tuple[str, ...] = Field(
        (), description="procedures as catalog.schema.procedure; table procedures by name alone, in every catalog"
    )


class TrinoSessionPropertySettings(Section):
    """Session properties that no user may set."""

    deny: tuple[str, ...] = Field((), description="`name` of a system property, or `catalog.name`")


class TrinoExecuteQuerySettings(Section):
    """Users that may run queries."""

    allow: tuple[str, ...] = Field(("*",), description="Trino users; `*` is everyone with a name")


class TrinoSettings(Section):
    """Interpretation of Trino's names and operations."""

    catalogs: Mapping[str, TrinoCatalogSettings] = Field(
        default_factory=dict, description="Trino catalog -> warehouse and ref"
    )
    user_prefix: str = Field("oidc~", pattern=r"^[a-z0-9-]+~$", description="put before Trino's user names")
    admin_users: tuple[str, ...] = Field((), description="Trino users with all administrative operations")
    impersonation: Mapping[str, tuple[str, ...]] = Field(default_factory=dict, description="who may become whom")
    groups: Mapping[str, str] = Field(default_factory=dict, description="Trino group -> role id")
    unknown: tuple[Literal["roles", "attributes"], ...] = Field(
        (), description="evidence that Trino's users may have and Trino does not send: what reads it raises"
    )
    unmanaged_catalogs: Literal["deny", "allow"] = Field("deny", description="catalogs that no warehouse stands behind")
    functions: TrinoFunctionSettings = defaults(TrinoFunctionSettings)
    procedures: TrinoProcedureSettings = defaults(TrinoProcedureSettings)
    session_properties: TrinoSessionPropertySettings = defaults(TrinoSessionPropertySettings)
    execute_query: TrinoExecuteQuerySettings = defaults(TrinoExecuteQuerySettings)
    external_locations: Literal["deny", "allow"] = Field(
        "deny", description="new tables over existing files, by properties such as Hive's `external_location`"
    )
    create_over_listed: Literal["allow", "deny"] = Field(
        "allow", description="creation over names that only the catalog knows; `deny` asks `warehouses.*.catalog`"
    )
    on_internal_failure: Literal["deny", "error"] = Field(
        "deny", description="what Trino gets where no answer can be made: a denial, or an error that its user sees"
    )
