"""Random tuples of an OpenFGA model: a tree with left-over servers, roles in rings, and edges that lead nowhere.

`references_of` names the objects as an operator would: by the edges alone, independent of the migration.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

FgaKey = tuple[str, str, str]
"""User, relation, object."""
IDS: Final[Mapping[str, Sequence[str]]] = {
    "server": ("s", "old"),
    "project": ("p", "q"),
    "warehouse": ("w", "x"),
    "namespace": ("n", "m", "k"),
    "lakekeeper_table": ("w/t", "w/u"),
    "lakekeeper_view": ("w/v",),
    "lakekeeper_generic_table": ("w/g",),
    "lakekeeper_catalog_tag": ("g",),
    "role": ("r", "o"),
}
USERS: Final = ("user:oidc~a%40x", "user:oidc~b", "user:c", "user:oidc~c", "user:kubernetes~d", "user:oidc~a@x")
TABULARS: Final = {
    "lakekeeper_table": "table",
    "lakekeeper_view": "view",
    "lakekeeper_generic_table": "generic_table",
}
_EDGES: Final = frozenset({"server", "project", "warehouse", "namespace", "parent", "child"})
_UP: Final = {"project": "server", "warehouse": "project", "role": "project", "lakekeeper_catalog_tag": "project"}
_LISTED: Final = {"project": "project", "warehouse": "warehouse"}


class DirectType(NamedTuple):
    """Form of a user that a relation takes: a type, with the relation of a userset, or everybody of the type."""

    type: str
    relation: str
    everybody: bool


def direct_types(schema: Path) -> dict[tuple[str, str], list[DirectType]]:
    """Return type and relation -> forms of users that tuples may have."""
    found = {}
    for definition in json.loads(schema.read_text())["type_definitions"]:
        relations = (definition.get("metadata") or {}).get("relations") or {}
        for relation, about in relations.items():
            users = [_direct(user) for user in about.get("directly_related_user_types") or ()]
            if users and definition["type"] in IDS:
                found[definition["type"], relation] = users
    return found


def _direct(user: Mapping[str, Any]) -> DirectType:
    return DirectType(user["type"], user.get("relation", ""), "wildcard" in user)


def random_tuples(seed: int, schema: Path) -> list[FgaKey]:
    """Return tuples that OpenFGA takes: a tree with gaps, grants of every kind, and a few edges at random."""
    random = Random(seed)
    types = direct_types(schema)
    wild = random.choice((0.0, 0.0, 0.1, 0.3))
    found = dict.fromkeys(_tree(random, wild, IDS["server"] if random.random() < 0.5 else IDS["server"][:1]))
    grants = [key for key in types if key[1] not in _EDGES]
    for _ in range(random.randint(5, 40)):
        type, relation = random.choice(grants)
        found.update(dict.fromkeys(_any(random, type, relation, types)))
    for _ in range(random.choice((0, 0, 1, 3))):
        type, relation = random.choice([key for key in types if key[1] in _EDGES])
        found.update(dict.fromkeys(_any(random, type, relation, types)))
    return list(found)


def tidy_tuples(seed: int, schema: Path) -> list[FgaKey]:
    """Return tuples as Lakekeeper writes them: one server, both edges of every object, one spelling of a user."""
    random = Random(seed)
    types = direct_types(schema)
    found = dict.fromkeys(_tree(random, 0.0, IDS["server"][:1]))
    grants = [key for key in types if key[1] not in _EDGES]
    spelt = {"user:c": "user:oidc~c", "user:oidc~a@x": "user:oidc~a%40x"}
    for _ in range(random.randint(5, 40)):
        type, relation = random.choice(grants)
        for user, _, object in _any(random, type, relation, types):
            users = ("user:*", "role:*") if relation == "managed_access" else (spelt.get(user, user),)
            found.update({(one, relation, object): None for one in users if "old" not in object})
    return list(found)


def _tree(random: Random, gaps: float, servers: Sequence[str]) -> Iterator[FgaKey]:
    """Yield both edges of every object but some, as Lakekeeper writes them; `gaps` is the share that lacks."""
    placed: dict[str, list[str]] = {"server": [f"server:{id}" for id in servers]}
    above = {"project": "server", "warehouse": "project", "role": "project", "lakekeeper_catalog_tag": "project"}
    for type, parents in above.items():
        placed[type] = []
        for id in IDS[type]:
            parent, own = random.choice(placed[parents]), f"{type}:{id}"
            placed[type].append(own)
            if random.random() >= gaps:
                yield parent, _UP[type], own
            if type in _LISTED and random.random() >= gaps:
                yield own, _LISTED[type], parent
    placed["namespace"] = []
    for type in ("namespace", *TABULARS):
        for id in IDS[type]:
            parents_here = placed["namespace"] + (placed["warehouse"] if type == "namespace" else [])
            parent, own = random.choice(parents_here), f"{type}:{id}"
            placed.setdefault(type, []).append(own)
            if random.random() >= gaps:
                yield parent, "parent", own
            if random.random() >= gaps:
                yield own, "namespace" if parent.startswith("warehouse:") else "child", parent


def _any(
    random: Random, type: str, relation: str, types: Mapping[tuple[str, str], Sequence[DirectType]]
) -> Iterator[FgaKey]:
    object = f"{type}:{random.choice(IDS[type])}"
    form = random.choice(types[type, relation])
    if form.everybody:
        others = types[type, relation] if random.random() < 0.8 else [form]
        yield from ((f"{one.type}:*", relation, object) for one in others)
    elif form.type == "user":
        yield random.choice(USERS), relation, object
    else:
        user = f"{form.type}:{random.choice(IDS[form.type])}" + (f"#{form.relation}" if form.relation else "")
        if user.partition("#")[0] != object:
            yield user, relation, object


def principal_of(user: str) -> str:
    """Return the principal of a user or of the members of a role."""
    kind, _, id = user.removesuffix("#assignee").partition(":")
    id = unquote(id) if kind == "user" else id
    return f"{kind}:{id}" if kind == "role" or "~" in id else f"user:oidc~{id}"


def references_of(tuples: Sequence[FgaKey]) -> dict[str, list[str]]:
    """Return the references of every object, along every edge to a parent. The server is the one of all projects."""
    ends = {end.partition("#")[0] for user, _, object in tuples for end in (user, object)}
    objects = sorted(end for end in ends if not end.endswith(":*"))
    parents: dict[str, list[str]] = {}
    for user, relation, object in tuples:
        if relation == "parent":
            parents.setdefault(object, []).append(user)
    ours = _server_of_all(tuples, objects)
    found = {}
    for object in objects:
        kind, _, id = object.partition(":")
        if kind == "server":
            found[object] = ["server"] if object in ours else []
        elif kind in ("project", "warehouse", "role"):
            found[object] = [f"{kind}:{id}"]
        elif kind == "lakekeeper_catalog_tag":
            found[object] = [f"tag:{id}"]
        elif kind in ("namespace", *TABULARS):
            name = id.rpartition("/")[2]
            paths = _paths(object, parents, ())
            found[object] = [f"{TABULARS.get(kind, kind)}:{path}/{name}" for path in sorted(set(paths))]
    return found


def _paths(object: str, parents: Mapping[str, Sequence[str]], below: tuple[str, ...]) -> Iterator[str]:
    for parent in parents.get(object, ()):
        kind, _, id = parent.partition(":")
        if kind == "warehouse":
            yield id
        elif parent not in below:
            yield from (f"{path}/{id}" for path in _paths(parent, parents, (*below, object)))


def _server_of_all(tuples: Sequence[FgaKey], objects: Sequence[str]) -> list[str]:
    """Return the only server of all projects; all servers without such a one, because each may be asked about."""
    servers = [one for one in objects if one.startswith("server:")]
    projects = [one for one in objects if one.startswith("project:")]
    edges = {(user, object) for user, relation, object in tuples if relation == "server"}
    of_all = [one for one in servers if all((one, project) in edges for project in projects)]
    return of_all if len(of_all) == 1 and projects else servers
