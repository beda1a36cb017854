"""Relations of the Iceberg REST catalogs of warehouses: read ahead, kept fresh, and confirmed before an answer leaves.

A pass reads all names, which tell tables from views, and the relations that are new.
A statement is rewritten by the relations at hand. Before the answer leaves, each relation of the statement is read
again, unless that was done within `ttl_seconds`. If a relation is another one by then, the statement is rewritten
again. So no table can become a view behind a rewritten statement for longer than `ttl_seconds`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple, get_args

import msgspec
import structlog

from pdp.config.warehouses import CatalogSettings, RelationSettings
from pdp.errors import Unavailable
from pdp.model.bounded_cache import BoundedCache
from pdp.rewrite.iceberg.client import ObjectUnreadable, RestCatalogClient, in_parallel
from pdp.rewrite.iceberg.metadata import Item, RelationKind, RelationListing, relation_of, unusable_relation
from pdp.rewrite.process.messages import KnownRelation
from pdp.telemetry import Telemetry

_KINDS: Final[tuple[RelationKind, ...]] = get_args(RelationKind)
_AT_ONCE: Final = 8
"""Questions of one pass that are open at the same time."""
_MOST_BYTES: Final = 64 << 20
"""Bytes of all relations of a catalog, encoded for the processes that rewrite."""
_MOST_ABSENT: Final = 10_000
"""Names that the catalog did not have, each with the time of the answer."""
_REREAD_SECONDS: Final = 3600.0
"""Time after which a pass reads a known relation again, if no statement has done so."""
_RETRY_SECONDS: Final = 5.0
"""Longest pause after a pass that failed."""
log = structlog.get_logger()


class KnownRelations(NamedTuple):
    """Encoded relations of one catalog, with their digest."""

    digest: str = ""
    body: bytes = b""


class _Entry(NamedTuple):
    """Relation as the catalog described it. `read` is in seconds of the monotonic clock."""

    relation: KnownRelation
    etag: str
    read: float


class CatalogRelations:
    """Relations of the catalog of one warehouse. Use on one event loop."""

    def __init__(self, warehouse: str, client: RestCatalogClient, rule: CatalogSettings, telemetry: Telemetry) -> None:
        self.warehouse = warehouse
        self.known = KnownRelations()
        self._client, self._telemetry = client, telemetry
        self._rule, self._ttl = rule.relations or RelationSettings(), rule.ttl_seconds
        self._entries: Mapping[Item, _Entry] = {}
        self._read = float("-inf")
        self._problem = "it has not been read yet"
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._absent: BoundedCache[tuple[str, ...], float] = BoundedCache(_MOST_ABSENT)
        self._flights: dict[tuple[str, ...], asyncio.Task[bool]] = {}

    def start(self) -> None:
        """Read all relations in the background, again and again."""
        self._task = asyncio.create_task(self._keep_fresh())
        self._task.add_done_callback(self._log_end)

    async def stop(self) -> None:
        """End the background work, and close the connections."""
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._client.close()

    @property
    def problem(self) -> str:
        """Return why statements on the warehouse are refused; empty if the relations are fresh enough."""
        if self._is_fresh(self._read):
            return ""
        return f"{self._client.name} is not known well enough: {self._problem or 'its answers are too old'}"

    @property
    def trouble(self) -> str:
        """Return why the last pass failed; empty after one without a failure."""
        return self._problem

    async def refresh(self) -> None:
        """Read all names, and relations that are new; raise Unavailable if the catalog gives no whole answer.

        The last relations stay then. A known relation is read again when a statement needs the relation.
        """
        started = time.monotonic()
        self._client.forget_config()
        listing = RelationListing(self._client, self._rule.max_relations)
        found: list[Item] = []
        async for items in in_parallel(listing.relations, await listing.namespaces(), _AT_ONCE):
            found += items
        entries = {item: self._entries[item] for item in found if self._is_settled(item, started)}
        read = in_parallel(self._reread, [item for item in found if item not in entries], _AT_ONCE)
        entries |= {item: entry async for item, entry in read if entry is not None}
        async with self._lock:
            # what statements confirmed meanwhile is newer
            entries |= {item: entry for item, entry in self._entries.items() if entry.read > started}
            await self._take(entries)
        self._read, self._problem = started, ""
        unusable = [entry.relation for entry in entries.values() if entry.relation.problem]
        if unusable:
            first = ".".join(unusable[0].name)
            log.warning(
                "relations cannot be used", catalog=self._client.name, count=len(unusable), first=first,
                cause=unusable[0].problem,
            )  # fmt: skip

    async def confirm(self, path: tuple[str, ...]) -> bool:
        """Tell whether a name without the warehouse still means what the relations at hand say.

        If not, the relations are those of the catalog after the call. Raise Unavailable if nobody knows for too long.
        Statements that ask about one name at the same time share one question.
        """
        flight = self._flights.get(path)
        if flight is None:
            flight = self._flights[path] = asyncio.create_task(self._compare(path))
            flight.add_done_callback(lambda _: self._flights.pop(path))
        return await asyncio.shield(flight)

    async def _compare(self, path: tuple[str, ...]) -> bool:
        now = time.monotonic()
        known: list[Item] = [(kind, path) for kind in _KINDS if (kind, path) in self._entries]
        read = [self._entries[item].read for item in known] or [self._absent.get(path, float("-inf"))]
        if now - min(read) < self._ttl:
            return True
        every: list[Item] = [(kind, path) for kind in _KINDS]
        try:
            found = dict([await self._reread(item) for item in known or every])
        except Unavailable as error:
            if self._is_fresh(self._read):  # a name of a table was no name of a view then
                return True
            raise Unavailable(f"`{'.'.join((self.warehouse, *path))}` cannot be confirmed: {error}") from None
        is_same = all(_is_same(self._entries.get(item), entry) for item, entry in found.items())
        if not is_same:  # a table can have become a view
            found |= dict([await self._reread(item) for item in every if item not in found])
        if not any(found.values()):
            self._absent.keep(path, now)
        await self._replace(found, is_same=is_same)
        return is_same

    async def _replace(self, found: Mapping[Item, _Entry | None], *, is_same: bool) -> None:
        """Use what was found; raise Unavailable if that cannot be used."""
        async with self._lock:
            entries = {item: entry for item, entry in self._entries.items() if item not in found}
            entries |= {item: entry for item, entry in found.items() if entry is not None}
            if is_same:
                self._entries = entries
            else:
                await self._take(entries)

    async def _reread(self, item: Item) -> tuple[Item, _Entry | None]:
        """Return the newest entry of a table or view; None for a missing one. Raise Unavailable without an answer."""
        kind, path = item
        known, now = self._entries.get(item), time.monotonic()
        *namespace, name = path
        place = ("namespaces", self._client.joined(namespace), kind, name)
        query = {"snapshots": "refs"} if kind == "tables" else {}
        full = (self.warehouse, *path)
        try:
            answer = await self._client.find(place, query, etag=known.etag if known else "")
        except ObjectUnreadable as error:
            return item, _Entry(unusable_relation(full, str(error)), "", now)
        if answer is None:
            return item, None
        if known is not None and answer.is_unchanged:
            return item, known._replace(read=now)
        return item, _Entry(relation_of(kind, full, answer.body), answer.etag, now)

    async def _take(self, entries: Mapping[Item, _Entry]) -> None:
        """Use entries from now on; raise Unavailable if they are too large for the processes that rewrite."""
        relations = tuple(entries[item].relation for item in sorted(entries))
        known = await asyncio.to_thread(_encode, relations)
        if len(known.body) > _MOST_BYTES:
            raise Unavailable(f"{self._client.name} describes its tables and views in more than {_MOST_BYTES} bytes")
        self._entries = entries
        if known.digest != self.known.digest:
            self.known = known
        self._telemetry.catalog_relations.labels(self.warehouse).set(len(entries))

    def _is_settled(self, item: Item, now: float) -> bool:
        """Tell whether a listed relation needs no reading."""
        known = self._entries.get(item)
        return known is not None and not known.relation.problem and now - known.read < _REREAD_SECONDS

    def _log_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self._problem = "reading has ended by an error"
            log.error("reading of a catalog has ended", catalog=self._client.name, exc_info=error)

    def _is_fresh(self, read: float) -> bool:
        return time.monotonic() - read <= self._rule.max_stale_seconds

    async def _keep_fresh(self) -> None:
        while True:
            pause = self._rule.refresh_seconds
            try:
                async with asyncio.timeout(self._rule.max_stale_seconds):
                    await self.refresh()
            except (Unavailable, TimeoutError) as error:
                late = f"it takes more than {self._rule.max_stale_seconds:g} seconds to read"
                self._problem = error.shown if isinstance(error, Unavailable) else late
                pause = min(pause, _RETRY_SECONDS)
                log.warning("catalog cannot be read", catalog=self._client.name, cause=str(error) or late)
            outcome = "failed" if self._problem else "read"
            self._telemetry.catalog_passes.labels(self.warehouse, outcome).inc()
            await asyncio.sleep(pause)


class RelationSources:
    """Relations of all catalogs that the rewriter knows."""

    def __init__(self, catalogs: Iterable[CatalogRelations] = ()) -> None:
        self._catalogs = {catalog.warehouse.lower(): catalog for catalog in catalogs}

    def start(self) -> None:
        """Start the background work."""
        for catalog in self._catalogs.values():
            catalog.start()

    async def stop(self) -> None:
        """End the background work."""
        for catalog in self._catalogs.values():
            await catalog.stop()

    def known(self) -> tuple[KnownRelations, ...]:
        """Return the relations of each catalog at hand."""
        return tuple(catalog.known for catalog in self._catalogs.values())

    def problems(self) -> Iterator[str]:
        """Yield the reason of each catalog whose relations are unknown or too old."""
        return (catalog.problem for catalog in self._catalogs.values() if catalog.problem)

    def troubles(self) -> dict[str, str]:
        """Return the failure of the last pass of each catalog with one, by warehouse."""
        return {f"catalog {one.warehouse}": one.trouble for one in self._catalogs.values() if one.trouble}

    def require(self, warehouse: str) -> None:
        """Raise Unavailable if the relations of a warehouse are unknown or too old."""
        catalog = self._catalogs.get(warehouse.lower())
        if catalog is not None and catalog.problem:
            raise Unavailable(catalog.problem)

    async def confirm(self, names: Iterable[Sequence[str]]) -> bool:
        """Tell whether full names still mean what the relations at hand say; raise Unavailable if nobody knows."""
        questions = []
        for warehouse, *path in dict.fromkeys(map(tuple, names)):
            self.require(warehouse)
            catalog = self._catalogs.get(warehouse.lower())
            if catalog is not None:
                questions.append((catalog, tuple(path)))
        if not questions:
            return True
        answers = [same async for same in in_parallel(_confirm, questions, _AT_ONCE)]
        return all(answers)


async def _confirm(question: tuple[CatalogRelations, tuple[str, ...]]) -> bool:
    catalog, path = question
    return await catalog.confirm(path)


def _is_same(known: _Entry | None, found: _Entry | None) -> bool:
    if known is None or found is None:
        return known is found
    return known.relation == found.relation


def _encode(relations: tuple[KnownRelation, ...]) -> KnownRelations:
    body = msgspec.msgpack.encode(relations)
    return KnownRelations(sha256(body).hexdigest(), body)
