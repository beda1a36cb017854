"""Messages between the service and its rewriting processes. Needs no parser of SQL.

Both sides are one version of this package. A message is the length of its bytes (4 bytes, big-endian) and MessagePack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from pdp.facts.objects import FoldedName, RowPolicy

DIALECTS: Final = ("bigquery", "trino", "spark", "duckdb")
LONGEST_SQL: Final = 100_000
"""Characters of a statement or filter."""
LONGEST_MESSAGE: Final = 256 << 20
"""Bytes of the longest message: the policies of all files."""
LENGTH_BYTES: Final = 4


class StatementUser(msgspec.Struct, frozen=True, omit_defaults=True):
    """Principal that a statement runs for. `member_of` has the ids of all roles of the principal.

    `roles` are the roles for permits of CEL. `unknown` names unknown evidence.
    """

    type: str
    name: str
    groups: tuple[str, ...] = ()
    member_of: tuple[str, ...] = ()
    attributes: str = "{}"
    unknown: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


class SuppliedView(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Text of a view, new names of columns if any, and the IAM member that the view runs for; empty for the reader."""

    sql: str
    columns: tuple[str, ...] = ()
    dialect: str = ""
    owner: str = ""


class SuppliedTable(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Columns of a table, with their types."""

    columns: Mapping[str, str] = {}


class SuppliedCatalog(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Tables and views that a request describes. `default` is the catalog and schema of short names."""

    default: tuple[str, ...] = ()
    tables: Mapping[str, SuppliedTable] = {}
    views: Mapping[str, SuppliedView] = {}


class KnownRelation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Table or view of an Iceberg REST catalog. The warehouse is the first part of the name.

    `columns` are names and types; a type is empty if dialects name the type differently. `texts` are dialects and texts
    of a view. `default` is the catalog and schema of short names in these; an empty catalog is that of the view. With a
    `problem`, statements on the relation are refused.
    """

    name: tuple[str, ...]
    columns: tuple[tuple[str, str], ...] = ()
    is_view: bool = False
    texts: tuple[tuple[str, str], ...] = ()
    default: tuple[str, ...] = ()
    problem: str = ""


class PolicyState(msgspec.Struct, frozen=True, tag="setup"):
    """Policies and settings of all following requests. `digest` names them.

    `documents` are policy files, `rules` the policies and masks of the store. `template`, `provider`, `claim` and
    `service_accounts` spell principals as members. `through` is by warehouse, with the general mode under an empty
    name. `catalogs` has the warehouse of each catalog of Trino, empty for a catalog on another ref. `warehouses` are
    those of the configuration. `known` has the encoded relations of Iceberg REST catalogs. `without_barrier` are
    dialects.
    """

    digest: str
    documents: list[Any]
    protected: tuple[FoldedName, ...]
    template: str
    provider: str
    through: Mapping[str, Literal["owner", "caller", "both"]]
    catalogs: Mapping[str, str] = {}
    rules: tuple[RowPolicy, ...] = ()
    claim: str = ""
    service_accounts: tuple[str, ...] = ()
    warehouses: tuple[str, ...] = ()
    known: tuple[bytes, ...] = ()
    without_barrier: tuple[str, ...] = ()


class RewriteCall(msgspec.Struct, frozen=True, tag="rewrite", omit_defaults=True):
    """Statement to rewrite. `policies` are those that the reader may see, if the statement can ask for them."""

    sql: str
    dialect: str
    reader: StatementUser
    catalog: SuppliedCatalog | None = None
    policies: tuple[RowPolicy, ...] | None = None


class FilterCall(msgspec.Struct, frozen=True, tag="filter", omit_defaults=True):
    """Question for the visible part of one relation, with the parts of the full name, as SQL."""

    table: tuple[str, ...]
    dialect: str
    reader: StatementUser
    catalog: SuppliedCatalog | None = None


class RelationUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Use of one relation. `role` is read, write, create, replace or copy; `owner` is the IAM member behind a view.

    `policies` and `masks` have the ids of the policies and masks that hold for the reader. `spellings` are other full
    names that the engine may look up, for a relation of a catalog. `author` is the principal who wrote a filter that
    reads the relation, and `person` acted as this principal, a role. `makes_view`: a view is made at the name, whatever
    stands there. `ref` is the branch or tag whose rows a statement asks for, or DETACHED for a snapshot.
    """

    name: tuple[str, ...]
    role: str
    is_view: bool = False
    owner: str = ""
    policies: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    author: str = ""
    spellings: tuple[tuple[str, ...], ...] = ()
    person: str = ""
    makes_view: bool = False
    ref: str = ""


class RewriteReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer of a process: a statement, the visible part of a relation, or a refusal, with the uses of relations.

    A refusal has the uses that were found before.
    """

    sql: str = ""
    changed: bool = False
    uses: tuple[RelationUse, ...] = ()
    rows: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    """Masked columns and their expressions."""
    error: str = ""
    """Code of a refusal; empty for an answer."""
    message: str = ""
    wants_policies: bool = False
    """True if the statement reads row access policies and the call brought none."""


Call = RewriteCall | FilterCall
_ENCODER: Final = msgspec.msgpack.Encoder()
KNOWN: Final = msgspec.msgpack.Decoder(tuple[KnownRelation, ...])
CALLS: Final = msgspec.msgpack.Decoder(PolicyState | RewriteCall | FilterCall)
REPLIES: Final = msgspec.msgpack.Decoder(RewriteReply)


def framed(message: PolicyState | Call | RewriteReply) -> bytes:
    """Return the bytes of a message with their length before them."""
    body = _ENCODER.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body
