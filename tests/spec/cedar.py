"""Cedar in the plainest Python: the entities of one check by hand, one call of cedarpy, nothing shared.

Written from the vocabulary of Cedar: every entity file is given whole with all that is above each entity, and so are
the principal and the resource. The one deviation is at the end: a forbid that raises denies.
"""

from __future__ import annotations

import re
from typing import Any

import cedarpy

LAKE = "Lakekeeper::"
TYPES = {"table": "Table", "view": "View", "namespace": "Namespace", "warehouse": "Warehouse", "role": "Role"}


def ref(type: str, id: str) -> dict[str, str]:
    return {"type": LAKE + type, "id": id}


def value(type: str, id: str) -> dict[str, Any]:
    return {"__entity": ref(type, id)}


class CedarSpec:
    """Decisions on names without escapes, in one world of memberships, projects and entity files."""

    def __init__(self, policies: str, files: list[Any], members: dict[str, set[str]], projects: dict[str, str]) -> None:
        self.text, self.policies = policies, cedarpy.PolicySet.from_str(policies)
        self.effects = re.findall(r"^@id\(\"(\w+)\"\) (permit|forbid)", policies, re.MULTILINE)
        self.files = {(entity["uid"]["type"], entity["uid"]["id"]): entity for entity in files}
        self.members, self.projects = members, projects
        self.asked = {f"role:{role}" for role in re.findall(r'Role::"(\w+)" in ', policies)}

    def above(self, name: str) -> set[str]:
        """Return all roles of `user:...` or `role:...`, by the world and by files."""
        found: set[str] = set()
        pending = [name]
        while pending:
            at = pending.pop()
            type, _, id = at.partition(":")
            file = self.files.get((LAKE + type.capitalize(), id), {"parents": []})
            listed = {parent["id"] for parent in file["parents"] if parent["type"] == LAKE + "Role"}
            new = (self.members.get(at, set()) | listed) - found
            found |= new
            pending += [f"role:{role}" for role in new]
        return found

    def ring(self, role: str) -> set[str]:
        """Return the roles that are members of a role and contain the role."""
        return {other for other in self.above(f"role:{role}") if role in self.above(f"role:{other}")}

    def is_torn(self, principal: str) -> bool:
        """Tell whether two roles of one ring are asked what is above: Cedar takes no cycle."""
        roles = [name.removeprefix("role:") for name in {*self.asked, principal} if name.startswith("role:")]
        return any(one != other and one in self.ring(other) for one in roles for other in roles)

    def project(self, type: str, id: str) -> str:
        file = self.files.get((LAKE + type, id), {"attrs": {}})["attrs"].get("project")
        return file["__entity"]["id"] if file else self.projects.get(f"{type.lower()}:{id}", "")

    def entity(self, type: str, id: str, principal: str) -> list[Any]:
        """Return an entity and all entities above."""
        name, parts = f"{type.lower()}:{id}", id.split("/")
        attributes: dict[str, Any] = {}
        parents: list[tuple[str, str]] = []
        up: list[Any] = []
        if type in ("User", "Role"):
            roles = sorted(self.above(name))
            ring = self.ring(id) if type == "Role" else set()
            hidden = {id} if name in self.asked | {principal} else ring | {id}
            parents = [("Role", role) for role in roles if role not in hidden]
        if type == "User":
            provider, _, source = id.partition("~")
            pairs = [{"provider_id": "", "source_id": role} for role in roles]
            sets = {"roles": [value("Role", role) for role in roles], "project_roles": pairs, "global_role_ids": []}
            attributes = {"provider_id": provider, "source_id": source, **sets}
            parents.append(("Server", "server"))
        elif type == "Role":
            project = self.project(type, id)
            attributes = {"project": value("Project", project), "provider_id": "", "source_id": id}
            parents.insert(0, ("Project", project))
        elif type == "Project":
            parents = [("Server", "server")]
        elif type == "Warehouse":
            project = self.project(type, id)
            flags = {"is_active": True, "protected": False, "soft_delete_enabled": False}
            attributes, parents = {"name": id, "project": value("Project", project), **flags}, [("Project", project)]
        elif type != "Server":
            over = "/".join(parts[:-1])
            common = {"project": value("Project", self.project("Warehouse", parts[0])), "protected": False}
            common |= {"warehouse": value("Warehouse", parts[0]), "properties": value("ResourceProperties", name)}
            dotted = parts[-1] if type != "Namespace" else ".".join(parts[1:])
            attributes = {"name": dotted, **common}
            if type != "Namespace":
                attributes["namespace"] = value("Namespace", over)
            parents = [("Namespace", over) if len(parts) > 2 or type != "Namespace" else ("Warehouse", parts[0])]
        for parent in parents:
            up += self.entity(*parent, principal)
        file = self.files.get((LAKE + type, id), {"attrs": {}, "parents": []})
        others = [parent for parent in file["parents"] if parent["type"] != LAKE + "Role"]
        attributes |= file["attrs"]
        listed = [ref(*parent) for parent in parents] + others
        return [{"uid": ref(type, id), "attrs": attributes, "parents": listed}, *up]

    def decide(self, principal: str, action: str, group: list[str], resource: str) -> tuple[str, str | None, list[str]]:
        """Return the effect, the id of the deciding policy, and the ids of all that raised. `group`: all groups."""
        type, _, id = resource.partition(":")
        who, _, name = principal.partition(":")
        entities = [*self.entity(who.capitalize(), name, principal), *self.entity(TYPES[type], id, principal)]
        for role in self.asked:
            entities += self.entity("Role", role.removeprefix("role:"), principal)
        for file_type, file_id in self.files:
            entities += self.entity(file_type.removeprefix(LAKE), file_id, principal)
        entities.append({"uid": ref("Action", action), "attrs": {}, "parents": [ref("Action", each) for each in group]})
        unique = {(entity["uid"]["type"], entity["uid"]["id"]): entity for entity in entities}
        request = {
            "principal": ref(who.capitalize(), name),
            "action": ref("Action", action),
            "resource": ref(TYPES[type], id),
            "context": {"delegated": False},
        }
        answer = cedarpy.is_authorized(request, self.text, list(unique.values()))
        holding = [int(policy.removeprefix("policy")) for policy in answer.diagnostics.reasons]
        raised = [int(found) for error in answer.diagnostics.errors for found in re.findall(r"`policy(\d+)`:", error)]
        errors = sorted(self.effects[number][0] for number in raised)
        for numbers in (holding, raised):
            if forbids := sorted(self.effects[at][0] for at in numbers if self.effects[at][1] == "forbid"):
                return "forbid", forbids[0], errors
        permits = sorted(self.effects[at][0] for at in holding)
        return ("permit", permits[0], errors) if answer.allowed else ("silent", None, errors)
