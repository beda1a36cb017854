"""Rules, grants and their combination in the plainest Python: may somebody do one concrete thing?

Written from the vocabulary: the checks that an action asks of rules, each rule evaluated by the reference evaluator;
grants as the plain model has them; a forbid wins, then one engine that permits suffices.
"""

from functools import cache
from typing import Any

from cel_expr_python import cel
from spec.grants import Spec

CONTENT_TYPE = {"table": "ICEBERG_TABLE", "view": "ICEBERG_VIEW", "namespace": "NAMESPACE"}
VIEWING = ("use", "get_config", "get_metadata", "include_in_list")
TEXTS = ("op", "role", "ref", "path", "contentType", "warehouse")


@cache
def compiled(rule: str) -> Any:
    lists = dict.fromkeys(("roles", "actions"), cel.Type.List(cel.Type.STRING))
    return cel.NewEnv(variables={**dict.fromkeys(TEXTS, cel.Type.STRING), **lists, "delegated": cel.Type.BOOL}).compile(
        rule
    )


def rule_checks(kind: str, action: str, path: str, new: str, to: str) -> list[tuple[str, str, str]] | None:
    """Return the rule checks of an action beside VIEW_REFERENCE: (op, path, contentType). None: rules never decide it."""
    commit, own = ("COMMIT_CHANGE_AGAINST_REFERENCE", "", ""), CONTENT_TYPE.get(kind, "")
    verb, _, created = action.partition("_")
    if kind == "warehouse" and action in VIEWING:
        return []
    if verb == "list":
        return [("READ_ENTRIES", "", "")]
    if action == "include_in_list":
        return [("READ_CONTENT_KEY", path, own)]
    if action in ("get_metadata", "read_data", "select"):
        return [("READ_ENTITY_VALUE", path, own)]
    if action == "write_data":
        return [commit, ("READ_ENTITY_VALUE", path, own), ("UPDATE_ENTITY", path, own)]
    if action in ("commit", "update_properties"):
        return [commit, ("UPDATE_ENTITY", path, own)]
    if verb == "create":
        return [commit, ("CREATE_ENTITY", new, CONTENT_TYPE[created])]
    if action in ("rename", "move"):
        return [commit, ("DELETE_ENTITY", path, own), ("CREATE_ENTITY", to, own)]
    return (
        [commit, ("DELETE_ENTITY", path, own)]
        if action == "drop" or (kind, action) == ("namespace", "delete")
        else None
    )


class RightsSpec:
    """Rights of one user under a policy set."""

    def __init__(self, policies: dict[str, Any], user: str, roles: list[str]) -> None:
        self.engines = policies["config"]["authorities"]["default"]["engines"]
        self.rules, self.forbid = policies.get("rules", {}), policies.get("forbid", {})
        world = policies.get("world", {"objects": [], "grants": []})
        carried = [{"principal": f"user:oidc~{user}", "privilege": "assignee", "object": f"role:{r}"} for r in roles]
        self.world = {**world, "grants": [*world["grants"], *carried]}
        self.user, self.roles = user, roles

    def may(self, kind: str, action: str, where: tuple[str, str, str], **more: Any) -> bool | None:
        """Tell whether the user may; None if a forbid binds. `where` is (warehouse, ref, path); `more`: new and to (paths), delegated, actions."""
        warehouse, ref, path = where
        new, to = more.pop("new", ""), more.pop("to", "")
        given = {
            "role": self.user,
            "roles": self.roles,
            "ref": ref,
            "warehouse": warehouse,
            "actions": [],
            "delegated": False,
        }
        questions = rule_checks(kind, action, path, new, to)

        def some(rules: dict[str, str], question: tuple[str, str, str]) -> bool:
            op, about, type = question
            also = {"DELETE_ENTITY": "FROM", "CREATE_ENTITY": "TO"}.get(op, "") if action in ("rename", "move") else ""
            names = [*more.get("actions", []), *([f"CATALOG_RENAME_ENTITY_{also}"] if also else [])]
            world = {**given, **more, "op": op, "path": about, "contentType": type, "actions": names}
            return any(compiled(rule).eval(data=world).plain_value() is True for rule in rules.values())

        view, implicit = ("VIEW_REFERENCE", "", ""), not any("VIEW_REFERENCE" in rule for rule in self.rules.values())
        if questions is not None and any(some(self.forbid, question) for question in (view, *questions)):
            return None
        sees_ref = implicit or some(self.rules, view)
        by_rules = questions is not None and not (implicit and not questions) and sees_ref
        if "cel" in self.engines and by_rules and all(some(self.rules, question) for question in questions or []):
            return True
        target = f"{kind}:{warehouse}" + "".join(f"/{part}" for part in path.split(".") if part)
        return "grants" in self.engines and Spec(self.world, f"user:oidc~{self.user}", target).may(action, target)
