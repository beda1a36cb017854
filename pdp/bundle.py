"""A bundle: everything that decides, swapped whole: engines, authorities, warehouses and the settings that matter.

Immutable. Knows engines by their protocol alone; which classes they are is the composition root's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal

import msgspec

from pdp.config import Trino, Warehouse
from pdp.engines.engine import Engine


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
    warehouses: Mapping[str, Warehouse]
    trino: Trino
    text: bytes
    digest: str
    warnings: tuple[str, ...] = ()

    def authority(self, warehouse: str) -> Authority:
        """Who decides for a warehouse; what belongs to none is the default authority's."""
        return self.authorities.get(warehouse, self.default)

    def default_ref(self, warehouse: str) -> str | None:
        """The ref of resources in a warehouse that name none, if it is known."""
        known = self.warehouses.get(warehouse)
        return known.default_ref if known else None


def source_text(sources: Mapping[str, Any]) -> tuple[bytes, str]:
    """Sources in their one canonical form, and the sixteen hex digits that name it in revisions and records."""
    text = msgspec.json.encode(sources, order="sorted")
    return text, sha256(text).hexdigest()[:16]
