"""Relations of a catalog give the answers of the same relations in a policy file, on generated statements."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from support.generators.generated_sql import RELATIONS, SqlGenerator
from support.oracles.secure_views import random_masks, random_policies
from support.rewriting import POLICIES

from pdp.rewrite.process.messages import (
    DIALECTS,
    Call,
    FilterCall,
    KnownRelation,
    PolicyState,
    RewriteCall,
    StatementUser,
)
from pdp.rewrite.process.worker import RewriteProcess

DATA = json.loads(POLICIES.read_text("utf-8"))
DEFAULT = DATA["default"]
READERS = (
    StatementUser("user", "oidc~alice@example.com", ("eu@example.com",)),
    StatementUser("user", "oidc~dave@partner.example"),
)


def full(name: str) -> tuple[str, ...]:
    parts = name.split(".")
    return (*DEFAULT[: 3 - len(parts)], *parts)


def described(policies: list[Any], masks: list[Any]) -> Iterator[PolicyState]:
    """Yield the setups: with relations in a file, and in a catalog."""
    views = {name: {**view, "dialect": "duckdb"} for name, view in DATA["views"].items() if not view.get("owner")}
    rest = {"default": DEFAULT, "policies": policies, "masks": masks}
    known = [KnownRelation(full(name), tuple(table["columns"].items())) for name, table in DATA["tables"].items()]
    for name, view in views.items():
        path, columns = full(name), tuple((column, "") for column in view.get("columns", ()))
        known.append(KnownRelation(path, columns, True, (("duckdb", view["sql"]),), ("", ".".join(path[1:-1]))))
    for documents, relations in (
        ([{**rest, "tables": DATA["tables"], "views": views}], ()),
        ([rest], (msgspec.msgpack.encode(known[::2]), msgspec.msgpack.encode(known[1::2]))),
    ):
        yield PolicyState("1", documents, (), "user:{subject}", "oidc", {}, warehouses=("lake",), known=relations)


def answer(rewriting: RewriteProcess, call: Call) -> str:
    """Return the answer with one name for the rows that a filter reads, whose names are random.

    Spellings to confirm are left out: a file has nothing to confirm.
    """
    reply = rewriting.answer(call)
    uses = tuple(msgspec.structs.replace(use, spellings=()) for use in reply.uses)
    text = msgspec.json.encode(msgspec.structs.replace(reply, uses=uses)).decode()
    return re.sub(r"_rap_row_[0-9a-f]+", "row", text)


def test_a_catalog_answers_as_a_file_does() -> None:
    dice = random.Random(11)
    answered = 0
    for world in range(5):
        filed, known = map(RewriteProcess, described(random_policies(dice), random_masks(dice)))
        generator = SqlGenerator(dice)
        for _ in range(16):
            reader = dice.choice(READERS)
            dialect = "duckdb" if dice.random() < 0.9 else dice.choice(DIALECTS)
            call = RewriteCall(generator.statement()[0], dialect, reader)
            wanted = answer(filed, call)
            assert answer(known, call) == wanted, (world, call.sql)
            answered += '"error"' not in wanted
        for name in RELATIONS:
            question = FilterCall(tuple(name.split(".")), "duckdb", READERS[0])
            assert answer(known, question) == answer(filed, question), name
    assert answered > 40
