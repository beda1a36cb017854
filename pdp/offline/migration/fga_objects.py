"""Objects of Lakekeeper's OpenFGA store as references of this service: types, names and the tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pdp.model.references import encode_part
from pdp.offline.migration.fga_store import FgaTuple

TYPES: Final[Mapping[str, str]] = {
    "server": "server",
    "project": "project",
    "warehouse": "warehouse",
    "namespace": "namespace",
    "lakekeeper_table": "table",
    "lakekeeper_view": "view",
    "lakekeeper_generic_table": "generic_table",
    "lakekeeper_dataset": "dataset",
    "table": "table",
    "view": "view",
    "role": "role",
    "lakekeeper_catalog_tag": "tag",
}
"""Type in OpenFGA -> type of this service. `table` and `view` are of models before 4.0."""
UP: Final[Mapping[str, str]] = {
    "project": "server",
    "warehouse": "project",
    "namespace": "parent",
    "role": "project",
    "lakekeeper_catalog_tag": "project",
    **dict.fromkeys(
        ("lakekeeper_table", "lakekeeper_view", "lakekeeper_generic_table", "lakekeeper_dataset", "table", "view"),
        "parent",
    ),
}
"""Type -> relation that names the parent."""
DOWN: Final[Mapping[tuple[str, str], str]] = {
    ("server", "project"): "project",
    ("project", "warehouse"): "warehouse",
    ("warehouse", "namespace"): "namespace",
    ("namespace", "child"): "",
}
"""Type and relation that name the children."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_BY_PATH: Final = frozenset({"namespace", "table", "view", "generic_table", "dataset"})


def type_of(object: str) -> str:
    """Return the type of an object in OpenFGA."""
    return object.partition(":")[0]


def is_edge(one: FgaTuple) -> bool:
    """Tell whether a tuple is an edge of the tree."""
    kind = type_of(one.object)
    return UP.get(kind) == one.relation or (kind, one.relation) in DOWN


class FgaObjects:
    """Objects of some tuples, with their references. `names` maps an id, or type and id, to a name."""

    def __init__(self, tuples: Sequence[FgaTuple], names: Mapping[str, Any]) -> None:
        self._names = names
        self._parents: dict[str, list[str]] = {}
        self._listed: set[tuple[str, str]] = set()
        for one in tuples:
            if UP.get(type_of(one.object)) == one.relation:
                self._parents.setdefault(one.object, []).append(one.user)
            elif is_edge(one):
                self._listed.add((one.object, one.user))
        self._references: dict[str, str | None] = {}
        self._twins: frozenset[str] = frozenset()
        self._objects = sorted({one.object for one in tuples if type_of(one.object) in TYPES})
        self._twins = self._find_twins(self._objects)

    @property
    def known(self) -> Sequence[str]:
        """Return all objects with a reference, the server among them."""
        return [object for object in self._objects if self.reference(object) is not None]

    @property
    def placed(self) -> Iterable[str]:
        """Return the objects with a parent."""
        return self._parents

    def parent(self, object: str) -> str | None:
        """Return the only parent of an object; None without a parent or with several."""
        parents = self._parents.get(object, ())
        return parents[0] if len(parents) == 1 else None

    def is_listed(self, object: str) -> bool:
        """Tell whether the parent lists the object as a child; roles and tags are never listed."""
        one_way = type_of(object) in ("role", "lakekeeper_catalog_tag")
        return one_way or (self.parent(object) or "", object) in self._listed

    def reference(self, object: str) -> str | None:
        """Return the reference of an object; None if the tuples do not place the object, or the name is taken."""
        if object not in self._references:
            self._references[object] = None  # a cycle has no place
            self._references[object] = None if object in self._twins else self._make(object)
        return self._references[object]

    def _find_twins(self, objects: Iterable[str]) -> frozenset[str]:
        """Return the objects of one name. Neither has a place: a grant on one would be a grant on the other."""
        named: dict[str, list[str]] = {}
        for object in objects:
            reference = self.reference(object)
            if reference is not None and reference != "server":
                named.setdefault(reference, []).append(object)
        self._references.clear()
        return frozenset(object for same in named.values() if len(same) > 1 for object in same)

    def problem(self, object: str) -> str:
        """Return the reason why an object has no reference."""
        parents = self._parents.get(object, ())
        if type_of(object) not in TYPES:
            return f"no type `{type_of(object)}` is known"
        if len(parents) > 1:
            return f"has {len(parents)} parents: {', '.join(f'`{one}`' for one in parents)}"
        if not parents:
            return f"no tuple `{UP.get(type_of(object), '')}` gives its parent: a deleted object leaves such tuples"
        above = self.reference(parents[0])
        if above is None:
            return f"its parent `{parents[0]}` has no place"
        return "another object has the same name: give both their names by `--names`"

    def unnamed(self) -> Iterator[str]:
        """Yield the objects below a project whose name is an id, because `names` lacks them."""
        kinds = {"warehouse", *_BY_PATH}
        for object in self._references:
            if TYPES.get(type_of(object)) in kinds and _UUID.fullmatch(self._name(object)):
                yield object

    def stable_id(self, object: str) -> str | None:
        """Return the id of an object that has another name; None otherwise."""
        bare = object.partition(":")[2].rpartition("/")[2]
        return bare if self._name(object) != bare and TYPES[type_of(object)] in {"warehouse", *_BY_PATH} else None

    def _make(self, object: str) -> str | None:
        kind = TYPES.get(type_of(object))
        if kind is None or kind == "server":
            return kind
        if len(self._parents.get(object, ())) > 1:
            return None
        if kind == "role":
            return f"role:{self._name(object)}"
        if kind not in _BY_PATH:
            return f"{kind}:{encode_part(self._name(object))}"
        parent = self.parent(object)
        above = self.reference(parent) if parent else None
        if above is None or above.partition(":")[0] not in ("warehouse", "namespace"):
            return None
        return f"{kind}:{above.partition(':')[2]}/{encode_part(self._name(object))}"

    def _name(self, object: str) -> str:
        id = object.partition(":")[2]
        bare = id.rpartition("/")[2]
        name = next((self._names[key] for key in (object, id, bare) if key in self._names), bare)
        return str(name[-1]) if isinstance(name, list) and name else str(name)
