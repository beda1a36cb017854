"""Scenarios as data: statements of users in order, and what each must get; see scenarios/*.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from support.paths import TESTS

from pdp.model import strict

FOLDER = TESTS / "real_trino" / "scenarios"


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One statement of one user. Exactly one of `rows`, `done`, `denied`, `fails` says what it must come to."""

    note: str
    user: str = msgspec.field(name="as")
    sql: str = ""
    rows: list[Any] | None = None
    """All rows, in any order; a row of one column may be written without brackets."""
    done: bool = False
    """It succeeds, whatever its rows."""
    denied: str | None = None
    """Part of what Trino says after `Access Denied: `."""
    fails: str | None = None
    """Part of the message of another error."""
    session: str = ""
    """Steps of one user that share what SET SESSION and its kin do; by default all steps of that user do."""
    leave: str = ""
    """The query is left running under this name; `{name}` in later statements is its id."""
    resume: str = ""
    """In place of `sql`: fetch all rows of a query left running."""
    rest: str = ""
    """In place of `sql`: a request to Trino's own interface, `GET /v1/node`, perhaps with a body behind it."""
    grants: dict[str, Any] | None = None
    """In place of `sql`: what the user adds to and removes from the service's grants."""
    audit: list[dict[str, Any]] = []
    """Rows that the audit must then hold; only the named fields are compared."""

    @property
    def asked(self) -> tuple[Any, ...]:
        """The kinds of what a step does; one of them is given."""
        return self.sql, self.resume, self.rest, self.grants

    def __post_init__(self) -> None:
        wanted = (self.rows is not None, self.done, self.denied is not None, self.fails is not None)
        if sum(wanted) != 1 or sum(map(bool, self.asked)) != 1:
            raise ValueError(f"`{self.note}` needs one statement and one result")


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Steps that belong together; they rest on base.yaml and on nothing else."""

    about: str
    steps: list[Step]


class Found(msgspec.Struct, frozen=True):
    """What a statement came to: rows, or an error of Trino's by its name."""

    rows: list[Any] = []
    error: str = ""
    text: str = ""


def load(name: str) -> Scenario:
    """The scenario of a file."""
    data = strict.load_yaml((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return msgspec.convert(data, Scenario)


def names() -> list[str]:
    """All scenarios but the base that they rest on."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml") if file.stem != "base")


def compare(step: Step, found: Found) -> list[str]:
    """What is not as wanted: nothing, or one line."""
    if step.denied is not None:
        as_wanted = found.error == "PERMISSION_DENIED" and step.denied in found.text
        wanted = f"denied: {step.denied}"
    elif step.fails is not None:
        as_wanted = found.error not in ("", "PERMISSION_DENIED") and step.fails in found.text
        wanted = f"fails: {step.fails}"
    elif step.rows is not None:
        as_wanted = not found.error and _sorted(found.rows) == _sorted(step.rows)
        wanted = f"rows: {_sorted(step.rows)}"
    else:
        as_wanted, wanted = not found.error, "done"
    got = f"{found.error}: {found.text}" if found.error else f"rows: {_sorted(found.rows)}"
    return [] if as_wanted else [f"wanted {wanted}\n    got    {got}"]


def covers(row: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a row of audit has all wanted fields; a resource with arguments is its reference."""
    resource = row["resource"]
    plain = {**row, "resource": resource["reference"] if isinstance(resource, dict) else resource}
    return all(plain.get(key) == value for key, value in wanted.items())


def _sorted(rows: list[Any]) -> list[list[Any]]:
    return sorted((_plain(row if isinstance(row, list) else [row]) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    """Numbers, booleans, texts, nulls and lists as they are, anything else as text."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
