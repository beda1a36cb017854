"""Keys of `authorities`, `warehouses`, `lakes` and of dialects: the engines that decide, and the catalogs behind names.

Names and operations of dialects map to warehouses, principals and roles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal, Self

from pydantic import Field, model_validator

from pdp.config.policies import ThroughViews
from pdp.config.section import SecretText, Section, defaults
from pdp.config.server import RemoteSection
from pdp.errors import InvalidArgument

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


class RelationSettings(Section):
    """Tables and views of an Iceberg REST catalog as the rewriter of SQL knows them."""

    refresh_seconds: float = Field(
        60, ge=1, le=86_400, description="how often the names of all tables and views are read"
    )
    max_stale_seconds: float = Field(
        300, ge=1, le=86_400, description="after this time without an answer, statements on the warehouse are refused"
    )
    max_relations: int = Field(10_000, ge=1, le=200_000, description="the most tables and views; more are not read")


NAMESPACE_SEPARATOR: Final = "\x1f"
"""What stands between the parts of a namespace, unless the catalog says otherwise."""


class CatalogSettings(RemoteSection):
    """Iceberg REST catalog of a warehouse: view properties that a load leaves out, and relations for the rewriter."""

    uri: str = Field(
        pattern=r"^https?://[^\s?#@/]+(/[^\s?#]*)?$", description="the REST catalog's address, without `/v1`"
    )
    warehouse: str | None = Field(None, min_length=1, description="the catalog's own name of the warehouse")
    prefix: str | None = Field(
        None,
        pattern=r"^[^\s?#.][^\s?#]*$",
        description="the prefix of paths; by default that of the catalog's configuration",
    )
    token: SecretText | None = Field(
        None, pattern=r"^[!-~]+$", description="the bearer token, for the environment; a file is better"
    )
    token_file: str | None = Field(None, description="a file with the bearer token; read again when it is refused")
    timeout_seconds: float = Field(5, gt=0, le=60, description="for one answer of the catalog")
    ttl_seconds: float = Field(
        5, ge=0, le=3600, description="how long a view's properties, or a relation of a statement, are taken as read"
    )
    relations: RelationSettings | None = Field(
        None, description="read tables and views for the rewriter of SQL; `{}` for the defaults"
    )

    @model_validator(mode="after")
    def _refuse_two_tokens(self) -> Self:
        if self.token is not None and self.token_file is not None:
            raise ValueError("`token` and `token_file` cannot both be set")
        return self


class WarehouseSettings(Section):
    """Description of a warehouse."""

    project: str | None = Field(None, description="the project it belongs to")
    default_ref: str | None = Field(None, min_length=1, description="the ref of resources that name none")
    refs: Literal["none"] | None = Field(
        None, description="`none` for a catalog without branches and tags: rules see the ref `''`"
    )
    kind: Literal["iceberg", "nessie", "hive"] = Field("iceberg", description="the catalog behind it")
    namespace_separator: str = Field(
        NAMESPACE_SEPARATOR,
        pattern=r"^[^ ,\t\r\n]{1,8}$",
        description="the catalog's `namespace-separator`, decoded: what stands between the parts of a namespace in "
        "`referencedBy` and in paths of the catalog",
    )
    through_views: ThroughViews | None = Field(
        None, description="`row_access.through_views` of this warehouse, if another"
    )
    catalog: CatalogSettings | None = Field(None, description="the Iceberg REST catalog of the warehouse")

    @model_validator(mode="after")
    def _refuse_a_ref_of_none(self) -> Self:
        if self.refs and self.default_ref:
            raise ValueError("`refs: none` and `default_ref` cannot both be set")
        return self


class LakeSettings(Section):
    """Iceberg REST catalog of an audit lake. docs/pipeline.md describes the tables."""

    uri: str = Field(pattern=r"^https?://[^\s?#]+$", description="the REST catalog's address, without `/v1`")
    warehouse: str | None = Field(None, description="the catalog's own name of the warehouse")
    namespace: str = Field("pdp", pattern=r"^[A-Za-z][A-Za-z0-9_]*$", description="the namespace that holds the tables")
    token: SecretText | None = Field(
        None, description="bearer token for the catalog; `token_file` in its place names a file that holds it"
    )
    credential: SecretText | None = Field(
        None,
        description="`<client id>:<secret>` for a token by OAuth 2; `credential_file` in its place names a file that "
        "holds it",
    )
    properties: Mapping[str, str] = Field(
        {}, description="further properties of Iceberg's catalog, such as `oauth2-server-uri`, `scope`, `s3.endpoint`"
    )
    spark: Mapping[str, str] = Field(
        {}, description="properties of Spark, such as `spark.jars.packages` and `spark.hadoop.fs.s3a.endpoint`"
    )


class TrinoCatalogSettings(Section):
    """Warehouse behind a Trino catalog."""

    warehouse: str
    ref: str | None = Field(None, min_length=1, description="the ref it reads; the warehouse's default otherwise")
    materialized_views: Literal["unrestricted", "denied", "allowed"] = Field(
        "unrestricted",
        description="creating and refreshing is denied where the warehouse has any row policy or mask, always denied, "
        "or allowed, because policies on the view's own name protect it",
    )


class PolarisSettings(Section):
    """Interpretation of Apache Polaris's names and operations."""

    catalogs: Mapping[str, str] = Field(
        default_factory=dict, description="Polaris catalog -> warehouse; any other catalog is denied"
    )
    realms: tuple[str, ...] = Field(
        (), description="realms that may ask; any other is denied, and so is a request without one beside several"
    )
    user_prefix: str = Field("oidc~", pattern=r"^[a-z0-9-]+~$", description="put before Polaris's principals")
    roles: Mapping[str, str] = Field(
        default_factory=dict, description="principal role of Polaris -> role id; any other role counts for nothing"
    )
    admins: tuple[str, ...] = Field(
        (), description="Polaris principals that may use the operations without a check of a catalog"
    )


class StarrocksSettings(Section):
    """Interpretation of StarRocks's names."""

    catalogs: Mapping[str, str] = Field(
        default_factory=dict, description="StarRocks catalog -> warehouse; any other catalog is denied"
    )
    user_prefix: str = Field("oidc~", pattern=r"^[a-z0-9-]+~$", description="put before StarRocks's user names")
    groups: Mapping[str, str] = Field(
        default_factory=dict, description="StarRocks group -> role id; with none, roles of users are unknown"
    )


class RangerSettings(Section):
    """Interpretation of names in Ranger's PDP protocol."""

    services: Mapping[str, str] = Field(
        default_factory=dict, description="name of a service of Hive -> warehouse; any other service is denied"
    )
    user_prefix: str = Field("oidc~", pattern=r"^[a-z0-9-]+~$", description="put before Ranger's user names")


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


class LakekeeperChecksSettings(Section):
    """Checks over Lakekeeper's API."""

    warehouses: Mapping[str, str] = Field(
        default_factory=dict,
        description="name or id of a warehouse in requests -> warehouse; with none, all of `warehouses` by their names",
    )


ID_OF_TEMPLATE: Final = "{id}"
"""Place of an id in a template."""
_BASE_URL: Final = re.compile(r"(?!.*/\.\.?(?:/|\Z))https://[A-Za-z0-9.\-\[\]:]+(/[A-Za-z0-9._~/-]*)?")


class AuthzenSettings(Section):
    """Questions over AuthZEN's API."""

    base_url: str | None = Field(
        None, description="address in the metadata, as clients know it; without one, no metadata"
    )
    subjects: Mapping[str, str] = Field(
        default_factory=dict,
        description="type of a subject -> principal with a place for the id, such as `user:oidc~{id}`; with none, "
        "`user` and `role`",
    )
    resources: Mapping[str, str] = Field(
        default_factory=dict,
        description="type of a resource -> reference with a place for the id, such as `table:lake/records/{id}`; with "
        "none, all types of the service",
    )
    actions: Mapping[str, str] = Field(
        default_factory=dict, description="name of an action -> action; with none, all actions by their own names"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.base_url and not _BASE_URL.fullmatch(self.base_url):
            raise ValueError("`base_url` must be https, with a plain path and nothing behind it")
        if self.subjects or self.resources:
            from pdp.model import references  # noqa: PLC0415  most configurations have no template

            for type, text in self.subjects.items():
                _check_template(f"subjects.{type}", text, lambda filled: references.parse_principal(filled).id)
            for type, text in self.resources.items():
                _check_template(f"resources.{type}", text, references.canonical_reference)
        return self


def _check_template(field: str, text: str, canonical: Callable[[str], str]) -> None:
    """Raise ValueError for a template without one place for an id, or with another than the canonical encoding."""
    if text.count(ID_OF_TEMPLATE) != 1 or ID_OF_TEMPLATE in text.partition(":")[0]:
        raise ValueError(f"`{field}`: `{text}` has not one `{ID_OF_TEMPLATE}` behind the type")
    filled = text.replace(ID_OF_TEMPLATE, "x")
    try:
        wanted = canonical(filled)
    except InvalidArgument as error:
        raise ValueError(f"`{field}`: {error}") from None
    if wanted != filled:
        raise ValueError(f"`{field}`: encode no character that a reference may have: `{wanted}`")
