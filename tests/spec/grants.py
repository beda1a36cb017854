"""Lakekeeper's model v4.14 in the plainest Python over a world file's data: recursion, no index, no memory.

Written from the model's description, independently of the engine's table; answers allow or deny, nothing else.
"""

from functools import partial
from typing import Any

World = dict[str, Any]
TABULAR = {"table", "view", "generic_table", "dataset"}
CONTENT = TABULAR | {"namespace"}
TIERS = {"describe", "select", "modify", "create"}
SERVER_RIGHT = {"update": "update_users", "delete": "delete_users", "read_role_assignments": "list_users"}
ADMIN = {"security_admin": "project_admin", "data_admin": "project_admin", "role_creator": "security_admin"}
ADMIN |= {"tag_creator": "security_admin", "modify": "project_admin", "create": "data_admin"}
ADMIN |= {"select": "modify", "describe": "select create data_admin security_admin"}
STEWARD = {"change_ownership", "set_managed_access", "expire_snapshots", "restore_snapshots", "update_retention"}
PROJECT = dict.fromkeys(("delete", "rename", "modify_task_queue_config"), "modify")
PROJECT |= {"create_role": "role_creator", "create_tag": "tag_creator", "create_warehouse": "create"}
PROJECT["get_endpoint_statistics"] = "describe"
LOWER = {name: name for name in ("manage_tags", "manage_refs", "select")}
LOWER |= {"reset": "manage_refs", "read_data": "select"}
LOWER |= dict.fromkeys(("list_everything", "get_endpoint_statistics", "get_all_tasks", "get_tasks"), "describe")


class Spec:
    """Rights of the principal id `who` (not anonymous) in a world; a check of `target` carries `id`."""

    def __init__(self, world: World, who: str, target: str, id: str = "") -> None:
        self.world, self.who, self.target, self.id = world, who, target, id
        self.groups = {who} | {f"role:{role}" for role in roles(world, who)}

    def stored(self, name: str, o: str) -> bool:
        grants = [g for g in self.world["grants"] if g["principal"] in self.groups]
        ours = [g.get("id") for g in grants if (g["privilege"], g["object"]) == (name, o)]
        return any(o != self.target or not self.id or not id or id == self.id for id in ours)

    def any(self, o: str, *names: str) -> bool:
        return any(self.has(name, o) for name in names)

    def up(self, o: str, name: str) -> bool:
        above = parent(self.world, o)
        return bool(above) and self.has(name, above)

    def has(self, name: str, o: str) -> bool:
        kind, has, up = kind_of(o), partial(self.any, o), partial(self.up, o)
        if self.stored(name, o) or kind == "server":
            return self.stored(name, o)
        if kind == "project":
            return has(*ADMIN.get(name, "").split()) or (name == "project_admin" and up("operator"))
        top = kind == "warehouse"
        if name == "manage_grants":
            owner = has("ownership") and (top or not self.managed(parent(self.world, o)))
            return owner or up("security_admin" if top else name)
        if name in ("manage_tags", "manage_refs"):
            above = {"manage_tags": "security_admin", "manage_refs": "data_admin"}[name] if top else name
            return up(above) or (name == "manage_refs" and has("ownership"))
        if name not in TIERS or (name == "create" and kind in TABULAR):
            return False
        implied = {"select": ["modify"], "describe": ["select", "create"]}.get(name, [])
        return has("ownership", *implied) or up(name) or (top and name == "modify" and up("data_admin"))

    def managed(self, o: str) -> bool:
        own = registered(self.world, o).get("managedAccess", False)
        return own or (o.startswith("namespace:") and self.managed(parent(self.world, o)))

    def below(self, o: str) -> bool:
        things = {g["object"] for g in self.world["grants"] if kind_of(g["object"]) in CONTENT | {"warehouse"}}
        return any(o in above(self.world, thing) and self.has("describe", thing) for thing in things)

    def may(self, action: str, o: str) -> bool:
        kind, has, up = kind_of(o), partial(self.any, o), partial(self.up, o)
        verb, _, rest = action.partition("_")
        if kind == "server":
            return has("admin", "operator")
        if kind == "user":
            return action == "read" or self.who == o or self.may(SERVER_RIGHT[action], "server")
        if kind in ("role", "tag"):
            if action in ("read_metadata", "assume"):
                return action == "read_metadata" or self.who == o or o[5:] in roles(self.world, self.who)
            project = parent(self.world, o)
            if action == "read" or (action, kind) == ("read_assignments", "role"):
                return bool(project and self.may("get_metadata", project)) or (kind == "tag" and self.may("apply", o))
            return has("ownership") or up("security_admin") or (action == "apply" and has("apply"))
        if kind == "project":
            if verb == "grant" or action == "read_assignments":
                return has("project_admin" if rest == "project_admin" else "security_admin") or up("admin")
            if action.endswith("project_tasks"):
                return has("describe" if verb == "get" else "modify") or up("admin")
            if action in PROJECT:
                return has(PROJECT[action])
            return has("describe") or self.below(o) or up("admin")
        if (verb == "grant" and rest in TIERS) or action == "read_assignments":
            return has("manage_grants") or (has("pass_grants") and has(rest if verb == "grant" else "describe"))
        if verb in ("grant", "revoke") or "subtree" in action or action in STEWARD:
            return has("manage_grants")
        if verb == "accept":
            return has("create") and (has("manage_grants") or not self.managed(o))
        if action == "move":
            return has("manage_grants") and has("modify")
        if verb == "create" or action in LOWER:
            return has("create" if verb == "create" else LOWER[action])
        return has("describe") or self.below(o) if verb in ("get", "list", "include", "use") else has("modify")


def kind_of(o: str) -> str:
    return o.partition(":")[0]


def registered(world: World, o: str) -> dict[str, Any]:
    return next((entry for entry in world["objects"] if entry["object"] == o), {})


def parent(world: World, o: str) -> str:
    kind, _, path = o.partition(":")
    if kind in CONTENT:
        path = path.rpartition("/")[0]
        return f"{'namespace' if '/' in path else 'warehouse'}:{path}"
    return registered(world, o).get("parent", "") if kind in ("warehouse", "role", "tag") else "server"


def above(world: World, o: str) -> set[str]:
    found = parent(world, o) if o != "server" else ""
    return {found} | above(world, found) if found else set()


def roles(world: World, who: str, known: frozenset[str] | set[str] = frozenset()) -> set[str]:
    grants = [g for g in world["grants"] if g["object"].startswith("role:") and g["principal"] == who]
    direct = {g["object"][5:] for g in grants if g["privilege"] in ("assignee", "ownership")}
    return direct.union(*(roles(world, f"role:{role}", known | direct) for role in direct - known))
