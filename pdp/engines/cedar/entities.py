"""Entities of a check: the principal with all roles, the resource with all objects above, and the entities of files.

Every entity follows from its uid, the facts and the entity files: attributes of a file win, parents add up, gaps are
filled. An `EntityBuilder` serves one principal at one revision and remembers the entities that several resources share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec

from pdp.engines.cedar.actions import (
    ANONYMOUS,
    NAMESPACE_TYPE,
    PROJECT,
    ROLE,
    SERVER,
    TABULAR,
    TAG,
    USER,
    WAREHOUSE,
    Uid,
    as_json,
    as_value,
    path_id,
    path_of,
    properties_uid,
    role_name,
    uid_of_principal,
)
from pdp.engines.cedar.entity_files import NO_FILES, EntityFiles, FileEntity, is_membership
from pdp.facts.snapshot import Facts
from pdp.model.question import Principal
from pdp.model.references import encode_part

_DOTS: Final = str.maketrans({"%": "%25", ".": "%2E"})
_EMAIL: Final = '"email"'
_NO_ROLES: Final[frozenset[str]] = frozenset()
_NO_ENTITIES: Final[frozenset[Uid]] = frozenset()
_BLANK: Final = FileEntity({}, (), {})


class Entity(NamedTuple):
    """Entity of a check. `text` is Cedar's JSON; `references` are the entities that attributes of a file name."""

    uid: Uid
    text: str
    parents: tuple[Uid, ...]
    references: tuple[Uid, ...] = ()


class _Draft(NamedTuple):
    """Entity without the part of the files."""

    attributes: dict[str, Any]
    parents: Sequence[Uid]


class TornRing(ValueError):
    """Two roles of a ring of memberships, while policies may ask both for the roles above."""


class TooManyRoles(ValueError):
    """More than MOST_ROLES roles of one user or role in a check: Cedar would take long for each check."""


MOST_ROLES: Final = 2_000
"""Roles of one user or role that an entity has. Roles that no policy can tell apart do not count."""


class PolicyNames(NamedTuple):
    """Everything that policies and files name: no policy can tell apart two worlds that differ elsewhere.

    `words` are the names of attributes. `read` are the entities whose content is read, `compared` those entities and
    all to the right of an `in` or an `==`.
    """

    words: frozenset[str]
    read: frozenset[Uid]
    compared: frozenset[Uid]


class EntityBuilder:
    """Builder of the entities of one principal's checks. `on_server`: the checks are about the server.

    The builder of a check on the server leaves `roles` and `project_roles` empty: there is no project. With `names`,
    the entities have the attributes and parents that policies can read, and each is directly below all that is above:
    neither a chain of roles nor a chain of namespaces is an entity a link. Without, entities are whole.
    """

    def __init__(
        self,
        facts: Facts,
        principal: Principal,
        files: EntityFiles = NO_FILES,
        names: PolicyNames | None = None,
        *,
        on_server: bool,
        on_role: bool = False,
    ) -> None:
        self.principal = uid_of_principal(principal)
        self._facts = facts
        self._claims = principal
        self._files = files
        self._names = names
        self._asked = names.read if names else _NO_ENTITIES
        self._shows_all_roles = names is None or "roles" in names.words
        self._on_server = on_server
        self._on_role = on_role
        self._known: dict[Uid, Entity] = {}
        self._projects: dict[Uid, Uid] = {}
        self._roles: dict[Uid, frozenset[str]] = {}
        self._drafts: dict[str, Callable[[Uid], _Draft | None]] = {
            USER: self._user,
            ROLE: lambda uid: self._role(uid, is_asked=uid in self._asked_roles, in_all=on_role),
            TAG: self._tag,
            WAREHOUSE: self._warehouse,
            NAMESPACE_TYPE: self._namespace,
            PROJECT: lambda uid: _Draft({}, (SERVER,)),
            **dict.fromkeys(TABULAR, self._tabular),
        }

    def entity(self, uid: Uid) -> Entity:
        """Return an entity, remembered for later checks."""
        known = self._known.get(uid)
        return self._known.setdefault(uid, self.make(uid)) if known is None else known

    def resource(self, uid: Uid) -> Entity:
        """Return the entity of a resource, without remembering it: policies may ask for what is above.

        Raise TornRing for a role in one ring with another role that policies may ask, and TooManyRoles.
        """
        is_new = uid[0] == ROLE and uid not in self._asked_roles
        return self.make(uid, self._role(uid, is_asked=True) if is_new else None)

    def make(self, uid: Uid, draft: _Draft | None = None) -> Entity:
        """Return an entity without remembering it."""
        if draft is None and (draft_of := self._drafts.get(uid[0])):
            draft = draft_of(uid)
        entity = self._files.by_uid.get(uid, _BLANK)
        return _written(uid, entity, draft or _Draft({}, ()), self._names and self._names.words)

    def with_chain(self, uid: Uid) -> Iterator[Entity]:
        """Yield an entity and all above, each once. With `names`, roles above a user or role are left out."""
        pending, seen = [uid], {uid}
        while pending:
            entity = self.entity(pending.pop())
            yield entity
            new = [parent for parent in self.links(entity) if parent not in seen]
            seen.update(new)
            pending += new

    def links(self, entity: Entity) -> Iterable[Uid]:
        """Return the parents of an entity whose entities a check needs: all above a role is above its members, too."""
        if self._names is None:
            return entity.parents
        return [parent for parent in entity.parents if not is_membership(entity.uid, parent)]

    def project_of(self, uid: Uid) -> Uid:
        """Return the project of a warehouse, a role or a tag, and of the warehouse of any object below."""
        if uid[0] == NAMESPACE_TYPE or uid[0] in TABULAR:
            uid = WAREHOUSE, uid[1].partition("/")[0]
        project = self._projects.get(uid)
        return self._projects.setdefault(uid, self._find_project(uid)) if project is None else project

    def _find_project(self, uid: Uid) -> Uid:
        """Return the project by the entity file, else by configuration or registration, else by the id of a role."""
        type, id = uid
        if type == PROJECT:
            return uid
        file = self._files.by_uid.get(uid)
        if file is not None and (named := file.named("project")):
            return named
        parts = (id,) if type == ROLE else path_of(uid)
        kind = {ROLE: "role", TAG: "tag", WAREHOUSE: "warehouse"}.get(type)
        parent = self._facts.parent((kind, parts)) if kind and parts else None
        if parent is not None and parent[0] == "project":
            return PROJECT, encode_part(parent[1][0])
        return PROJECT, role_name(id).project if type == ROLE else ""

    def roles_above(self, uid: Uid) -> frozenset[str]:
        """Return the ids of all roles that a user or role is in: by the facts, by files, and by roles of roles."""
        roles = self._roles.get(uid)
        return self._roles.setdefault(uid, self._find_roles(uid)) if roles is None else roles

    def _find_roles(self, uid: Uid) -> frozenset[str]:
        stored = _NO_ROLES
        if uid != ANONYMOUS:
            is_own = uid == self.principal
            name = self._claims if is_own else Principal("role" if uid[0] == ROLE else "user", uid[1])
            stored = self._facts.roles_of(name)
        files = self._files
        if not files.has_memberships:
            return stored
        found = set(stored | files.roles_of(uid))
        pending = list(found)
        while pending:
            role = pending.pop()
            new = {*self._facts.roles_of(Principal("role", role)), *files.roles_of((ROLE, role))} - found
            found |= new
            pending += new
        return frozenset(found)

    def _user(self, uid: Uid) -> _Draft:
        is_anonymous = uid == ANONYMOUS
        provider, _, source = ("", "", uid[1]) if is_anonymous else uid[1].partition("~")
        roles = sorted(self.roles_above(uid))
        parents = [*self._above_member(roles, in_all=self._on_role), *(() if is_anonymous else (SERVER,))]
        shown = roles if self._shows_all_roles and not self._on_server else ()
        pairs = [self._pair((ROLE, role)) for role in shown]
        attributes: dict[str, Any] = {"provider_id": provider, "source_id": source, "global_role_ids": []}
        if uid == self.principal:
            claimed = () if self._on_server else self._claims.roles
            pairs += [{"provider_id": provider, "source_id": role} for role in claimed]
            email = _email(self._claims)
            attributes |= {"email": email} if isinstance(email, str) else {}
        attributes |= {"roles": [as_value((ROLE, role)) for role in shown], "project_roles": pairs}
        return _Draft(attributes, parents)

    def _pair(self, role: Uid) -> dict[str, Any]:
        """Return provider and source of a role, also where an entity file says so."""
        name = role_name(role[1])
        pair = {"provider_id": name.provider, "source_id": name.source}
        file = self._files.by_uid.get(role, _BLANK)
        return pair | {key: file.attributes[key] for key in pair if key in file.attributes}

    def _role(self, uid: Uid, *, is_asked: bool, in_all: bool = False) -> _Draft:
        """Return a role with edges to the roles above; raise TornRing or TooManyRoles.

        Cedar takes no cycle of entities. So in a ring, one role alone has edges to the others: the one that is asked.
        With `names`, the others need no edges. Without, they have edges to the roles above the ring.
        """
        project, above = self.project_of(uid), self.roles_above(uid)
        if not is_asked and self._names:
            above = _NO_ROLES
        elif uid[1] in above:
            if is_asked and any(self._is_mutual(uid, other) for other in self._asked_roles):
                raise TornRing
            ring = {uid[1]} if is_asked else {role for role in above if self._is_mutual(uid, (ROLE, role))}
            above -= {uid[1], *ring}
        attributes = {"project": as_value(project), **self._pair(uid)}
        return _Draft(attributes, [project, *self._above_member(sorted(above), in_all=in_all)])

    def _is_mutual(self, one: Uid, other: Uid) -> bool:
        """Tell whether two roles are members of each other."""
        return one != other and other[1] in self.roles_above(one) and one[1] in self.roles_above(other)

    def _above_member(self, roles: Sequence[str], *, in_all: bool) -> Iterator[Uid]:
        """Yield the parents of a member of roles: these roles, and all else above them; raise TooManyRoles.

        With `names`, roles that nothing is compared with are left out, unless `in_all`.
        """
        names = self._names
        # INVARIANT: to the right of an `in` is an entity that a policy or a file names, one of an attribute `roles`,
        # the principal, or the resource. So no policy can tell whether the other roles are parents.
        if names and not in_all and not self._shows_all_roles:
            shown = [role for role in roles if (ROLE, role) in names.compared or (ROLE, role) == self.principal]
        else:
            shown = list(roles)
        if names and len(shown) > MOST_ROLES:
            raise TooManyRoles
        yield from ((ROLE, role) for role in shown)
        if names:
            uids = [(ROLE, role) for role in roles]
            yield from dict.fromkeys(map(self.project_of, uids))
            for uid in filter(self._files.by_uid.__contains__, uids):
                yield from self._files.by_uid[uid].other_parents(uid)

    @cached_property
    def _asked_roles(self) -> frozenset[Uid]:
        """Return the roles whose roles above policies may ask in every check."""
        return frozenset(uid for uid in {*self._asked, self.principal} if uid[0] == ROLE)

    def _tag(self, uid: Uid) -> _Draft | None:
        parts, project = path_of(uid), self.project_of(uid)
        return _Draft({"name": parts[0], "project": as_value(project)}, [project]) if parts else None

    def _warehouse(self, uid: Uid) -> _Draft | None:
        parts, project = path_of(uid), self.project_of(uid)
        if not parts:
            return None
        flags = {"is_active": True, "protected": False, "soft_delete_enabled": False}
        return _Draft({"name": parts[0], "project": as_value(project), **flags}, [project])

    def _namespace(self, uid: Uid) -> _Draft | None:
        parts = path_of(uid)
        if not parts:
            return None
        warehouse = WAREHOUSE, path_id(parts[:1])
        name = ".".join(part.translate(_DOTS) for part in parts[1:])
        return _Draft({"name": name, **self._in_warehouse(uid, warehouse)}, self._above_namespace(uid, warehouse))

    def _above_namespace(self, uid: Uid, warehouse: Uid) -> Sequence[Uid]:
        """Return the parents of a namespace: the one above, or with `names` the warehouse and all that are named.

        A name of 250 parts is below 250 namespaces, whose ids are as long as the name.
        """
        ids = list(accumulate(uid[1].split("/")[:-1], "{}/{}".format))[1:]
        above = [(NAMESPACE_TYPE, id) for id in ids]
        if self._names is None:
            return above[-1:] or [warehouse]
        return [warehouse, *(one for one in above if one in self._names.compared or one in self._files.by_uid)]

    def _tabular(self, uid: Uid) -> _Draft | None:
        parts = path_of(uid)
        if len(parts) < 2:
            return None
        warehouse, parent = (WAREHOUSE, path_id(parts[:1])), (NAMESPACE_TYPE, uid[1].rpartition("/")[0])
        attributes = {"name": parts[-1], "namespace": as_value(parent), **self._in_warehouse(uid, warehouse)}
        return _Draft(attributes, [parent])

    def _in_warehouse(self, uid: Uid, warehouse: Uid) -> dict[str, Any]:
        return {
            "project": as_value(self.project_of(warehouse)),
            "warehouse": as_value(warehouse),
            "protected": False,
            "properties": as_value(properties_uid(uid)),
        }


def tagged_entity(uid: Uid, tags: Mapping[str, Any]) -> Entity:
    """Return an entity with tags and nothing else.

    Keys of tags come from properties of objects, so none is an escape of Cedar's JSON, such as `__entity`.
    """
    form: dict[str, Any] = {"uid": as_json(uid), "attrs": {}, "parents": []}
    if tags:
        form["tags"] = tags
    return Entity(uid, msgspec.json.encode(form).decode(), ())


def bare_entity(uid: Uid, parents: Iterable[Uid]) -> Entity:
    """Return an entity with parents and nothing else."""
    return _written(uid, FileEntity({}, tuple(parents), {}), _Draft({}, ()), None)


def _written(uid: Uid, file: FileEntity, draft: _Draft, words: frozenset[str] | None) -> Entity:
    """Return an entity with the part of a file laid over. Sets of a user unite."""
    attributes = {**draft.attributes, **file.attributes}
    if uid[0] == USER:
        for name, value in file.attributes.items():
            if isinstance(value, list) and isinstance(own := draft.attributes.get(name), list):
                attributes[name] = [*own, *value]
    if words is not None:
        attributes = {name: value for name, value in attributes.items() if name in words}
    parents = tuple(dict.fromkeys((*draft.parents, *file.other_parents(uid))))
    form: dict[str, Any] = {"uid": as_json(uid), "attrs": attributes, "parents": [as_json(above) for above in parents]}
    if file.tags:
        form["tags"] = file.tags
    return Entity(uid, msgspec.json.encode(form).decode(), parents, file.references)


def has_unreadable_email(principal: Principal) -> bool:
    """Tell whether the attribute `email` of a principal has another type than Cedar's: nobody knows the address."""
    return _EMAIL in principal.attributes and not isinstance(_email(principal), str | None)


def _email(principal: Principal) -> Any:
    return msgspec.json.decode(principal.attributes).get("email")
