"""Keys of `store`: the database of the facts."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from pdp.config.identity import grantee_id
from pdp.config.section import SecretAddress, Section


class StoreSettings(Section):
    """Storage of grants, memberships and registered objects."""

    url: SecretAddress = Field(
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
