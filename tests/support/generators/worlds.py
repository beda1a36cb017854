"""Small generated policies and checks: three names of everything, so that collisions are common."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

USERS = ["user:oidc~a", "user:oidc~b", "role:r"]
OPS = [
    "VIEW_REFERENCE",
    "READ_ENTITY_VALUE",
    "READ_CONTENT_KEY",
    "COMMIT_CHANGE_AGAINST_REFERENCE",
    "UPDATE_ENTITY",
    "READ_ENTRIES",
]
ATOMS = [
    *(f"op=='{op}'" for op in OPS),
    "op.startsWith('READ_')",
    "role=='a'",
    "'r' in roles",
    "ref=='main'",
    "ref.startsWith('d')",
    "path.startsWith('n.')",
    "path=='n.t'",
    "delegated",
    "warehouse=='w'",
    "api.apiName=='Iceberg'",
    "roles[0]=='x'",
    "true",
    "false",
]
expressions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        st.builds("({} && {})".format, inner, inner)
        | st.builds("({} || {})".format, inner, inner)
        | st.builds("!({})".format, inner)
    ),
    max_leaves=5,
)
rules = st.dictionaries(st.sampled_from(["a", "b", "c", "__z", "Z"]), expressions, max_size=4)
RESOURCES = [
    "table:w/n/t@main",
    "table:w/n/t@dev",
    "table:w/m/t",
    "view:w/n/v@main",
    "table_or_view:w/n/t@main",
    "namespace:w/n@dev",
    "warehouse:w",
    "reference:w@main",
    "content:w/n/t",
]
ACTIONS = [
    "read_data",
    "select",
    "get_metadata",
    "write_data",
    "include_in_list",
    "use",
    "list_tables",
    "VIEW_REFERENCE",
    "READ_ENTITY_VALUE",
    "fly",
    "trino:SelectFromColumns",
    "trino:ExecuteQuery",
]
grants = st.lists(
    st.fixed_dictionaries(
        {
            "principal": st.sampled_from(USERS),
            "privilege": st.sampled_from(["select", "modify", "describe", "ownership"]),
            "object": st.sampled_from(["table:w/n/t", "namespace:w/n", "warehouse:w"]),
        }
    ),
    max_size=3,
    unique_by=lambda grant: tuple(grant.values()),
)
configs = st.fixed_dictionaries(
    {
        "authorities": st.sampled_from([["cel", "grants"], ["grants", "cel"], ["cel"], ["grants"]]).flatmap(
            lambda engines: st.sampled_from(["any", "all"]).map(
                lambda combine: {"default": {"engines": engines, "combine": combine}}
            )
        ),
        "warehouses": st.sampled_from([{}, {"w": {"default_ref": "main"}}]),
    }
)


def check(principal: str, action: str, resource: str, acting: str | None, delegated: bool) -> dict[str, Any]:
    given: dict[str, Any] = {
        "principal": {"id": principal, "roles": ["r"]},
        "action": action,
        "resource": resource,
        "delegated": delegated,
    }
    return given | ({"actingRole": acting} if acting else {})


checks = st.lists(
    st.builds(
        check,
        st.sampled_from(USERS),
        st.sampled_from(ACTIONS),
        st.sampled_from(RESOURCES),
        st.sampled_from([None, None, "role:r"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)
