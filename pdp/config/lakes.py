"""Keys of `lakes`: the Iceberg catalogs that `pdp pipeline` writes to and reads from."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from pdp.config.section import Section


class LakeSettings(Section):
    """Iceberg REST catalog of an audit lake. docs/pipeline.md describes the tables."""

    uri: str = Field(pattern=r"^https?://[^\s?#]+$", description="the REST catalog's address, without `/v1`")
    warehouse: str | None = Field(None, description="the catalog's own name of the warehouse")
    namespace: str = Field("pdp", pattern=r"^[A-Za-z][A-Za-z0-9_]*$", description="the namespace that holds the tables")
    token: str | None = Field(
        None, description="bearer token for the catalog; `token_file` in its place names a file that holds it"
    )
    credential: str | None = Field(
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
