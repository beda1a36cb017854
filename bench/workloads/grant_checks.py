"""Workloads of grants in a world of 10,000 tables: single checks, a catalog's listing, 1,000 native checks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from workloads.trino_requests import BATCHES, TableName, TrinoUser
from workloads.workload import Body, RightAnswer, Side, Workload, pdp_config

ACTIONS: Final = {"select": "read_data", "modify": "write_data"}
"""Privilege -> action of our service."""
IMPLYING: Final = {"select": ("modify", "select"), "modify": ("modify",)}
"""Privilege -> privileges that give it."""
CHECKS: Final = 2000

_REGO: Final = """package pdp

default allow := false

who := {concat(":", ["user", input.user])} | {s | some x in data.member[input.user]; s := concat(":", ["role", x])}

direct(o) if data.owner[o] == input.user

direct(o) if {
	g := data.grants[o]
	some s in who
	some p in data.implied[input.privilege]
	g[s][p]
}

allow if {
	some o in data.above[input.table]
	direct(o)
}

filter contains i if {
	some i, t in input.tables
	some o in data.above[t]
	direct(o)
}
"""
"""Policy of OPA. `data.above` has every object's ancestors, computed in advance."""


class HeldGrant(NamedTuple):
    """Grant of a privilege on an object, such as `w1.n02.t03`, to a user or a role."""

    kind: str
    holder: str
    privilege: str
    object: str


class GrantWorld:
    """10 warehouses of 20 namespaces of 50 tables, each with an owner; 1,000 users, 50 roles, 2,000 grants."""

    def __init__(self, random: Random) -> None:
        self.warehouses = [f"w{number}" for number in range(10)]
        self.namespaces = [f"{above}.n{number:02d}" for above in self.warehouses for number in range(20)]
        self.tables = [f"{above}.t{number:02d}" for above in self.namespaces for number in range(50)]
        self.users = [f"u{number:04d}" for number in range(1000)]
        self.roles = [f"r{number:02d}" for number in range(50)]
        self.member = {user: sorted(random.sample(self.roles, random.randint(1, 3))) for user in self.users}
        self.owner = {each: random.choice(self.users) for each in self.objects}
        found: set[HeldGrant] = set()
        while len(found) < 2000:
            found.add(self._grant(random))
        self.grants = sorted(found)
        self._held = set(self.grants)

    @property
    def objects(self) -> list[str]:
        """Objects, from the warehouses down."""
        return [*self.warehouses, *self.namespaces, *self.tables]

    def may(self, user: str, privilege: str, table: str) -> bool:
        """Tell whether the user owns the table or an object above, or holds the privilege there."""
        holders = [("user", user), *(("role", role) for role in self.member[user])]
        return any(
            self.owner[each] == user
            or any(
                HeldGrant(*holder, implying, each) in self._held
                for holder in holders
                for implying in IMPLYING[privilege]
            )
            for each in above(table)
        )

    def _grant(self, random: Random) -> HeldGrant:
        level = random.random()
        place = self.warehouses if level < 0.02 else self.namespaces if level < 0.3 else self.tables
        object = random.choice(place)
        kind, holders = ("role", self.roles) if random.random() < 0.6 else ("user", self.users)
        holder = random.choice(holders)
        return HeldGrant(kind, holder, random.choice(["select"] * 7 + ["modify"] * 3), object)


def above(object: str) -> list[str]:
    """Return the object and its ancestors, from the object up."""
    parts = object.split(".")
    return [".".join(parts[:depth]) for depth in range(len(parts), 0, -1)]


def reference(object: str) -> str:
    """Return the object's reference in our service."""
    return f"{('warehouse', 'namespace', 'table')[object.count('.')]}:{object.replace('.', '/')}"


def _principal(kind: str, name: str) -> str:
    return f"user:oidc~{name}" if kind == "user" else f"role:{name}"


def _entry(principal: str, privilege: str, object: str) -> dict[str, str]:
    return {"principal": principal, "privilege": privilege, "object": object}


def our_files(world: GrantWorld) -> dict[str, str]:
    """Return the files of our service."""
    in_project = [*(f"role:{role}" for role in world.roles), *map(reference, world.warehouses)]
    objects: list[Any] = [{"object": text, "parent": "project:p"} for text in in_project]
    members = [
        _entry(_principal("user", user), "assignee", f"role:{role}")
        for user, roles in world.member.items()
        for role in roles
    ]
    owners = [_entry(_principal("user", user), "ownership", reference(each)) for each, user in world.owner.items()]
    granted = [
        _entry(_principal(grant.kind, grant.holder), grant.privilege, reference(grant.object)) for grant in world.grants
    ]
    seed = {
        "objects": ["project:p", *objects, *map(reference, [*world.namespaces, *world.tables])],
        "grants": [*members, *owners, *granted],
    }
    config = pdp_config(
        {name: {"project": "p"} for name in world.warehouses},
        "grants",
        policies={"rules": []},
        store={"url": "sqlite:///pdp.db", "seed": "world.json"},
        trino={"catalogs": {name: {"warehouse": name} for name in world.warehouses}},
    )
    return {"pdp.yaml": config, "world.json": json.dumps(seed)}


def opa_files(world: GrantWorld) -> dict[str, str]:
    """Return the policy and the data document of OPA."""
    held: dict[str, dict[str, dict[str, bool]]] = {}
    for grant in world.grants:
        holders = held.setdefault(grant.object, {})
        holders.setdefault(f"{grant.kind}:{grant.holder}", {})[grant.privilege] = True
    data = {
        "member": world.member,
        "owner": world.owner,
        "grants": held,
        "above": {each: above(each) for each in world.objects},
        "implied": IMPLYING,
    }
    return {"policy.rego": _REGO, "data.json": json.dumps(data)}


def grant_checks(random: Random) -> Iterator[Workload]:
    """Yield the workloads of grants."""
    world = GrantWorld(random)
    files = our_files(world), opa_files(world)
    yield _single(world, files, random)
    yield _lists("grants-filter", world, files, random)
    yield _lists("grants-native1000", world, files, random)


_Files = tuple[dict[str, str], dict[str, str]]


def _single(world: GrantWorld, files: _Files, random: Random) -> Workload:
    """Return single checks. Half of them are allowed."""
    ours: list[Body] = []
    theirs: list[Body] = []
    right: list[RightAnswer] = []
    while len(right) < CHECKS:
        user, table = random.choice(world.users), random.choice(world.tables)
        privilege = random.choice(["select", "select", "select", "modify"])
        answer = world.may(user, privilege, table)
        if answer == (len(right) % 2 == 0):
            ours.append({"checks": [_check(user, privilege, table)]})
            theirs.append({"input": {"user": user, "privilege": privilege, "table": table}})
            right.append(answer)
    return Workload(
        "grants-single",
        Side(files[0], "/v1/check", ours),
        Side(files[1], "/v1/data/pdp/allow", theirs),
        right,
    )


def _lists(name: str, world: GrantWorld, files: _Files, random: Random) -> Workload:
    """Return questions about 1,000 tables: those of one warehouse as Trino's request, or any of them as native checks."""
    trino = name == "grants-filter"
    ours: list[Body] = []
    theirs: list[Body] = []
    right: list[RightAnswer] = []
    for number in range(BATCHES):
        user = world.users[number * 31]
        below = f"w{number % 10}."
        tables = (
            [each for each in world.tables if each.startswith(below)] if trino else random.sample(world.tables, 1000)
        )
        random.shuffle(tables)
        right.append([at for at, table in enumerate(tables) if world.may(user, "select", table)])
        theirs.append({"input": {"user": user, "privilege": "select", "tables": tables}})
        ours.append(_listing(user, tables) if trino else {"checks": [_check(user, "select", each) for each in tables]})
    path = "/v1/data/trino/batch" if trino else "/v1/check"
    opa = Side(files[1], "/v1/data/pdp/filter", theirs)
    return Workload(name, Side(files[0], path, ours), opa, right, (1,))


def _check(user: str, privilege: str, table: str) -> Body:
    return {"principal": _principal("user", user), "action": ACTIONS[privilege], "resource": reference(table)}


def _listing(user: str, tables: Sequence[str]) -> Body:
    resources = [TableName(*table.split(".")).resource() for table in tables]
    action = {"operation": "FilterTables", "filterResources": resources}
    return {"input": {"context": TrinoUser(user, []).context(), "action": action}}
