"""Worlds for the benchmarks of grants, as data of a world file, and random questions. All are seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

AskedRight: TypeAlias = tuple[str, str, str]
"""Principal, action, object."""
BATCH: Final = 50
"""Questions in one batch: the default limit of OpenFGA's BatchCheck."""

ACTIONS: Final = {
    "table": [
        "read_data",
        "write_data",
        "get_metadata",
        "include_in_list",
        "commit",
        "drop",
        "grant_select",
        "manage_tags",
    ],
    "namespace": ["get_metadata", "create_table", "list_tables", "list_everything", "delete", "read_assignments"],
    "warehouse": ["use", "get_metadata", "create_namespace", "list_everything"],
}
_BELOW: Final = frozenset({"get_metadata", "list_tables", "use"})
"""Actions on containers that a visible object below allows."""
_FROM_ABOVE: Final = {
    type: [action for action in actions if type == "table" or action not in _BELOW] for type, actions in ACTIONS.items()
}
_PRIVILEGES: Final = {
    "table": ["select", "select", "select", "modify", "describe", "ownership", "pass_grants"],
    "namespace": ["select", "select", "describe", "modify", "create", "ownership", "manage_grants"],
    "warehouse": ["describe", "select", "create", "modify", "manage_tags"],
}
PROJECT: Final = "project:main"


class Layout(NamedTuple):
    """Size of a world. `namespaces` counts per warehouse, `tables` per namespace."""

    warehouses: int
    namespaces: int
    tables: int
    users: int
    roles: int

    def object(self, type: str, rng: random.Random) -> str:
        """Return a random object of a type."""
        warehouse, namespace = rng.randrange(self.warehouses), rng.randrange(self.namespaces)
        if type == "table":
            return table(warehouse, namespace, rng.randrange(self.tables))
        return f"warehouse:w{warehouse}" if type == "warehouse" else f"namespace:w{warehouse}/ns{namespace:02}"

    def user(self, rng: random.Random) -> str:
        """Return a random user."""
        return f"user:oidc~u{rng.randrange(self.users)}"

    def questions(self, rng: random.Random, count: int, *, below: bool = True) -> list[AskedRight]:
        """Return random questions, two thirds about tables. `below` includes visibility from below."""
        kinds = rng.choices(("table", "namespace", "warehouse"), (65, 25, 10), k=count)
        actions = ACTIONS if below else _FROM_ABOVE
        return [(self.user(rng), rng.choice(actions[kind]), self.object(kind, rng)) for kind in kinds]

    def tables_of(self, warehouse: int) -> list[str]:
        """Return all tables of one warehouse."""
        return [
            table(warehouse, namespace, number) for namespace in range(self.namespaces) for number in range(self.tables)
        ]

    def seen(self) -> list[str]:
        """Return all tables, which are known but not registered."""
        return [text for warehouse in range(self.warehouses) for text in self.tables_of(warehouse)]

    def objects(self) -> list[dict[str, Any]]:
        """Return the registered objects: warehouses and roles of one project, some namespaces with managed access."""
        of_project = [f"warehouse:w{number}" for number in range(self.warehouses)]
        of_project += [f"role:r{number}" for number in range(self.roles)]
        managed = [{"object": f"namespace:w{number}/ns01", "managedAccess": True} for number in range(self.warehouses)]
        return [{"object": text, "parent": PROJECT} for text in of_project] + managed[::3]


def table(warehouse: int, namespace: int, number: int) -> str:
    """Return the reference of a table."""
    return f"table:w{warehouse}/ns{namespace:02}/t{number:03}"


def memberships(layout: Layout, rng: random.Random) -> Iterator[dict[str, str]]:
    """Yield memberships: every second user is in a role, every fifth role is in the previous role."""
    for number in range(0, layout.users, 2):
        yield _grant(f"user:oidc~u{number}", "assignee", f"role:r{rng.randrange(layout.roles)}")
    for number in range(5, layout.roles, 5):
        yield _grant(f"role:r{number}", "assignee", f"role:r{number - 1}")


def random_grants(layout: Layout, rng: random.Random, count: int) -> Iterator[dict[str, str]]:
    """Yield random grants: a quarter to roles, most on tables, many on namespaces, few on warehouses."""
    for kind in rng.choices(("table", "namespace", "warehouse"), (70, 28, 2), k=count):
        principal = f"role:r{rng.randrange(layout.roles)}" if rng.random() < 0.25 else layout.user(rng)
        yield _grant(principal, rng.choice(_PRIVILEGES[kind]), layout.object(kind, rng))


# --- A: ten thousand tables ---------------------------------------------------------------------------------------

TEN_THOUSAND: Final = Layout(warehouses=10, namespaces=20, tables=50, users=1_000, roles=50)
USERS_PER_KIND: Final = 2
KINDS: Final = {
    "one namespace": [f"user:oidc~steward{number}" for number in range(USERS_PER_KIND)],
    "40 scattered tables": [f"user:oidc~analyst{number}" for number in range(USERS_PER_KIND)],
    "nothing": [f"user:oidc~nobody{number}" for number in range(USERS_PER_KIND)],
}
"""Kind -> users whose tables in the first warehouse are listed."""


def ten_thousand() -> dict[str, Any]:
    """Return a world of 10 warehouses with 20 namespaces of 50 tables; 1,000 users, 50 roles, 2,000 random grants."""
    rng, layout = random.Random(7), TEN_THOUSAND
    grants = [*memberships(layout, rng), *random_grants(layout, rng, 2_000)]
    for number, user in enumerate(KINDS["one namespace"]):
        grants.append(_grant(user, "select", f"namespace:w0/ns{number + 10:02}"))
    for user in KINDS["40 scattered tables"]:
        places = rng.sample(range(layout.namespaces * layout.tables), 40)
        grants += [_grant(user, "select", table(0, place // layout.tables, place % layout.tables)) for place in places]
    return {"objects": layout.objects(), "grants": grants, "seen": layout.seen()}


# --- B: one warehouse that fans out -------------------------------------------------------------------------------

FAN_OUT: Final = "warehouse:wide"
FAN_OUT_KINDS: Final = {
    "no access": [f"user:oidc~stranger{number}" for number in range(20)],
    "one deep grant": [f"user:oidc~deep{number}" for number in range(20)],
    "project describe": [f"user:oidc~overseer{number}" for number in range(20)],
}


def fan_out() -> dict[str, Any]:
    """Return a world of 68 namespaces and 353 tables in one warehouse. Access to the warehouse is from below or above."""
    namespaces = [f"namespace:wide/n{number:02}" for number in range(68)]
    tables = [f"table:wide/n{number % 68:02}/t{number:03}" for number in range(353)]
    grants = [_grant(user, "describe", PROJECT) for user in FAN_OUT_KINDS["project describe"]]
    grants += [
        _grant(user, "select", tables[number * 17]) for number, user in enumerate(FAN_OUT_KINDS["one deep grant"])
    ]
    return {"objects": [{"object": FAN_OUT, "parent": PROJECT}], "grants": grants, "seen": [*namespaces, *tables]}


# --- C: a million grants ------------------------------------------------------------------------------------------

MILLION: Final = Layout(warehouses=20, namespaces=50, tables=100, users=5_000, roles=500)


def million_grants() -> Iterator[dict[str, str]]:
    """Yield the memberships, and ten grants on each of 100,000 tables, three in ten to roles."""
    rng, layout = random.Random(11), MILLION
    yield from memberships(layout, rng)
    for text in layout.seen():
        for _ in range(10):
            principal = f"role:r{rng.randrange(layout.roles)}" if rng.random() < 0.3 else layout.user(rng)
            yield _grant(principal, rng.choice(_PRIVILEGES["table"]), text)


def _grant(principal: str, privilege: str, object: str) -> dict[str, str]:
    return {"principal": principal, "privilege": privilege, "object": object}
