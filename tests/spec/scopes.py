"""LakeQL's scopes in the plainest Python: the two decision tables, the search for an entry and a rule, scope maps.

Written from the documented tables and from recorded decisions of LakeQL. An exception of LakeQL is an exception here.
"""

from typing import Any


def find_entry(permissions: list[Any], user: dict[str, Any]) -> Any:
    for entry in permissions:
        if "userName" in user and user["userName"] == entry["name"]:
            return entry
    return None


def matches(rules: list[Any], place: dict[str, Any]) -> bool:
    for rule in rules:
        if rule["catalog"] == place.get("catalog") and rule["schema"] == place.get("schema"):
            tables = rule["tables"]  # LakeQL raises, too
            if tables[:1] == ["*"] or place.get("tableName") in tables:
                return True
    return False


def may_read(permissions: list[Any], user: Any, place: dict[str, Any], *, strict: bool) -> bool:
    if user is None:
        return False
    entry = find_entry(permissions, user)
    if entry is None:
        return not strict
    rules = entry["permissions"]["Query"]  # LakeQL raises, too
    return matches(rules, place) if len(rules) else not strict


def may_write(permissions: list[Any], user: Any, place: dict[str, Any]) -> bool:
    if user is None:
        return False
    entry = find_entry(permissions, user)
    if entry is None:
        return False
    rules = entry["permissions"]["Mutation"]
    return matches(rules, place) if len(rules) else False


def allowed(permissions: list[Any], user: Any, scopes: Any, *, strict: bool = False) -> bool:
    """Return LakeQL's answer to a field with scopes; an exception of any part denies."""

    def member(name: str, value: Any) -> bool:
        if value is None or value is False:
            return False
        if name == "authorized":
            return user is not None
        if name == "readPermission":
            return may_read(permissions, user, value, strict=strict)
        if name == "writePermission":
            return may_write(permissions, user, value)
        assert name in ("$all", "$any")
        return joined(value, all if name == "$all" else any)

    def joined(members: dict[str, Any], join: Any) -> bool:
        answers = [member(name, value) for name, value in members.items()]  # no part is left out
        return bool(answers) and bool(join(answers))

    if scopes is None:
        return True
    try:
        return joined(scopes, any)
    except (KeyError, TypeError):
        return False
