"""Entity files: Cedar's JSON of users, roles and objects, from several files, with the place of each entity.

Turns the properties of objects into tags.

A key that begins with `access-` or `access_` has a list of `role:<id>`, `role-full:[<project>/]<provider>~<id>` and
`user:<provider>~<subject>` as a JSON text. A list with one wrong entry names nobody. All lists of a check together have
a bounded number of entries: Cedar parses each entry, about 12 us, while the process answers nobody else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from pdp.engines.cedar.actions import ROLE, USER, Uid, as_value
from pdp.engines.cedar.schema import SourceText
from pdp.errors import EntitiesInvalid, Place

_BLANKS: Final = " \t\r\n"


class FileEntity(msgspec.Struct, frozen=True, dict=True):
    """Entity as files declare it: some attributes, parents and tags; gaps are filled later."""

    attributes: Mapping[str, Any]
    parents: tuple[Uid, ...]
    tags: Mapping[str, Any]

    def named(self, attribute: str) -> Uid | None:
        """Return the entity that an attribute names; None for an absent attribute and any other value."""
        value = self.attributes.get(attribute)
        return _uid(value) if isinstance(value, dict) and "__entity" in value else None

    def other_parents(self, uid: Uid) -> Iterable[Uid]:
        """Return the parents but those of memberships, which `EntityFiles.roles_of` returns."""
        return (parent for parent in self.parents if not is_membership(uid, parent))

    @cached_property
    def references(self) -> tuple[Uid, ...]:
        """Return the entities that attributes and tags name."""
        return tuple(_references([*self.attributes.values(), *self.tags.values()]))


class DeclaredEntity(msgspec.Struct, frozen=True):
    """Entity of a file, with its place."""

    uid: Uid
    entity: FileEntity
    place: Place


class EntityFiles(msgspec.Struct, frozen=True, dict=True):
    """Entities of all files by uid."""

    by_uid: Mapping[Uid, FileEntity]

    @cached_property
    def has_memberships(self) -> bool:
        """Tell whether a file puts a user or role into a role."""
        return any(is_membership(uid, parent) for uid, entity in self.by_uid.items() for parent in entity.parents)

    def roles_of(self, uid: Uid) -> set[str]:
        """Return the ids of the roles that a file puts a user or role into."""
        entity = self.by_uid.get(uid)
        return {parent[1] for parent in entity.parents if is_membership(uid, parent)} if entity else set()

    @cached_property
    def references(self) -> frozenset[Uid]:
        """Return all entities that attributes and tags of files name."""
        return frozenset(uid for entity in self.by_uid.values() for uid in entity.references)


NO_FILES: Final = EntityFiles({})


def read_entities_json(sources: Iterable[SourceText]) -> list[DeclaredEntity]:
    """Return the entities of files, each once, in order.

    Raise EntitiesInvalid for a file that is no list of entities, and for two different entities of one uid.
    """
    declared: dict[Uid, DeclaredEntity] = {}
    for source in sources:
        for new in _entities_of(source):
            old = declared.setdefault(new.uid, new)
            if old.entity != new.entity:
                name = f'{new.uid[0]}::"{new.uid[1]}"'
                raise EntitiesInvalid(f"`{name}` stands at {old.place} already, with other content", new.place)
    return list(declared.values())


class DeclaredNames(NamedTuple):
    """Names of entity files: the uids of entities and of parents, and the attributes of entities."""

    uids: frozenset[Uid] = frozenset()
    attributes: frozenset[str] = frozenset()


def declared_names(sources: Iterable[SourceText]) -> DeclaredNames:
    """Return the names of files; none where a file cannot be read."""
    try:
        declared = read_entities_json(sources)
    except EntitiesInvalid:
        return DeclaredNames()
    uids = frozenset(uid for each in declared for uid in (each.uid, *each.entity.parents))
    return DeclaredNames(uids, frozenset(name for each in declared for name in each.entity.attributes))


def _entities_of(source: SourceText) -> Iterator[DeclaredEntity]:
    for value, offset in _elements(source):
        place = source.place(offset)
        try:
            yield DeclaredEntity(*_entity(value), place)
        except (KeyError, TypeError, ValueError) as error:
            cause = f"`{error.args[0]}` is missing" if isinstance(error, KeyError) else str(error)
            raise EntitiesInvalid(f"not an entity: {cause}", place) from None


def _elements(source: SourceText) -> Iterator[tuple[Any, int]]:
    """Yield the elements of a JSON list with their offsets."""
    text, decoder = source.text, json.JSONDecoder(object_pairs_hook=_unique)
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        raise EntitiesInvalid("entities are a JSON list of objects with `uid`, `attrs` and `parents`", source.place(at))
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            cause, offset = (error.msg, error.pos) if isinstance(error, json.JSONDecodeError) else (str(error), at)
            raise EntitiesInvalid(f"not JSON: {cause[:1].lower()}{cause[1:]}", source.place(offset)) from None
        yield value, at
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            raise EntitiesInvalid("not JSON: expected `,` or `]`", source.place(at))
    if (rest := _skip(text, at + 1)) < len(text):
        raise EntitiesInvalid("not JSON: text behind the list", source.place(rest))


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _entity(value: Any) -> tuple[Uid, FileEntity]:
    if not isinstance(value, dict):
        raise TypeError("an entity is an object")
    if unknown := value.keys() - {"uid", "attrs", "parents", "tags"}:
        raise ValueError(f"unknown key `{min(unknown)}`")
    attributes, parents, tags = value.get("attrs", {}), value.get("parents", []), value.get("tags", {})
    if not isinstance(attributes, dict) or not isinstance(parents, list) or not isinstance(tags, dict):
        raise TypeError("`attrs` and `tags` are objects, `parents` is a list")
    return _uid(value["uid"]), FileEntity(attributes, tuple(dict.fromkeys(map(_uid, parents))), tags)


def _uid(value: Any) -> Uid:
    inner = value.get("__entity", value) if isinstance(value, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner["type"], str) or not isinstance(inner["id"], str):
        raise TypeError('a uid is `{"type": "Lakekeeper::User", "id": "..."}`')
    return inner["type"], inner["id"]


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def is_membership(uid: Uid, parent: Uid) -> bool:
    """Tell whether an entity above another one is a role with a member."""
    return parent[0] == ROLE and uid[0] in (USER, ROLE)


def _references(values: Iterable[Any]) -> Iterator[Uid]:
    for value in values:
        if isinstance(value, dict):
            if "__entity" in value:
                yield _uid(value)
            else:
                yield from _references(value.values())
        elif isinstance(value, list):
            yield from _references(value)


_ACCESS: Final = ("access-", "access_")
_ENTRY: Final = re.compile(
    r"role:(?P<role>.+)|role-full:(?:(?P<project>[^/~]+)/)?(?P<full>[a-z0-9-]+~.+)|user:(?P<user>[a-z0-9-]+~.+)",
    re.DOTALL,
)


MOST_ENTRIES: Final = 500
"""Entries of all access lists in the properties of one check."""


class LongAccessLists(ValueError):
    """Access lists of a check with more than `MOST_ENTRIES` entries."""


def property_tags(properties: Mapping[str, Any], project: str) -> dict[str, Any]:
    """Return the tags of properties as JSON; raise LongAccessLists.

    A null has no tag. `project` is the default of full role names.
    """
    tags = {}
    count = 0
    for key, value in properties.items():
        if value is None:
            continue
        raw = _raw_text(value)
        listed = (_access_list(raw, project) if key.startswith(_ACCESS) else None) or ()
        count += len(listed)
        if count > MOST_ENTRIES:
            raise LongAccessLists
        tags[key] = {
            "raw": raw,
            "roles": [as_value(uid) for uid in listed if uid[0] == ROLE],
            "users": [as_value(uid) for uid in listed if uid[0] == USER],
            "global_role_ids": [],
        }
    return tags


def find_bad_list(properties: Mapping[str, Any]) -> str | None:
    """Return the first key with a wrong access list; None without one. Raise LongAccessLists."""
    for key, value in properties.items():
        if key.startswith(_ACCESS) and value is not None and _access_list(_raw_text(value), "") is None:
            return key
    return None


def _raw_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _access_list(raw: str, project: str) -> list[Uid] | None:
    """Return the roles and users of a list; None if the text is no list or an entry is wrong.

    Raise LongAccessLists.
    """
    try:
        entries = json.loads(raw)
        raw.encode()
    except (ValueError, RecursionError):
        return None
    if not isinstance(entries, list):
        return None
    if len(entries) > MOST_ENTRIES:
        raise LongAccessLists
    uids = list(_uids(entries, project))
    return uids if len(uids) == len(entries) else None


def _uids(entries: list[Any], project: str) -> Iterator[Uid]:
    """Yield the roles and users of the correct entries."""
    for entry in entries:
        match = _ENTRY.fullmatch(entry) if isinstance(entry, str) and _is_unicode(entry) else None
        if match is None:
            continue
        if match["full"]:
            yield ROLE, f"{match['project'] or project}/{match['full']}"
        else:
            yield (USER, match["user"]) if match["user"] else (ROLE, match["role"])


def _is_unicode(text: str) -> bool:
    """Tell whether a text has no lone surrogate: a JSON escape can write one, and no entity can have one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
