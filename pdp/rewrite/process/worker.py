"""Process that rewrites statements for the service. The service kills a process that works on one text for too long.

Reads messages from its standard input and answers each on its standard output, until the input ends.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import BinaryIO, Final

import msgspec

from pdp.engines.row_access.members import Members
from pdp.engines.row_access.policies import Document, TableBody
from pdp.engines.row_access.policy_set import PolicySet, StoredPolicySets
from pdp.facts.objects import RowPolicyPut
from pdp.facts.snapshot import Facts
from pdp.model.bounded_cache import BoundedCache
from pdp.model.question import Principal
from pdp.rewrite.catalog import Catalog, Relation, View, catalog_of, containers_of, policy_set_of, renamed_key
from pdp.rewrite.errors import FILTER_INVALID, UNKNOWN_RELATION, PoliciesNeeded, RewriteRefused
from pdp.rewrite.guards import BARRIERS, DuckdbJudge
from pdp.rewrite.identity import CallerIdentity, PrincipalCaller
from pdp.rewrite.process.messages import (
    CALLS,
    KNOWN,
    LENGTH_BYTES,
    Call,
    FilterCall,
    KnownRelation,
    PolicyState,
    RelationUse,
    RewriteCall,
    RewriteReply,
    StatementUser,
    SuppliedCatalog,
    framed,
)
from pdp.rewrite.rewriter import Rewriter
from pdp.rewrite.visible_relations import Through

_MOST_MEMORY: Final = 3 << 30
"""Bytes of address space of the process."""
_NICENESS: Final = 5
_MOST_SECONDS: Final = 120
"""Time for one call, if no service is left to end this process."""
_DEFAULTS: Final = 16
"""Rewriters that are remembered, one for each default catalog and schema."""
_TRINO: Final = "trino"


class DialectRelations:
    """Relations of Iceberg REST catalogs with the texts of views in a dialect: a view can have one for each."""

    def __init__(self, known: Iterable[KnownRelation]) -> None:
        self._tables: list[Relation] = []
        self._views: list[KnownRelation] = []
        for relation in known:
            if relation.is_view or relation.problem:
                self._views.append(relation)
            else:
                columns = {name.lower(): type for name, type in relation.columns}
                spelled = tuple(name for name, _ in relation.columns)
                self._tables.append(Relation(relation.name, columns, spelled=spelled, is_listed=True))

    def __bool__(self) -> bool:
        """Tell whether there is any relation."""
        return bool(self._tables or self._views)

    def of(self, dialect: str) -> Iterator[Relation]:
        """Yield all relations. A view without a text in the dialect has that of another one, which is refused."""
        yield from self._tables
        for relation in self._views:
            yield Relation(relation.name, view=_view(relation, dialect), is_listed=True)


def _view(relation: KnownRelation, dialect: str) -> View:
    if relation.problem:
        return View("", problem=relation.problem)
    texts = dict(relation.texts)
    written = dialect if dialect in texts else next(iter(texts))
    columns = tuple(name for name, _ in relation.columns)
    return View(texts[written], columns, written, default=relation.default)


class _Names:
    """Catalog, policies and rewriters under the names of one dialect. `warehouses` has the warehouse of a catalog."""

    def __init__(
        self, catalog: Catalog, policies: PolicySet, through: Through, warehouses: Mapping[str, str],
        without_barrier: Collection[str] = (), judge: DuckdbJudge | None = None,
    ) -> None:  # fmt: skip
        self.policies, self._judge = policies, judge
        self._barriers = [dialect for dialect in BARRIERS if dialect not in without_barrier]
        self._catalog, self._through, self._warehouses = catalog, through, warehouses
        self._own = Rewriter(catalog, through, barriers=self._barriers, judge=judge)
        self._by_default: BoundedCache[tuple[str, ...], Rewriter] = BoundedCache(_DEFAULTS)

    def rewriter(self, supplied: SuppliedCatalog | None) -> Rewriter:
        """Return the rewriter for a request, which may bring tables, views and a default."""
        if supplied is None:
            return self._own
        if supplied.tables or supplied.views:
            views = {name: msgspec.to_builtins(view) for name, view in supplied.views.items()}
            tables = {name: TableBody(table.columns) for name, table in supplied.tables.items()}
            document = Document(supplied.default or self._catalog.default, tables, views)
            return self._make(self._catalog.extended(catalog_of([document]), supplied.default))
        found = self._by_default.get(supplied.default)
        if found is None:
            rewriter = self._make(self._catalog.extended((), supplied.default))
            found = self._by_default.keep(supplied.default, rewriter)
        return found

    def _make(self, catalog: Catalog) -> Rewriter:
        qualifies = catalog.default != self._catalog.default
        return Rewriter(catalog, self._through, qualifies=qualifies, barriers=self._barriers, judge=self._judge)

    def of_warehouse(self, name: Sequence[str]) -> tuple[str, ...]:
        """Return a full name with the warehouse in place of the catalog; raise RewriteRefused for another ref."""
        container = self._catalog.containers.spell(name[0])
        warehouse = self._warehouses.get(container, container)
        if not warehouse:
            raise RewriteRefused(UNKNOWN_RELATION, f"the catalog `{name[0]}` is not on the default ref")
        return (warehouse, *name[1:])

    def placed(self, use: RelationUse) -> RelationUse:
        """Return a use with the warehouse in place of the catalog; raise RewriteRefused for another ref."""
        spellings = tuple(map(self.of_warehouse, use.spellings))
        return msgspec.structs.replace(use, name=self.of_warehouse(use.name), spellings=spellings)

    def of_catalogs(self, name: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the full names with a catalog in place of the warehouse: one for each catalog."""
        found = [catalog for catalog, warehouse in self._warehouses.items() if warehouse == name[0]]
        return [(catalog, *name[1:]) for catalog in found or name[:1]]


class RewriteProcess:
    """Answers of one process by the newest setup."""

    def __init__(self, setup: PolicyState) -> None:
        documents = [msgspec.convert(document, Document) for document in setup.documents]
        containers = containers_of(documents, (*setup.warehouses, *(rule.table[0] for rule in setup.rules)))
        self._members = Members(setup.template, setup.provider, setup.claim, setup.service_accounts)
        facts = Facts.empty().apply(1, map(RowPolicyPut, setup.rules))
        self._catalog = catalog_of(documents, containers)
        self._relations = DialectRelations(relation for body in setup.known for relation in KNOWN.decode(body))
        self._policies = StoredPolicySets(policy_set_of(documents, setup.protected, containers)).at(facts)
        self._setup = setup
        self._by_dialect: dict[str, _Names] = {}

    def _names(self, dialect: str) -> _Names:
        """Return the names of a dialect. Trino has catalogs of its own, and views of a catalog texts by dialect."""
        kind = dialect if self._relations or dialect == _TRINO or self._policies.has_texts else ""
        found = self._by_dialect.get(kind)
        if found is None:
            make = self._trino_names if dialect == _TRINO and self._setup.catalogs else self._plain_names
            found = self._by_dialect[kind] = make(
                self._catalog.extended(self._relations.of(dialect)), self._policies.written_for(dialect)
            )
        return found

    def _plain_names(self, catalog: Catalog, policies: PolicySet) -> _Names:
        through = Through(self._setup.through.get("", "owner"), self._setup.through, self._members)
        return _Names(catalog, policies, through, {}, self._setup.without_barrier, _judge())

    def _trino_names(self, catalog: Catalog, policies: PolicySet) -> _Names:
        setup = self._setup
        catalogs: dict[str, list[str]] = {}
        for name, warehouse in setup.catalogs.items():
            catalogs.setdefault(warehouse, []).append(name)
        modes = {name: setup.through[at] for name, at in setup.catalogs.items() if at in setup.through}
        others = {name: mode for name, mode in setup.through.items() if name not in setup.catalogs}
        through = Through(setup.through.get("", "owner"), others | modes, self._members)
        return _Names(
            catalog.renamed(catalogs),
            policies.renamed(partial(renamed_key, catalogs=catalogs)),
            through,
            setup.catalogs,
        )

    def answer(self, call: Call) -> RewriteReply:
        """Return the answer to a call; a refusal is an answer, too."""
        names: _Names | None = None
        try:
            names = self._names(call.dialect)
            reader = self._reader(call.reader)
            rewriter = names.rewriter(call.catalog)
            return (
                _rewrite(rewriter, call, reader, names)
                if isinstance(call, RewriteCall)
                else _filter(rewriter, call, reader, names)
            )
        except RewriteRefused as error:
            return _refusal(error, names)

    def _reader(self, reader: StatementUser) -> CallerIdentity:
        principal = Principal(
            reader.type, reader.name, reader.roles, reader.groups, reader.attributes, reader.member_of,
            unknown=reader.unknown,
        )  # fmt: skip
        return PrincipalCaller(principal, self._members)


@cache
def _judge() -> DuckdbJudge | None:
    """Return the judge of this process; None without DuckDB."""
    return DuckdbJudge.start()


def _refusal(error: RewriteRefused, names: _Names | None) -> RewriteReply:
    """Return a refusal with the uses that were found before; a use on another ref is refused first."""
    try:
        uses = tuple(map(names.placed, error.uses)) if names else ()
    except RewriteRefused as other:
        return RewriteReply(error=other.rap, message=str(other))
    return RewriteReply(
        error=error.rap, message=str(error), uses=uses, wants_policies=isinstance(error, PoliciesNeeded)
    )


def _rewrite(rewriter: Rewriter, call: RewriteCall, reader: CallerIdentity, names: _Names) -> RewriteReply:
    listed = None
    if call.policies is not None:
        listed = [
            msgspec.structs.replace(row, table=name) for row in call.policies for name in names.of_catalogs(row.table)
        ]
    found = rewriter.examine(call.sql, call.dialect, reader, names.policies, listed)
    return RewriteReply(found.sql, found.changed, tuple(names.placed(use) for use in found.uses))


def _filter(rewriter: Rewriter, call: FilterCall, reader: CallerIdentity, names: _Names) -> RewriteReply:
    question = names.of_catalogs(call.table)[0], call.dialect, reader, names.policies
    uses = rewriter.uses_behind(*question)
    try:
        rows, masked = rewriter.filter(*question)
    except RewriteRefused as error:
        error.uses = uses
        raise
    return RewriteReply(uses=tuple(map(names.placed, uses)), rows=rows, columns=tuple(masked))


def _read(source: BinaryIO) -> bytes:
    """Return the next message; empty at the end of the input."""
    head = source.read(LENGTH_BYTES)
    return source.read(int.from_bytes(head, "big")) if len(head) == LENGTH_BYTES else b""


def _limit() -> None:
    """Bound the memory of this process, and let the service go first on a busy machine."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICENESS)


def main() -> None:
    """Answer messages until the input ends."""
    _limit()
    # DuckDB would load pandas, where it is installed, with the first text: 85 MB and 0.3 s of the time of that text
    sys.modules["pandas"] = None  # type: ignore[assignment]  # documented: an import of the name then fails
    source, target = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing but answers goes to the service
    rewriting: RewriteProcess | None = None
    while body := _read(source):
        message = CALLS.decode(body)
        if isinstance(message, PolicyState):
            rewriting, reply = _set_up(message)
        else:
            signal.alarm(_MOST_SECONDS)
            reply = rewriting.answer(message) if rewriting else _UNUSABLE
            signal.alarm(0)
        target.write(framed(reply))
        target.flush()


_UNUSABLE: Final = RewriteReply(error=FILTER_INVALID, message="the policies cannot be used for rewriting")


def _set_up(setup: PolicyState) -> tuple[RewriteProcess | None, RewriteReply]:
    """Return the answers by a setup; None for policies that cannot be used, so that every call is refused."""
    try:
        return RewriteProcess(setup), RewriteReply()
    except RewriteRefused as error:
        return None, RewriteReply(error=error.rap, message=str(error))


if __name__ == "__main__":
    main()
