"""Keys of `audit.sample_allows`: rules for leaving out records of permitted requests."""

from __future__ import annotations

from pydantic import Field

from pdp.config.section import Section


class SampleSettings(Section):
    """Rule for records of permitted requests. A pattern matches whole texts; `*` stands for any characters."""

    rate: float = Field(
        gt=0,
        le=1,
        description="the share of the requests that get a record; of several matching rules the highest rate",
    )
    surfaces: tuple[str, ...] = Field(("*",), min_length=1, description="surfaces as in records, such as `trino`")
    actions: tuple[str, ...] = Field(("*",), min_length=1, description="actions, such as `trino:FilterTables`")
    principals: tuple[str, ...] = Field(("*",), min_length=1, description="principals, such as `user:oidc~etl-*`")
