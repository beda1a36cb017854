"""A bundle: everything that decides, swapped whole: engines, authorities, warehouses and the settings that matter.

Immutable. Knows engines by their protocol alone; which classes they are is the composition root's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal

import msgspec

from pdp.config.trino import TrinoSettings
from pdp.config.warehouses import WarehouseSettings
from pdp.engines.engine import Engine
from pdp.engines.rowaccess.engine import RowAccess
from pdp.model.checks import Principal


class Authority(msgspec.Struct, frozen=True):
    """The engines that decide for some warehouses, in order, and how their verdicts combine."""

    name: str
    engines: tuple[Engine, ...]
    combine: Literal["any", "all"]


class Bundle(msgspec.Struct, frozen=True):
    """One set of policies. `forbids` run in every authority; `text` is all it was built from, as canonical JSON."""

    authorities: Mapping[str, Authority]
    default: Authority
    forbids: tuple[Engine, ...]
    warehouses: Mapping[str, WarehouseSettings]
    trino: TrinoSettings
    row_access: RowAccess
    text: bytes
    digest: str
    warnings: tuple[str, ...] = ()
    role_maps: Mapping[str, Mapping[str, str]] = {}
    """Idp -> token role -> the id of the role that it stands for."""
    instance_admins: frozenset[str] = frozenset()
    """Ids of users who pass every control-plane action."""

    def authority(self, warehouse: str) -> Authority:
        """Who decides for a warehouse; what belongs to none is the default authority's."""
        return self.authorities.get(warehouse, self.default)

    def with_memberships(self, principal: Principal) -> Principal:
        """A principal with the roles that those of its token stand for, by its provider's map.

        Whose memberships were made out already has no token: what its roles are called is no token's word.
        """
        mapped = self.role_maps.get(principal.name.partition("~")[0]) if principal.roles else None
        if not mapped or principal.type != "user" or principal.member_of:
            return principal
        roles = (mapped[role] for role in principal.roles if role in mapped)
        return msgspec.structs.replace(principal, member_of=tuple(sorted({*principal.member_of, *roles})))

    def default_ref(self, warehouse: str) -> str | None:
        """The ref of resources in a warehouse that name none, if it is known."""
        known = self.warehouses.get(warehouse)
        return known.default_ref if known else None


def source_text(sources: Mapping[str, Any]) -> tuple[bytes, str]:
    """Sources in their one canonical form, and the sixteen hex digits that name it in revisions and records."""
    text = msgspec.json.encode(sources, order="sorted")
    return text, sha256(text).hexdigest()[:16]
