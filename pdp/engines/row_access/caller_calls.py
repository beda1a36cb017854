"""Functions of the caller in parsed SQL, which become the marks of `trino`: one form in every spelling of an author."""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

from pdp.engines.row_access.trino import CLAIM, CLAIM_NAME, LISTS, MARK, UntranslatableSql


def mark_of(node: exp.Expr) -> str:
    """Return the mark of a node, without signs; empty for another node."""
    is_mark = isinstance(node, exp.Literal) and node.is_string and node.name.startswith(MARK)
    return node.name.strip(MARK) if is_mark else ""


def is_caller_call(node: exp.Expr, dialect: str) -> bool:
    """Tell whether a node calls a function of ours for groups, roles or a claim, or Databricks' for a group."""
    if not isinstance(node, exp.Anonymous) or isinstance(node.this, exp.Identifier) or isinstance(node.parent, exp.Dot):
        return False
    name, arguments = node.name.lower(), node.expressions
    if name == "current_claim":
        return len(arguments) == 1 and _is_claim(arguments[0])
    return (name in _LIST_CALLS and not arguments) or (
        dialect == "spark" and name in GROUP_TESTS and len(arguments) == 1
    )


def _is_claim(node: exp.Expr) -> bool:
    return (
        isinstance(node, exp.Literal) and node.is_string and re.fullmatch(CLAIM_NAME, node.name, re.ASCII) is not None
    )


_LIST_CALLS: Final = {f"current_{name}": name for name in LISTS}
GROUP_TESTS: Final = frozenset({"is_member", "is_account_group_member"})
"""Functions of Databricks for the groups of the caller."""


def mark_calls(tree: exp.Expr, dialect: str) -> exp.Expr:
    """Return a tree with marks in place of the functions of the caller; raise UntranslatableSql. Changes the tree.

    A test for a member of a list gets the same form in every spelling.
    """
    for node in reversed(list(tree.walk())):
        new = _with_mark(node, dialect)
        if new is not node:
            if node is tree:
                tree = new
            else:
                node.replace(new)
    for node in tree.find_all(exp.Literal):
        if mark_of(node) in LISTS and not (isinstance(node.parent, exp.ArrayContains) and node.arg_key == "this"):
            name = f"current_{mark_of(node)}()"
            raise UntranslatableSql(f"`{name}` is a list: write contains({name}, ..)")
    return tree


def _with_mark(node: exp.Expr, dialect: str) -> exp.Expr:
    if isinstance(node, (exp.SessionUser, exp.CurrentUser)):
        return _mark("caller")
    listed = node.args.get("unnest") if isinstance(node, exp.In) else None
    if listed is not None and len(listed.expressions) == 1 and mark_of(listed.expressions[0]) in LISTS:
        return exp.ArrayContains(this=listed.expressions[0], expression=node.this)
    if not is_caller_call(node, dialect):
        return node
    name = node.name.lower()
    if name == "current_claim":
        return _mark(f"{CLAIM}{node.expressions[0].name}")
    if name in GROUP_TESTS:
        return exp.ArrayContains(this=_mark("groups"), expression=node.expressions[0])
    return _mark(_LIST_CALLS[name])


def _mark(name: str) -> exp.Literal:
    return exp.Literal.string(f"{MARK}{name}{MARK}")
