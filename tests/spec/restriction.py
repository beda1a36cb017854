"""Row access in the plainest Python over a document's data: no index, no memory, names compared one by one."""

from typing import Any

from spec.grants import World, roles

KINDS = [
    "null", "mask-to-fixed-value", "constant", "hash", "mask-alphanum", "partial", "show-last-4", "show-first-4",
    "truncate-to-year", "truncate-to-month", "expression",
]  # fmt: skip
PROVIDER = "oidc"
Data = dict[str, Any]


def visible_part(data: Data, world: World, who: Data, table: tuple[str, list[str]]) -> Data:
    """Return the ids of the policies that show rows (None: every row is visible), and the masks by column."""
    covering = [policy for policy in data.get("policies", []) if covers(policy["table"], table)]
    matching = sorted((p for p in covering if names(world, who, p["grantees"])), key=lambda p: p["id"])
    rows: list[str] | None = [p["id"] for p in matching]
    if any(p["filter"].upper() == "TRUE" for p in matching):
        rows = None
    elif not covering:
        rows = [] if any(holds(container, table) for container in data.get("protected", [])) else None
    masks: Data = {}
    for mask in sorted(data.get("masks", []), key=lambda m: (KINDS.index(m["kind"]), m["id"]), reverse=True):
        named = could_be(world, who, mask["grantees"]) and not names(world, who, mask.get("except", []))
        if named and covers(mask["table"], table):
            masks[mask["column"].lower()] = mask["id"]
    return {"rows": rows, "masks": masks}


def covers(text: str, table: tuple[str, list[str]]) -> bool:
    """Tell whether a policy for `lake.s.t`, or for `table:lake/s/t`, covers a table: in any case, by any dots."""
    warehouse, _, name = text.removeprefix("table:").replace("/", ".").partition(".")
    return warehouse == table[0] and name.lower() == joined(table)


def holds(container: str, table: tuple[str, list[str]]) -> bool:
    if container.startswith("warehouse:"):
        return container == f"warehouse:{table[0]}"
    warehouse, _, name = container.removeprefix("namespace:").replace("/", ".").partition(".")
    return warehouse == table[0] and joined(table).startswith(f"{name.lower()}.")


def joined(table: tuple[str, list[str]]) -> str:
    return ".".join(table[1]).lower()


def names(world: World, who: Data, grantees: list[str]) -> bool:
    return any(is_one(world, who, grantee) for grantee in grantees)


def could_be(world: World, who: Data, grantees: list[str]) -> bool:
    """Tell whether a mask may name a principal: groups and addresses count from every provider."""
    sort, _, whole = who["id"].partition(":")
    host = f"domain:{whole.rpartition('@')[2]}".lower() if sort == "user" and "@" in whole else ""
    groups = [f"group:{group.removeprefix('group:')}" for group in who.get("groups", [])]
    held = any(same(group, grantee) for group in groups for grantee in grantees)
    return held or host in map(str.lower, grantees) or names(world, who, grantees)


def is_one(world: World, who: Data, grantee: str) -> bool:
    kind, _, name = grantee.partition(":")
    id: str = who["id"]
    sort, _, whole = id.partition(":")
    if grantee == "allUsers":
        return True
    if grantee == "allAuthenticatedUsers":
        return sort != "anonymous"
    if kind == "role":
        return id == grantee or name in roles(world, id)
    if kind == "group":
        return any(same(ours(whole, group), name) for group in who.get("groups", []))
    if sort != "user":
        return False
    idp, _, subject = whole.partition("~")
    if kind == "domain":
        return idp == PROVIDER and subject.lower().split("@", 1)[1:] == [name.lower()]
    return kind == "user" and same(ours(whole, subject), name)


def ours(whole: str, name: str) -> str:
    """Return a name of our provider as it is; any other name, and a name that looks like one, with its provider."""
    idp = whole.partition("~")[0] if "~" in whole else PROVIDER
    name = name.removeprefix("group:")
    return name if idp == PROVIDER and not name.startswith(("oidc~", "corp~")) else f"{idp}~{name}"


def same(one: str, other: str) -> bool:
    """Tell whether two addresses are equal: the host in any case, all before it letter by letter."""
    return one.lower() == other.lower() and one.partition("@")[0] == other.partition("@")[0]
