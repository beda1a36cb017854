"""World files: objects and grants as JSON or YAML, read strictly into facts, and written.

Owns the format of entries, which requests share, and what may stand in it. Which privilege can be stored on which type
is the model's to say; a key `seen` (objects that merely exist) is allowed and ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import yaml

from pdp import strict
from pdp.engines.grants.edits import ObjectPatch
from pdp.engines.grants.model import STORED
from pdp.errors import InvalidArgument, InvalidReference, Place, PolicyError
from pdp.facts.objects import SERVER, Grant, Object, ObjectKey, key_of, key_text
from pdp.facts.snapshot import Facts
from pdp.model.checks import CONTENT_TYPES, Resource
from pdp.model.references import is_id, parse_principal, parse_resource

Where: TypeAlias = tuple[str | int, ...]
"""The way to a value in the file: `("grants", 3, "privilege")`."""

_WORLD: Final = frozenset({"objects", "grants", "seen"})
_OBJECT: Final = frozenset({"object", "parent", "managedAccess", "id"})
_GRANT: Final = frozenset({"principal", "privilege", "object", "id"})
_PARENT: Final[Mapping[str, str]] = {
    "project": "server",
    "warehouse": "project",
    "role": "project",
    "tag": "project",
    "user": "server",
}
_LONGEST_NAME: Final = 1024
_MANAGED: Final = frozenset({"warehouse", "namespace"})


class World(msgspec.Struct, frozen=True):
    """What a world file says, in its order: what is to be registered of each object, and grants; none twice."""

    objects: tuple[ObjectPatch, ...] = ()
    grants: tuple[Grant, ...] = ()

    def facts(self) -> Facts:
        """A snapshot of this and nothing else; its epoch is a digest of the content, whatever the order."""
        objects = [patch.apply_to(Object(patch.key)) for patch in self.objects]
        content = (sorted((o.key, o.project, o.managed, o.id) for o in objects), sorted(self.grants))
        return Facts.build(sha256(repr(content).encode()).hexdigest()[:12], 0, objects, self.grants)


class WorldFault(InvalidArgument):
    """An entry that cannot stand in a world; `where` leads to it."""

    def __init__(self, where: Where, message: str) -> None:
        super().__init__(f"{_path(where)}: {message}" if where else message)
        self.where = where


def load_world(path: Path | str) -> Facts:
    """The facts of a world file; PolicyError as `load_entries` raises it."""
    return load_entries(path).facts()


def load_entries(path: Path | str) -> World:
    """What a world file says, JSON by the suffix `.json`, otherwise YAML.

    PolicyError names the file and, where it can be told, the line of the entry.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"cannot read the world: {error}", Place(str(file))) from error
    data = _read_json(text, str(file)) if file.suffix == ".json" else _read_yaml(text, str(file))
    try:
        return read_world(data)
    except WorldFault as fault:
        raise PolicyError(str(fault), _place(text, str(file), fault.where)) from fault


def parse_world(data: Any) -> Facts:
    """The facts of a world; WorldFault as `read_world` raises it."""
    return read_world(data).facts()


def read_world(data: Any) -> World:
    """What a world says; WorldFault (an InvalidArgument) names the entry and the field that is wrong."""
    world = _mapping(data, (), _WORLD)
    objects: dict[ObjectKey, ObjectPatch] = {}
    for where, entry in _entries(world, "objects"):
        patch = read_object(entry, where)
        if patch.key in objects:
            raise WorldFault(where, f"`{key_text(patch.key)}` is registered twice")
        objects[patch.key] = patch
    grants = dict.fromkeys(read_grant(entry, where) for where, entry in _entries(world, "grants"))
    return World(tuple(objects.values()), tuple(grants))


def format_world(facts: Facts) -> dict[str, list[Any]]:
    """A world that reads back as the same objects and grants, in order."""
    objects, grants = in_order(facts)
    return {"objects": [*map(format_object, objects)], "grants": [*map(format_grant, grants)]}


def in_order(facts: Facts) -> tuple[Sequence[Object], Sequence[Grant]]:
    """Everything registered and granted, in the one order that depends on nothing but the content."""
    return sorted(facts.objects(), key=lambda known: key_text(known.key)), sorted(facts.grants())


def read_object(entry: Any, where: Where) -> ObjectPatch:
    """An entry of `objects`: a reference, or a mapping with what is registered; WorldFault otherwise."""
    if isinstance(entry, str):
        return ObjectPatch(read_key(entry, where))
    fields = _mapping(entry, where, _OBJECT)
    key = read_key(_field(fields, "object", where), (*where, "object"))
    managed = fields.get("managedAccess")
    if "managedAccess" in fields and not isinstance(managed, bool):
        raise WorldFault((*where, "managedAccess"), "must be true or false")
    if managed and key[0] not in _MANAGED:
        raise WorldFault((*where, "managedAccess"), f"a {key[0]} has no managed access")
    project = None
    if "parent" in fields:
        project = _project(key, _field(fields, "parent", where), (*where, "parent"))
    return ObjectPatch(key, project, managed, _id(fields, where) if "id" in fields else None)


def _project(key: ObjectKey, parent: str, where: Where) -> str:
    """The project to register; every other parent says only what the path says, or is wrong."""
    above = read_key(parent, where)
    if key[0] in CONTENT_TYPES:
        wanted = Facts.empty().parent(key)
        if above != wanted:
            raise WorldFault(where, f"`{parent}` is not the parent of `{key_text(key)}`: that follows from the path")
        return ""
    if above[0] != _PARENT.get(key[0]):
        raise WorldFault(where, f"`{parent}` cannot be the parent of a {key[0]}")
    return "" if above == SERVER else above[1][0]


def format_object(known: Object) -> dict[str, Any]:
    """A registered object as an entry of `objects`."""
    entry: dict[str, Any] = {"object": key_text(known.key)}
    if known.project:
        entry["parent"] = key_text(("project", (known.project,)))
    if known.managed:
        entry["managedAccess"] = True
    return entry | ({"id": known.id} if known.id else {})


def read_grant(entry: Any, where: Where) -> Grant:
    """An entry of `grants`; WorldFault where it is none."""
    fields = _mapping(entry, where, _GRANT)
    key = read_key(_field(fields, "object", where), (*where, "object"))
    privilege = _field(fields, "privilege", where)
    if privilege not in STORED[key[0]]:
        raise WorldFault((*where, "privilege"), f"`{privilege}` cannot be granted on a {key[0]}")
    principal = _reference(parse_principal, _field(fields, "principal", where), (*where, "principal"))
    _bound(principal.id, (*where, "principal"))
    if principal.type == "anonymous":
        raise WorldFault((*where, "principal"), "nothing can be granted to `anonymous`")
    if privilege == "assignee" and principal.id == key_text(key):
        raise WorldFault((*where, "principal"), f"`{principal.id}` cannot contain itself")
    return Grant(key, privilege, principal.id, _id(fields, where) if "id" in fields else "")


def format_grant(grant: Grant) -> dict[str, str]:
    """A grant as an entry of `grants`."""
    entry = {"principal": grant.principal, "privilege": grant.privilege, "object": key_text(grant.object)}
    return entry | ({"id": grant.id} if grant.id else {})


def read_key(text: str, where: Where) -> ObjectKey:
    """The key of an object that grants can stand on; WorldFault otherwise."""
    resource: Resource = _reference(parse_resource, text, where)
    if resource.type not in STORED:
        raise WorldFault(where, f"a {resource.type} is not an object of grants")
    if resource.ref is not None:
        raise WorldFault(where, f"`{text}` names a ref: grants hold on every ref")
    _bound(text, where)
    return key_of(resource)


def _bound(text: str, where: Where) -> None:
    """A grant's object and principal stand in one index entry of a database, which has room for so much."""
    if len(text.encode()) > _LONGEST_NAME:
        raise WorldFault(where, f"is longer than {_LONGEST_NAME} bytes")


def _id(fields: Mapping[str, Any], where: Where) -> str:
    id = _field(fields, "id", where)
    if not is_id(id):
        raise WorldFault((*where, "id"), f"`{id}` is no id: 1 to 128 of letters, digits and `._:-`")
    return id


def _reference(parse: Callable[[str], Any], text: str, where: Where) -> Any:
    try:
        return parse(text)
    except InvalidReference as error:
        raise WorldFault(where, str(error)) from error


def _entries(world: Mapping[str, Any], section: str) -> Iterator[tuple[Where, Any]]:
    entries = world.get(section, [])
    if not isinstance(entries, list):
        raise WorldFault((section,), f"must be a list, not {_json_type(entries)}")
    for i, entry in enumerate(entries):
        yield (section, i), entry


def _mapping(data: Any, where: Where, known: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise WorldFault(where, f"must be a mapping with {', '.join(sorted(known))}, not {_json_type(data)}")
    for name in data:
        if name not in known:
            raise WorldFault((*where, str(name)), f"unknown key: known are {', '.join(sorted(known))}")
    return data


def _field(fields: Mapping[str, Any], name: str, where: Where) -> str:
    if name not in fields:
        raise WorldFault((*where, name), "is missing")
    value = fields[name]
    if not isinstance(value, str) or not value:
        raise WorldFault((*where, name), f"must be a text that is not empty, not {_json_type(value)}")
    return value


def _json_type(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", str: "a text", list: "a list", dict: "a mapping"}
    return names.get(type(value), "a number")


def _path(where: Where) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where).lstrip(".")


# --- files --------------------------------------------------------------------------------------------------------


def _read_json(text: str, file: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise PolicyError(f"key `{twice}` stands twice in one mapping", Place(file))
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise PolicyError(f"not JSON: {error.msg}", Place(file, error.lineno, error.colno)) from error
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond what Python reads
        raise PolicyError(f"not JSON: {error}", Place(file)) from error


def _read_yaml(text: str, file: str) -> Any:
    try:
        return strict.load_yaml(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        raise PolicyError(f"not YAML: {error.problem}", place) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
        raise PolicyError(f"not YAML: {error}", Place(file)) from error


def _place(text: str, file: str, where: Where) -> Place:
    """Where an entry stands: only after a failure, because reading the text a second time with marks is slow."""
    try:
        node = yaml.compose(text, yaml.CSafeLoader)
    except (yaml.YAMLError, RecursionError):  # JSON that is no YAML: it may escape a character as two surrogates
        return Place(file)
    for step in where:
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            node = node.value[step]
        elif isinstance(node, yaml.MappingNode):
            node = next((value for key, value in node.value if key.value == step), node)
    return Place(file, node.start_mark.line + 1, node.start_mark.column + 1) if node else Place(file)
