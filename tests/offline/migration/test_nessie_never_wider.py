"""No migrated rule permits what Nessie denies, unless `--accept-wider` names the difference.

Nessie's own reading is modelled for generated rules: a variable without a value fails, AND and OR take a failure away
where the other side decides, and a rule that fails is not true. Recorded decisions are compared for recorded rules.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.paths import RECORDED, TESTS
from support.service.commands import run_pdp

from pdp.app.facts import build_pdp
from pdp.decision.codec import decode_batch
from pdp.engines.cel.lint.check_bindings import WIDENINGS
from pdp.errors import InvalidArgument
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.vocabulary import CONFIG_CHECKS, CONTENT_CHECKS
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp
from pdp.offline.migration.nessie import migrate_nessie
from pdp.offline.migration.report import Migration


def migrated(rules: Mapping[str, str], *accepted: str) -> Migration:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "application.yaml"
        file.write_text(json.dumps({"nessie": {"server": {"authorization": {"enabled": True, "rules": rules}}}}))
        return migrate_nessie([file], accepted=accepted)


def texts(migration: Migration) -> dict[str, str]:
    found: dict[str, str] = yaml.safe_load(migration.files["rules.yaml"])["rules"]
    return found


def decided(rules: Mapping[str, str], checks: list[Any]) -> list[bool]:
    """Decide checks by rules."""
    data = {"engines": ["cel"], "rules": dict(rules), "config": {"warehouses": {"nessie": {"kind": "nessie"}}}}
    pdp, _ = build_case_pdp(Case("generated", TESTS, data), build_pdp, MemoryAudit())
    batch = admit(decode_batch(json.dumps({"checks": checks}).encode(), 10_000), EMBEDDED_CALLER)
    return [bool(allowed) for allowed in asyncio.run(pdp.decide(batch)).answer.allowed]


def test_recorded_rules_permit_no_more_after_the_migration() -> None:
    lines = [json.loads(line) for line in (RECORDED / "nessie" / "golden.jsonl").read_text().splitlines()]
    cases = sorted((json.dumps(case.get("rules", {}), sort_keys=True), at) for at, case in enumerate(lines))
    equal = narrower = 0
    for text, group in groupby(cases, key=lambda case: case[0]):
        rules = json.loads(text)
        if not isinstance(rules, dict) or not rules or any("${" in rule or "\\" in rule for rule in rules.values()):
            continue  # other readers of texts have tests of their own
        parts = [lines[at] for _, at in group if "want" in lines[at]]
        checks = [check for part in parts for check in part["checks"]]
        wants = [want if isinstance(want, bool) else want["allowed"] for part in parts for want in part["want"]]
        migration = migrated(rules)
        if not wants:  # the load of these rules fails
            assert migration.left, rules
            continue
        found = decided(texts(migration), checks)
        wider = [check for check, allowed, want in zip(checks, found, wants, strict=True) if allowed and not want]
        assert wider == [], rules
        if not migration.left:
            assert found == wants, rules
            equal += len(wants)
        narrower += found != wants
    assert equal > 600, (equal, narrower)


class Atom(NamedTuple):
    """Test in a rule, and its outcome for a check: None where Nessie fails."""

    text: str
    outcome: Callable[[Mapping[str, Any]], bool | None]


def on(name: str, text: str, holds: Callable[[str], bool]) -> Atom:
    """Return a test of a variable that Nessie sets for some checks alone."""
    return Atom(text, lambda check: None if check[name] is None else holds(check[name]))


ATOMS: Final = [
    Atom("role == 'x'", lambda check: bool(check["role"] == "x")),
    Atom("role != 'y'", lambda check: bool(check["role"] != "y")),
    Atom("op == 'UPDATE_REPOSITORY_CONFIG'", lambda check: bool(check["op"] == "UPDATE_REPOSITORY_CONFIG")),
    Atom("op == 'READ_ENTITY_VALUE'", lambda check: bool(check["op"] == "READ_ENTITY_VALUE")),
    Atom("op in ['READ_ENTITY_VALUE', 'VIEW_REFERENCE']", lambda check: check["op"] in ("READ_ENTITY_VALUE", "VIEW_REFERENCE")),
    Atom("op in ['READ_ENTITY_VALUE', 'READ_REPOSITORY_CONFIG']", lambda check: check["op"] in ("READ_ENTITY_VALUE", "READ_REPOSITORY_CONFIG")),
    Atom("op != 'READ_ENTITY_VALUE'", lambda check: bool(check["op"] != "READ_ENTITY_VALUE")),
    Atom("op.startsWith('READ')", lambda check: bool(check["op"].startswith("READ"))),
    *(
        on(name, text.format(name), holds)
        for name in ("type", "contentType")
        for text, holds in (
            ("{} == 'A'", lambda value: value == "A"),
            ("'A' == {}", lambda value: value == "A"),
            ("{} == ''", lambda value: value == ""),
            ("{} != 'A'", lambda value: value != "A"),
            ("{} in ['A', 'B']", lambda value: value in ("A", "B")),
            ("{} in ['A', '']", lambda value: value in ("A", "")),
            ("{}.startsWith('A')", lambda value: value.startswith("A")),
            ("{}.startsWith('')", lambda value: True),
            ("{}.matches('^B*$')", lambda value: set(value) <= {"B"}),
            ("size({}) < 1", lambda value: not value),
        )
    ),
]  # fmt: skip


def both(parts: list[Atom], *, conjunction: bool) -> Atom:
    def outcome(check: Mapping[str, Any]) -> bool | None:
        found = [part.outcome(check) for part in parts]
        if (not conjunction) in found:
            return not conjunction
        return None if None in found else conjunction

    return Atom(f"({(' && ' if conjunction else ' || ').join(part.text for part in parts)})", outcome)


def negated(part: Atom) -> Atom:
    def outcome(check: Mapping[str, Any]) -> bool | None:
        found = part.outcome(check)
        return None if found is None else not found

    return Atom(f"!({part.text})", outcome)


def chosen(parts: tuple[Atom, Atom, Atom]) -> Atom:
    condition, then, otherwise = parts

    def outcome(check: Mapping[str, Any]) -> bool | None:
        found = condition.outcome(check)
        return None if found is None else (then if found else otherwise).outcome(check)

    return Atom(f"({condition.text} ? {then.text} : {otherwise.text})", outcome)


rules_of = st.recursive(
    st.sampled_from(ATOMS),
    lambda below: (
        st.lists(below, min_size=2, max_size=3).map(lambda parts: both(parts, conjunction=True))
        | st.lists(below, min_size=2, max_size=3).map(lambda parts: both(parts, conjunction=False))
        | below.map(negated)
        | st.tuples(below, below, below).map(chosen)
    ),
    max_leaves=6,
)


def inputs() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return checks as Nessie's rules see them, and as this service gets them."""
    found = []
    for role in ("x", "y"):
        for op in ("VIEW_REFERENCE", "READ_ENTITY_VALUE", "UPDATE_ENTITY", *sorted(CONFIG_CHECKS)):
            for value in ("A", "B"):
                is_config, is_content = op in CONFIG_CHECKS, op in CONTENT_CHECKS
                seen = {"role": role, "op": op, "type": value if is_config else None,
                        "contentType": None if is_config else value if is_content else ""}  # fmt: skip
                resource: dict[str, Any] = {"type": "reference", "warehouse": "nessie", "ref": "main"}
                if is_config:
                    resource = {"type": "repository_config", "warehouse": "nessie", "path": [value]}
                elif is_content:
                    resource |= {"type": "content", "path": ["a", "t"], "contentType": value}
                asked = {"principal": {"id": f"user:oidc~{role}"}, "action": op, "resource": resource}
                found.append((seen, asked))
    return found


INPUTS: Final = inputs()


@settings(max_examples=150)
@given(rules_of)
def test_a_generated_rule_permits_no_more_than_in_nessie(rule: Atom) -> None:
    found = decided(
        texts(migrated({"r": rule.text, "view": "op == 'VIEW_REFERENCE' && role == 'nobody'"})),
        [asked for _, asked in INPUTS],
    )
    wider = [
        seen for (seen, _), allowed in zip(INPUTS, found, strict=True) if allowed and rule.outcome(seen) is not True
    ]
    assert wider == [], rule.text


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        ("role == 'x'", ()),
        ("contentType == 'ICEBERG_TABLE' && role == 'x'", ()),
        ("op == 'READ_ENTITY_VALUE' && contentType != 'UDF'", ()),
        ("op in ['UPDATE_REPOSITORY_CONFIG'] && type != 'GARBAGE_COLLECTOR'", ()),
        ("api.apiVersion == 2 && 'LIST' in actions", ()),
        ("path.matches('^a[.]b[a-z]+$')", ()),
        ("contentType != 'UDF'", ("unbound-names",)),
        ("!(type == 'GARBAGE_COLLECTOR')", ("unbound-names",)),
        ("op == 'READ_ENTITY_VALUE' || type != 'X'", ("unbound-names",)),
        ("roles.exists(r, r == 'x' && type != 'X')", ("unbound-names",)),
        *((f"{name} == {name}", ("unknown-names",)) for name in ("warehouse", "delegated", "action", "groups", "now")),
        ("has(attributes.x) || has(properties.y) || size(arguments) > 0", ("unknown-names",)),
        ("matches(path, 'a')", ("unknown-names",)),
        *((f"path.matches({pattern!r})", ("patterns",)) for pattern in ("[a-z&&[^b]]", "[[:alpha:]]", "(?P<x>a)", "(?i)k", "a{,3}")),
        ("warehouse == 'a' && type != 'X'", ("unknown-names", "unbound-names")),
    ],
)  # fmt: skip
def test_a_rule_that_may_be_wider_is_left_unless_each_name_is_accepted(rule: str, names: tuple[str, ...]) -> None:
    migration = migrated({"r": rule})
    left = [part for part in migration.left if part.subject == "rule `r`"]
    assert [part.message.rpartition("; ")[2] for part in left] == [
        f"`--accept-wider {name}` allows this" for name in names
    ]
    assert texts(migration)["r"] == (f"false // {rule}" if names else rule)
    accepted = migrated({"r": rule}, *names)
    assert (texts(accepted)["r"], accepted.left) == (rule, [])
    for some in names if len(names) > 1 else ():
        assert texts(migrated({"r": rule}, some))["r"].startswith("false")


def test_only_names_of_widenings_are_accepted() -> None:
    with pytest.raises(
        InvalidArgument, match="`--accept-wider typo`: there are unknown-names, unbound-names, patterns"
    ):
        migrated({"r": "true"}, "typo")
    assert WIDENINGS == ("unknown-names", "unbound-names", "patterns")


@pytest.mark.process
def test_the_command_takes_the_switch(tmp_path: Path) -> None:
    file = tmp_path / "application.properties"
    file.write_text("nessie.server.authorization.enabled=true\nnessie.server.authorization.rules.r=type != 'X'\n")
    for options, code in (((), 1), (("--accept-wider", "unbound-names"), 0)):
        ended = run_pdp("migrate", "nessie", str(file), "--out", str(tmp_path / f"out{code}"), *options, cwd=tmp_path)
        assert ended.returncode == code, ended.stdout
        rules = yaml.safe_load((tmp_path / f"out{code}" / "rules.yaml").read_text())["rules"]
        assert rules["r"].startswith("false // ") is bool(code)
