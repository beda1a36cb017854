"""World: objects and grants of a world file, read strictly into facts with the place of each, and written.

Owns the format of an entry, which management requests share, and the limits of its values. The grants model tells which
privilege can be stored on which type. A key `seen` (existing objects) is allowed and ignored.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import yaml

from pdp.config.origins import suggest
from pdp.config.references import unknown_warehouse
from pdp.config.regular_files import CEDAR_ENTITIES, is_cedar_entity
from pdp.engines.grants.edits import ObjectPatch
from pdp.engines.grants.model import STORED
from pdp.errors import InvalidArgument, InvalidReference, Place, PolicyError
from pdp.facts.objects import SERVER, Grant, Object, ObjectKey, key_of, key_text
from pdp.facts.snapshot import Facts
from pdp.model import strict
from pdp.model.question import CONTENT_TYPES, RESOURCE_TYPES, Resource
from pdp.model.references import VERBATIM_TYPES, is_id, parse_principal, parse_resource, refuse_blanks, refuse_star

STDIN: Final = "-"
"""Name of a world file that stands for standard input."""
Where: TypeAlias = tuple[str | int, ...]
"""Path of keys and list positions to a value: `("grants", 3, "privilege")`."""
WORLD_KEYS: Final = frozenset({"objects", "grants", "seen"})
"""Top-level keys of a world file."""
_OBJECT: Final = frozenset({"object", "parent", "managedAccess", "id"})
_GRANT: Final = frozenset({"principal", "privilege", "object", "id"})
_PARENT: Final[Mapping[str, str]] = {
    "project": "server",
    "warehouse": "project",
    "role": "project",
    "tag": "project",
    "user": "server",
}
_EACH_OBJECT: Final = "name the container, whose content inherits; a `*` of a name itself is written `%2A`"
_EACH_PRINCIPAL: Final = "grant to a role, and put the principals into the role by `assignee`"
_LONGEST_NAME: Final = 1024
"""Bytes of a reference: object and principal of a grant share one index entry of a database, of limited size."""
_MANAGED: Final = frozenset({"warehouse", "namespace"})


class World(msgspec.Struct, frozen=True):
    """Objects to register and grants, in the order of the file; none occurs twice."""

    objects: tuple[ObjectPatch, ...] = ()
    grants: tuple[Grant, ...] = ()

    def facts(self) -> Facts:
        """Return a snapshot of the world; its epoch is a digest of the content, independent of the order."""
        objects = [patch.apply_to(Object(patch.key)) for patch in self.objects]
        content = (sorted((o.key, o.project, o.managed, o.id) for o in objects), sorted(self.grants))
        return Facts.build(sha256(repr(content).encode()).hexdigest()[:12], 0, objects, self.grants)


class WorldError(InvalidArgument):
    """An invalid entry of a world; `where` is the path to the value."""

    def __init__(self, where: Where, message: str) -> None:
        super().__init__(f"{_path(where)}: {message}" if where else message)
        self.where = where


def load_world(path: Path | str, warehouses: Collection[str] = ()) -> Facts:
    """Return the facts of a world file; raise PolicyError as `read_world_file` does."""
    return read_world_file(path, warehouses).facts()


def read_world_file(path: Path | str, warehouses: Collection[str] = ()) -> World:
    """Return the world of a file, JSON if the suffix is `.json`, otherwise YAML. STDIN is either.

    Entries are in one of the `warehouses`, unless these are none.

    Raise PolicyError with the file and, as far as known, line and column of the invalid entry.
    """
    file = Path(path)
    try:
        text = _read_text(file)
    except (OSError, UnicodeDecodeError) as error:
        cause = (getattr(error, "strerror", None) or str(error)).lower()
        raise PolicyError(f"cannot read the world: {cause}", Place(str(file), 0)) from error
    data = parse_text(text, str(file))
    if isinstance(data, list) and any(map(is_cedar_entity, data)):
        raise PolicyError(CEDAR_ENTITIES, Place(str(file), 0))
    try:
        world = read_world(data)
        _require_known(world, data, warehouses)
    except WorldError as error:
        raise PolicyError(str(error), place_of(text, str(file), error.where)) from error
    return world


def _require_known(world: World, data: Any, warehouses: Collection[str]) -> None:
    """Raise WorldError for the first entry in a warehouse that is none of `warehouses`."""
    keys = {patch.key for patch in world.objects} | {grant.object for grant in world.grants}
    if all(not unknown_of(key, warehouses) for key in keys):
        return
    for where, entry in (*_entries(data, "objects"), *_entries(data, "grants")):
        key = read_key(entry, where) if isinstance(entry, str) else read_key(entry["object"], where)
        if unknown := unknown_of(key, warehouses):
            raise WorldError(where if isinstance(entry, str) else (*where, "object"), unknown)


def unknown_of(key: ObjectKey, warehouses: Collection[str]) -> str:
    """Return the error of an object in a warehouse that is none of `warehouses`; empty for a known one."""
    type, parts = key
    return unknown_warehouse(parts[0], warehouses) if type == "warehouse" or type in CONTENT_TYPES else ""


def _read_text(file: Path) -> str:
    """Return the text of a file, or of standard input for STDIN."""
    return sys.stdin.buffer.read().decode() if str(file) == STDIN else file.read_text(encoding="utf-8")


def parse_world(data: Any, warehouses: Collection[str] = ()) -> Facts:
    """Return the facts of a world; raise WorldError as `read_world` does, and for an entry in another warehouse."""
    world = read_world(data)
    _require_known(world, data, warehouses)
    return world.facts()


def read_world(data: Any) -> World:
    """Return the world of JSON values; raise WorldError with the path of the invalid field."""
    world = _mapping(data, (), WORLD_KEYS)
    objects: dict[ObjectKey, ObjectPatch] = {}
    for where, entry in _entries(world, "objects"):
        patch = read_object(entry, where)
        if patch.key in objects:
            raise WorldError(where, f"`{key_text(patch.key)}` is registered twice")
        objects[patch.key] = patch
    grants = dict.fromkeys(read_grant(entry, where) for where, entry in _entries(world, "grants"))
    return World(tuple(objects.values()), tuple(grants))


def format_world(facts: Facts) -> dict[str, list[Any]]:
    """Return the world of some facts as JSON values, sorted; `read_world` returns the same objects and grants."""
    objects, grants = sorted_content(facts)
    return {"objects": [*map(object_entry, objects)], "grants": [*map(grant_entry, grants)]}


def object_entry(object: Object) -> dict[str, Any]:
    """Return a registered object as an entry of a world file, where a `*` of a name is an escape."""
    return _without_star(format_object(object))


def grant_entry(grant: Grant) -> dict[str, Any]:
    """Return a grant as an entry of a world file, where a `*` of a name is an escape."""
    return _without_star(format_grant(grant))


def _without_star(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with the one spelling of its object that policies take. Names of roles know no escapes."""
    text = entry["object"]
    if "*" not in text or text.partition(":")[0] in VERBATIM_TYPES:
        return entry
    return {**entry, "object": text.replace("*", "%2A")}


def sorted_content(facts: Facts) -> tuple[Sequence[Object], Sequence[Grant]]:
    """Return all registered objects and all grants, in an order that depends on the content alone."""
    return sorted(facts.objects(), key=lambda object: key_text(object.key)), sorted(facts.grants())


def read_object(entry: Any, where: Where) -> ObjectPatch:
    """Return the object of an entry: a reference, or a mapping with the properties to register.

    Raise WorldError for any other value.
    """
    if isinstance(entry, str):
        return ObjectPatch(read_key(entry, where))
    fields = _mapping(entry, where, _OBJECT)
    key = read_key(_field(fields, "object", where), (*where, "object"))
    managed = fields.get("managedAccess")
    if "managedAccess" in fields and not isinstance(managed, bool):
        raise WorldError((*where, "managedAccess"), "must be true or false")
    if managed:
        _refuse_star(fields["object"], (*where, "object"), _EACH_OBJECT)
    if managed and key[0] not in _MANAGED:
        raise WorldError((*where, "managedAccess"), f"a {key[0]} has no managed access")
    project = None
    if "parent" in fields:
        project = _project(key, _field(fields, "parent", where), (*where, "parent"))
    return ObjectPatch(key, project, managed, _id(fields, where) if "id" in fields else None)


def _project(key: ObjectKey, parent: str, where: Where) -> str:
    """Return the project to register, "" if the path implies the parent; raise WorldError for a wrong parent."""
    above = read_key(parent, where)
    if key[0] in CONTENT_TYPES:
        if above != Facts.empty().parent(key):
            raise WorldError(where, f"`{parent}` is not the parent of `{key_text(key)}`: that follows from the path")
        return ""
    if above[0] != _PARENT.get(key[0]):
        raise WorldError(where, f"`{parent}` cannot be the parent of a {key[0]}")
    return "" if above == SERVER else above[1][0]


def format_object(object: Object) -> dict[str, Any]:
    """Return a registered object as an entry of `objects`."""
    entry: dict[str, Any] = {"object": key_text(object.key)}
    if object.project:
        entry["parent"] = key_text(("project", (object.project,)))
    if object.managed:
        entry["managedAccess"] = True
    return entry | ({"id": object.id} if object.id else {})


def read_grant(entry: Any, where: Where) -> Grant:
    """Return the grant of an entry that gives a privilege; raise WorldError for any other value, and for a `*`.

    Objects that exist may have any name. A grant on `namespace:lake/*` looks like a pattern, and is none. A grant to
    `role:role:x` is meant for the role `x`.
    """
    grant = read_known_grant(entry, where)
    for name, instead in (("object", _EACH_OBJECT), ("principal", _EACH_PRINCIPAL)):
        _refuse_star(entry[name], (*where, name), instead)
        if entry[name].startswith(("role:role:", "role:user:")):
            written = entry[name].removeprefix("role:")
            raise WorldError((*where, name), f"`{entry[name]}` has two kinds: write `{written}`")
    _reference(refuse_blanks, entry["principal"], (*where, "principal"))
    return grant


def read_known_grant(entry: Any, where: Where) -> Grant:
    """Return the grant of an entry that takes a privilege away; raise WorldError for any other value."""
    fields = _mapping(entry, where, _GRANT)
    key = read_key(_field(fields, "object", where), (*where, "object"))
    privilege = _field(fields, "privilege", where)
    if privilege not in STORED[key[0]]:
        near = suggest(privilege, STORED[key[0]])
        raise WorldError((*where, "privilege"), f"`{privilege}` cannot be granted on a {key[0]}{near}")
    principal = _reference(parse_principal, _field(fields, "principal", where), (*where, "principal"))
    _check_length(principal.id, (*where, "principal"))
    if principal.type == "anonymous":
        raise WorldError((*where, "principal"), "nothing can be granted to `anonymous`")
    if privilege == "assignee" and principal.id == key_text(key):
        raise WorldError((*where, "principal"), f"`{principal.id}` cannot contain itself")
    return Grant(key, privilege, principal.id, _id(fields, where) if "id" in fields else "")


def format_grant(grant: Grant) -> dict[str, str]:
    """Return a grant as an entry of `grants`."""
    entry = {"principal": grant.principal, "privilege": grant.privilege, "object": key_text(grant.object)}
    return entry | ({"id": grant.id} if grant.id else {})


def read_key(text: str, where: Where) -> ObjectKey:
    """Return the key of an object of grants; raise WorldError for any other text."""
    resource: Resource = _reference(parse_resource, text, where)
    if resource.type not in STORED:
        raise WorldError(where, f"a {resource.type} is not an object of grants")
    if resource.ref is not None:
        raise WorldError(where, f"`{text}` names a ref: grants hold on every ref")
    _check_length(text, where)
    return key_of(resource)


def _refuse_star(text: str, where: Where, instead: str) -> None:
    try:
        refuse_star(text, instead)
    except InvalidReference as error:
        raise WorldError(where, str(error)) from None


def _check_length(text: str, where: Where) -> None:
    if len(text.encode()) > _LONGEST_NAME:
        raise WorldError(where, f"is longer than {_LONGEST_NAME} bytes")


def _id(fields: Mapping[str, Any], where: Where) -> str:
    id = _field(fields, "id", where)
    if not is_id(id):
        raise WorldError((*where, "id"), f"`{id}` is no id: 1 to 128 of letters, digits and `._:-`")
    return id


def _reference(parse: Callable[[str], Any], text: str, where: Where) -> Any:
    try:
        return parse(text)
    except InvalidReference as error:
        kind = text.partition(":")[0]
        near = suggest(kind, RESOURCE_TYPES) if parse is parse_resource and kind not in RESOURCE_TYPES else ""
        raise WorldError(where, f"{error}{near}") from error


def _entries(world: Mapping[str, Any], section: str) -> Iterator[tuple[Where, Any]]:
    entries = world.get(section, [])
    if not isinstance(entries, list):
        raise WorldError((section,), f"must be a list, not {_json_type(entries)}")
    for i, entry in enumerate(entries):
        yield (section, i), entry


def _mapping(data: Any, where: Where, known: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise WorldError(where, f"must be a mapping with {', '.join(sorted(known))}, not {_json_type(data)}")
    for name in data:
        if name not in known:
            raise WorldError((*where, str(name)), f"unknown key: known are {', '.join(sorted(known))}")
    return data


def _field(fields: Mapping[str, Any], name: str, where: Where) -> str:
    if name not in fields:
        raise WorldError((*where, name), "is missing")
    value = fields[name]
    if not isinstance(value, str) or not value:
        raise WorldError((*where, name), f"must be a text that is not empty, not {_json_type(value)}")
    return value


def _json_type(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", str: "a text", list: "a list", dict: "a mapping"}
    return names.get(type(value), "a number")


def _path(where: Where) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where).lstrip(".")


def parse_text(text: str, file: str) -> Any:
    """Return the value of a text, in the language of the file's name. STDIN has JSON if it can be, else YAML.

    Raise PolicyError with line and column for a syntax error or a key that occurs twice in a mapping.
    """
    is_json = _is_json(text) if file == STDIN else not is_yaml(file)
    return _parse_json(text, file) if is_json else _parse_yaml(text, file)


def is_yaml(file: str | Path) -> bool:
    """Tell whether a world file of this name is YAML; a file with the suffix `.json` is JSON."""
    return Path(file).suffix != ".json"


def _is_json(text: str) -> bool:
    """Tell whether a text is JSON. Not all JSON is YAML: JSON may escape a character as two surrogates."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def place_of(text: str, file: str, where: Where) -> Place:
    """Return file, line and column of a value; of the nearest enclosing one if the value is missing.

    Slow, because PyYAML reads the text again with marks: call after a failure only.
    """
    found = strict.position_of(text, where)
    return Place(file, *found[:2]) if found else Place(file)


def _parse_json(text: str, file: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise PolicyError(f"key `{twice}` stands twice in one mapping", Place(file))
        return mapping

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise PolicyError(f"not JSON: {error.msg}", Place(file, error.lineno, error.colno)) from error
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond Python's limits
        raise PolicyError(f"not JSON: {error}", Place(file)) from error


def _parse_yaml(text: str, file: str) -> Any:
    try:
        return strict.load_yaml(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        raise PolicyError(f"not YAML: {error.problem}", place) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an impossible date
        raise PolicyError(f"not YAML: {error}", Place(file)) from error
