"""Tuples of OpenFGA, read strictly, and the objects of Lakekeeper's store as references: types, names and the tree."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pdp.config.origins import suggest
from pdp.errors import InvalidArgument
from pdp.facts.objects import ObjectKey
from pdp.model.references import encode_part, is_id
from pdp.store.world import read_key

_KEYS: Final = ("user", "relation", "object")
_TUPLE: Final = frozenset({*_KEYS, "condition"})
_ENTRY: Final = frozenset({"key", "timestamp"})
_CONDITION: Final = frozenset({"name", "context"})
_COLUMNS: Final = ("user_type", "user_id", "relation", "object_type", "object_id")
_MORE_COLUMNS: Final = frozenset({"user_relation", "condition_name", "condition_context"})
"""Keys and columns of an export. Others may take a tuple back, or set a condition, and are refused."""


class FgaTuple(NamedTuple):
    """Relationship tuple. `place` is the file with the number of the tuple."""

    user: str
    relation: str
    object: str
    place: str = ""
    condition: str = ""


def require_known(data: Mapping[Any, Any], known: Collection[str], place: str) -> None:
    for key in data:
        if key not in known:
            raise InvalidArgument(f"{place}: `{key}` is not known{suggest(str(key), known)}")


def tuple_of(entry: Any, file: Path, number: int) -> FgaTuple:
    place = f"`{file}`, tuple {number}"
    fields = entry.get("key", entry) if isinstance(entry, Mapping) else {}
    if not isinstance(fields, Mapping) or not all(isinstance(fields.get(key), str) for key in _KEYS):
        raise InvalidArgument(f"{place}: not `user`, `relation` and `object`")
    if fields is not entry:
        require_known(entry, _ENTRY, place)
    require_known(fields, _TUPLE, place)
    user, relation, object = (fields[key] for key in _KEYS)
    return FgaTuple(user, relation, object, f"{file}#{number}", _condition_of(fields, place))


def _condition_of(fields: Mapping[str, Any], place: str) -> str:
    """Return the name of a tuple's condition, "" without one; raise InvalidArgument for another shape."""
    condition = fields.get("condition")
    if condition is None or condition == {}:
        return ""
    name = condition.get("name") if isinstance(condition, Mapping) else None
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{place}: `condition` is no condition with a `name`")
    require_known(condition, _CONDITION, place)
    return name


def csv_tuples(file: Path, text: str) -> Iterator[FgaTuple]:
    """Yield the tuples of `fga tuple read --output-format csv`."""
    reader = csv.DictReader(io.StringIO(text))
    header = list(reader.fieldnames or ())
    for column in _COLUMNS:
        if column not in header:
            raise InvalidArgument(f"`{file}` has no column `{column}`")
    require_known(dict.fromkeys(header), {*_COLUMNS, *_MORE_COLUMNS}, f"`{file}`")
    if len(set(header)) < len(header):
        raise InvalidArgument(f"`{file}` has a column twice")
    for number, row in enumerate(reader, 1):
        place = f"`{file}`, tuple {number}"
        if None in row or None in row.values():
            raise InvalidArgument(f"{place}: not `user`, `relation` and `object`, or not as many values as columns")
        if row.get("condition_context") and not row.get("condition_name"):
            raise InvalidArgument(f"{place}: `condition_context` without `condition_name`")
        relation = f"#{row['user_relation']}" if row.get("user_relation") else ""
        user, object = f"{row['user_type']}:{row['user_id']}{relation}", f"{row['object_type']}:{row['object_id']}"
        yield FgaTuple(user, row["relation"], object, f"{file}#{number}", row.get("condition_name") or "")


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
_ABOVE: Final[Mapping[str, frozenset[str]]] = {
    "project": frozenset({"server"}),
    "namespace": frozenset({"warehouse", "namespace"}),
    **dict.fromkeys(("warehouse", "role", "lakekeeper_catalog_tag"), frozenset({"project"})),
}
"""Type -> types of the parent; all other objects are in a namespace."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
SERVERS: Final = "servers"
UNLISTED: Final = "unlisted"
_MEMBERS: Final = "#assignee"
_BY_PATH: Final = frozenset({"namespace", "table", "view", "generic_table", "dataset"})


def type_of(object: str) -> str:
    """Return the type of an object in OpenFGA."""
    return object.partition(":")[0]


def parent_types(type: str) -> frozenset[str]:
    """Return the types of the parent of a type of objects."""
    return _ABOVE.get(type, frozenset({"namespace"}) if type in UP else frozenset())


def is_edge(one: FgaTuple) -> bool:
    """Tell whether a tuple is an edge of the tree."""
    kind = type_of(one.object)
    return UP.get(kind) == one.relation or (kind, one.relation) in DOWN


class FgaObjects:
    """Objects of some tuples, with their references. `names` maps an id, or type and id, to a name.

    `accepted` may have SERVERS and UNLISTED, which place more objects than OpenFGA's answers allow.
    """

    def __init__(self, tuples: Sequence[FgaTuple], names: Mapping[str, Any], accepted: Collection[str] = ()) -> None:
        self._names = names
        self._merges_servers = SERVERS in accepted
        self._parents: dict[str, list[str]] = {}
        self._conditional: set[str] = set()
        self._listed: set[tuple[str, str]] = set()
        for one in tuples:
            if UP.get(type_of(one.object)) == one.relation:
                self._read_parent(one)
            elif is_edge(one) and not one.condition:
                self._listed.add((one.object, one.user))
        self._references: dict[str, str | None] = {}
        self._errors: dict[str, str] = {}
        self._twins: frozenset[str] = frozenset()
        self._unlisted: frozenset[str] = frozenset()
        self._objects = sorted({one.object for one in tuples if type_of(one.object) in TYPES})
        mentioned = {end.removesuffix(_MEMBERS) for one in tuples for end in (one.user, one.object)}
        self.mentioned = sorted(one for one in mentioned if type_of(one) in TYPES)
        self._projects = sorted(one for one in mentioned if type_of(one) == "project")
        self._server = self._server_of_all(sorted(one for one in mentioned if type_of(one) == "server"))
        self._twins = self._find_twins({*self._objects, *(one for one in mentioned if type_of(one) == "role")})
        self._references.clear()
        if UNLISTED not in accepted:
            # Here, who sees an object sees every container above. OpenFGA goes from a container to those it lists.
            self._unlisted = frozenset(one for one in self._parents if not self.is_listed(one))

    def _server_of_all(self, servers: Sequence[str]) -> str | None:
        """Return the only server above all projects; None for no such server, or several.

        An administrator of the server rules every project here, so no other server's grants may become the server's.
        """
        found = [one for one in servers if all(self._is_below(project, one) for project in self._projects)]
        return found[0] if len(found) == 1 else None

    def _read_parent(self, one: FgaTuple) -> None:
        if one.condition:
            self._conditional.add(one.object)
        parents = self._parents.setdefault(one.object, [])
        if one.user not in parents:
            parents.append(one.user)

    def _is_below(self, project: str, server: str) -> bool:
        return server in self.parents(project) and project not in self._conditional

    @property
    def known(self) -> Sequence[str]:
        """Return all objects with a reference, the server among them."""
        return [object for object in self._objects if self.reference(object) is not None]

    @property
    def placed(self) -> Iterable[str]:
        """Return the objects with a parent."""
        return self._parents

    def unplaced(self) -> Iterator[str]:
        """Yield the listed and the listing objects without a tuple about a parent."""
        children = {child for _, child in self._listed}
        for end in sorted({end for pair in self._listed for end in pair if type_of(end) in TYPES}):
            if end not in self._parents and (end in children or self.reference(end) is None):
                yield end

    @property
    def unlisted(self) -> Collection[str]:
        """Return the objects without a place because no parent lists the object."""
        return self._unlisted

    def parents(self, object: str) -> Sequence[str]:
        """Return all parents of an object."""
        return self._parents.get(object, ())

    def parent(self, object: str) -> str | None:
        """Return the only parent of an object; None without a parent or with several."""
        parents = self.parents(object)
        return parents[0] if len(parents) == 1 else None

    def is_listed(self, object: str) -> bool:
        """Tell whether the parent lists the object as a child. A listed role, tag or project shows nothing."""
        if type_of(object) in ("role", "lakekeeper_catalog_tag", "project"):
            return True
        return (self.parent(object) or "", object) in self._listed

    def reference(self, object: str) -> str | None:
        """Return the reference of an object; None if the tuples do not place the object, or the name is taken."""
        if object not in self._references:
            self._references[object] = None  # a cycle has no place
            if object not in self._twins and object not in self._unlisted:
                self._references[object] = self._make(object)
        return self._references[object]

    def _find_twins(self, objects: Iterable[str]) -> frozenset[str]:
        """Return the objects of one name. Neither has a place: a grant on one would be a grant on the other."""
        named: dict[ObjectKey, list[str]] = {}
        for object in objects:
            reference = self.reference(object)
            if reference is not None and reference != "server":
                named.setdefault(read_key(reference, ()), []).append(object)
        return frozenset(object for same in named.values() if len(same) > 1 for object in same)

    def problem(self, object: str) -> str:
        """Return the reason why an object has no reference."""
        kind, parents = type_of(object), self.parents(object)
        if kind not in TYPES:
            return f"no type `{kind}` is known"
        if kind == "server":
            outside = next((one for one in self._projects if not self._is_below(one, object)), "")
            other = f"`{outside}` is not below it" if outside else f"`{self._server or 'another server'}` is, too"
            return f"the only server here is above every project, and {other}"
        if len(parents) > 1 and kind != "project":
            return f"has {len(parents)} parents: {', '.join(f'`{one}`' for one in parents)}"
        if object in self._conditional:
            return "its parent depends on a condition, which has no counterpart"
        if not parents:
            return f"no tuple `{UP.get(kind, '')}` gives its parent: a deleted object leaves such tuples"
        if object in self._errors:
            return self._errors[object]
        if object in self._twins:
            return "another object has the same name: give both their names by `--names`"
        if object in self._unlisted:
            return f"its parent `{parents[0]}` does not list it: here, who sees the object would see the parent"
        return f"its parent `{parents[0]}` has no place"

    def unnamed(self) -> Iterator[str]:
        """Yield the objects below a project whose name is an id, because `names` lacks them."""
        kinds = {"warehouse", *_BY_PATH}
        for object in self._references:
            if TYPES.get(type_of(object)) in kinds and _UUID.fullmatch(self._name(object)):
                yield object

    def stable_id(self, object: str) -> str | None:
        """Return the id of an object that has another name, if it can be an id here; None otherwise."""
        bare = object.partition(":")[2].rpartition("/")[2]
        is_named = self._name(object) != bare and TYPES[type_of(object)] in {"warehouse", *_BY_PATH}
        return bare if is_named and is_id(bare) else None

    def _make(self, object: str) -> str | None:
        reference = self._text(object)
        try:
            if reference is not None:
                read_key(reference, ())
        except InvalidArgument as error:
            self._errors[object] = str(error)
            return None
        return reference

    def _text(self, object: str) -> str | None:
        kind, parents = TYPES.get(type_of(object)), self.parents(object)
        if kind is None:
            return None
        if kind == "server":
            return kind if self._merges_servers or object == self._server else None
        name = self._name(object)
        if kind == "project":
            return f"project:{encode_part(name)}"
        if object in self._conditional or len(parents) > 1:
            return None
        if not parents:
            # A role or tag without a project has all its rights from its own grants, here as in OpenFGA.
            return {"role": f"role:{name}", "tag": f"tag:{encode_part(name)}"}.get(kind)
        above = self.reference(parents[0])
        if above is None or type_of(parents[0]) not in parent_types(type_of(object)):
            return None
        if kind == "role":
            return f"role:{name}"
        if kind not in _BY_PATH:
            return f"{kind}:{encode_part(name)}"
        return f"{kind}:{above.partition(':')[2]}/{encode_part(name)}"

    def keys_of(self, object: str) -> Sequence[str]:
        """Return the keys under which a file of names may name an object."""
        id = object.partition(":")[2]
        return tuple(dict.fromkeys((object, id, id.rpartition("/")[2])))

    def _name(self, object: str) -> str:
        *_, bare = keys = self.keys_of(object)
        name = next((self._names[key] for key in keys if key in self._names), bare)
        return str(name[-1] if isinstance(name, list) else name)
