"""Recorded worlds as tuples of Lakekeeper's model, with the ids and the edges that Lakekeeper writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from pdp.facts.objects import SERVER, ObjectKey, key_text
from pdp.facts.snapshot import Facts
from pdp.store.world import parse_world, read_key

_TYPES = {"tag": "lakekeeper_catalog_tag"} | {
    kind: f"lakekeeper_{kind}" for kind in ("table", "view", "generic_table", "dataset")
}
MODEL_VERSION = "4.14"
"""Version that decided the recorded questions, as Lakekeeper stores it."""
_DOWN = {"project": "project", "warehouse": "warehouse"}


class FgaWorldExport(NamedTuple):
    """Tuples of a world, and the names of its objects by their ids."""

    tuples: list[dict[str, str]]
    names: dict[str, Any]


def export_world(file: Path) -> FgaWorldExport:
    """Return the tuples that Lakekeeper would write for a world file, and the names of the objects."""
    world: Mapping[str, Any] = json.loads(file.read_text())
    facts = parse_world(world)
    export = FgaWorldExport([_tuple("auth_model_id:m1", "openfga_id", f"model_version:{MODEL_VERSION}")], {})
    seen = {read_key(text, ()) for text in world.get("seen", ())}
    keys = {object.key for object in facts.objects()} | {grant.object for grant in facts.grants()} | seen
    for key in sorted(_with_parents(facts, keys)):
        _edges(facts, key, export)
    for object in facts.objects():
        if object.managed:
            for everybody in ("user:*", "role:*"):
                export.tuples.append(_tuple(everybody, "managed_access", fga_id(facts, object.key)))
    for grant in facts.grants():
        export.tuples.append(_tuple(fga_user(grant.principal), grant.privilege, fga_id(facts, grant.object)))
    return export


def fga_user(principal: str) -> str:
    """Return the user of a principal: the encoded id of a user, or the members of a role."""
    kind, _, id = principal.partition(":")
    return f"user:{quote(id, safe='~')}" if kind == "user" else f"role:{id}#assignee"


def fga_id(facts: Facts, key: ObjectKey) -> str:
    """Return the id of an object in OpenFGA: a UUID for what has a path, with the warehouse's before a table's."""
    kind, path = key
    if kind == "server":
        return "server:s1"
    if kind in ("project", "role", "tag"):
        return f"{_TYPES.get(kind, kind)}:{path[0]}"
    own = uuid5(NAMESPACE_URL, key_text(key))
    if kind in ("warehouse", "namespace"):
        return f"{kind}:{own}"
    return f"{_TYPES[kind]}:{uuid5(NAMESPACE_URL, f'warehouse:{path[0]}')}/{own}"


def _with_parents(facts: Facts, keys: set[ObjectKey]) -> set[ObjectKey]:
    found = set()
    for key in keys:
        above: ObjectKey | None = key
        while above is not None and above not in found:
            found.add(above)
            text = facts.parent(above) if above != SERVER else None
            above = read_key(text, ()) if isinstance(text, str) else text
    return found


def _edges(facts: Facts, key: ObjectKey, export: FgaWorldExport) -> None:
    kind, path = key
    parent = facts.parent(key)
    if key == SERVER or kind == "user" or parent is None:
        return
    own, above = fga_id(facts, key), fga_id(facts, parent)
    up = {"project": "server", "warehouse": "project", "role": "project", "tag": "project"}.get(kind, "parent")
    export.tuples.append(_tuple(above, up, own))
    if kind not in ("role", "tag"):
        down = _DOWN.get(kind) or ("namespace" if parent[0] == "warehouse" else "child")
        export.tuples.append(_tuple(own, down, above))
    if kind not in ("project", "role", "tag"):
        export.names[own] = list(path[1:]) if kind == "namespace" else path[-1]


def _tuple(user: str, relation: str, object: str) -> dict[str, str]:
    return {"user": user, "relation": relation, "object": object}
