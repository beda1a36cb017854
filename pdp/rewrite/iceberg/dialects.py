"""Relations of Iceberg REST catalogs in one dialect: a view can have a text for each dialect. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdp.rewrite.catalog import Relation, View
from pdp.rewrite.process.messages import KnownRelation


class DialectRelations:
    """Relations with the texts of views in a dialect."""

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
