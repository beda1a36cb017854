"""Keys of `store` and `audit`: the database of the facts, and the folders of audit records."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from pdp.config.identity import grantee_id
from pdp.config.section import Section


class StoreSettings(Section):
    """Storage of grants, memberships and registered objects."""

    url: str = Field(
        "sqlite:///pdp.db",
        pattern=r"^(file:|sqlite:///|postgresql://|postgres://).+",
        description="`sqlite:///` and a path, `postgresql://...`, or `file:` and the path of a world file, which is "
        "read once at start and takes no writes; `url_file` in its place names a file that holds the address",
    )
    seed: str | None = Field(None, description="a world file that goes into a database when it is made")
    max_staleness_seconds: float = Field(
        300, gt=0, description="grants permit nothing once the database has been silent for so long"
    )
    wait_seconds: float = Field(2, gt=0, le=60, description="how long a check that demands a revision waits for it")
    bootstrap_admins: tuple[Annotated[str, AfterValidator(grantee_id)], ...] = Field(
        (), description="principals that hold server `operator` without a stored grant"
    )

    def world_file(self) -> str | None:
        """Return the path of the world file that holds the facts; None if a database holds the facts."""
        return self.url.removeprefix("file:") if self.url.startswith("file:") else None


class FileSinkSettings(Section):
    """Folder of JSON lines files, one file per start of the service."""

    file: str = Field(description="the folder")


class AuditSettings(Section):
    """Destinations of the record of every request."""

    sinks: tuple[FileSinkSettings, ...] = Field(
        (FileSinkSettings(file="audit/"),),
        max_length=1,
        description="folders that receive JSON lines; none writes no audit",
    )
    mask: tuple[str, ...] = Field(
        (),
        description="words; a value of properties, attributes or arguments is masked if its key contains one, as with "
        "`password`, `secret`, `token`, `key` and `credential`",
    )
    max_waiting_bytes: int = Field(
        268_435_456, ge=1 << 20, description="bytes of records that may wait for the disk; beyond it requests get 503"
    )
