"""Row filters and column masks in the plainest Python, over the data of a row access file."""

from typing import Any

Policies = dict[str, Any]


def filter_of(policies: Policies, table: str, members: set[str]) -> str | None:
    """Return the filter of `<warehouse>.<namespace>.<table>` for a member; None for all rows."""
    of_table = sorted((p for p in policies.get("policies", []) if p["table"] == table), key=lambda policy: policy["id"])
    filters = [policy["filter"] for policy in of_table if members.intersection(policy["grantees"])]
    if not of_table or any(text.upper() == "TRUE" for text in filters):
        return None
    return " OR ".join(f"({text})" for text in filters) if len(filters) > 1 else filters[0] if filters else "false"


def mask_of(policies: Policies, table: str, column: tuple[str, str], members: set[str]) -> str | None:
    """Return the mask of a column (name and type) for a member; None for the column itself.

    A hidden column reveals rows, so it is NULL if anything of the table is restricted.
    """
    name, type = column
    masks = {
        mask["column"]: {"null": f"CAST(NULL AS {type})"}[mask["kind"]]
        for mask in policies.get("masks", [])
        if mask["table"] == table
        and members.intersection(mask["grantees"])
        and not members.intersection(mask.get("except", []))
    }
    if name.startswith("$") and (masks or filter_of(policies, table, members)):
        return f"CAST(NULL AS {type})"
    return masks.get(name)
