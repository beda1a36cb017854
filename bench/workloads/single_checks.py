"""Workloads of single checks by rules: twenty rules as people write them, and up to 10,000."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from workloads.rule import PathTest, nessie_rules, quote, rego_rule, rego_set
from workloads.workload import RULES_FILE, Side, Workload, pdp_config

DOMAINS: Final = ("sales", "finance", "hr", "risk", "market", "supply", "web", "mobile", "iot", "lab")
REGIONS: Final = ("eu", "us", "apac", "latam")
NOUNS: Final = (
    "orders",
    "customers",
    "payments",
    "events",
    "clicks",
    "shipments",
    "stock",
    "prices",
    "claims",
    "logs",
)
SCHEMAS: Final = tuple(f"{domain}_{region}" for domain in DOMAINS for region in REGIONS)
READ: Final = ("READ_CONTENT_KEY", "READ_ENTITY_VALUE")
CONTENT: Final = ("READ_CONTENT_KEY", "CREATE_ENTITY", "READ_ENTITY_VALUE", "UPDATE_ENTITY", "DELETE_ENTITY")
QUESTIONS: Final = 512


@dataclass(frozen=True, slots=True)
class RoleRule:
    """Neutral rule: one role may do some operations on some paths."""

    id: str
    role: str
    operations: tuple[str, ...]
    test: PathTest

    def allows(self, role: str, operation: str, path: str) -> bool:
        """Tell whether the rule allows a question."""
        return role == self.role and operation in self.operations and self.test.holds(path)


PathMaker: TypeAlias = Callable[[Random, RoleRule | None], str]
"""Maker of a random path; with a rule, of a path that the rule covers."""


def twenty_rules(random: Random) -> list[RoleRule]:
    """Return admins, and readers and writers of domains."""
    rules = [RoleRule("admins", "admin", CONTENT, PathTest("any"))]
    for number in range(19):
        domain, region = DOMAINS[number % 10], REGIONS[number % 4]
        reads = number < 12
        test = PathTest("prefix", f"{domain}_" if number % 3 else f"{domain}_{region}.")
        if number in {4, 9}:
            test = PathTest("contains", f".{random.choice(NOUNS)}")
        role = f"{domain}_{'reader' if reads else 'writer'}"
        rules.append(RoleRule(f"r{number:02d}", role, READ if reads else CONTENT, test))
    return rules


def many_rules(random: Random, count: int) -> list[RoleRule]:
    """Return rules of generated teams, one operation and one namespace each."""
    roles = max(5, min(500, count // 10))
    rules = []
    for number in range(count):
        operations = (random.choice(CONTENT),)
        test = PathTest("prefix", f"ns{random.randrange(2000):04d}.")
        rules.append(RoleRule(f"s{number:05d}", f"role{number % roles:03d}", operations, test))
    return rules


def domain_path(random: Random, rule: RoleRule | None) -> str:
    """Return a table of a domain's schema."""
    if rule and rule.test.kind == "prefix":
        start = rule.test.text
        schema = start if start.endswith(".") else f"{start}{random.choice(REGIONS)}."
        return f"{schema}{random.choice(NOUNS)}_{random.randrange(100)}"
    noun = rule.test.text[1:] if rule and rule.test.kind == "contains" else random.choice(NOUNS)
    return f"{random.choice(SCHEMAS)}.{noun}_{random.randrange(100)}"


def numbered_path(random: Random, rule: RoleRule | None) -> str:
    """Return a table of a numbered namespace."""
    start = rule.test.text if rule else f"ns{random.randrange(2000):04d}."
    return f"{start}t{random.randrange(50)}"


def cel_text(rules: Sequence[RoleRule]) -> str:
    """Return the rules for our service."""
    return nessie_rules(
        (rule.id, [f"role=={quote(rule.role)}", f"op in [{','.join(map(repr, rule.operations))}]", *rule.test.cel()])
        for rule in rules
    )


def rego_text(rules: Sequence[RoleRule]) -> str:
    """Return the rules in the form that OPA's rule index serves best: equality on the input first."""
    texts = ["package pdp", "", "default allow := false", ""]
    for rule in rules:
        one = len(rule.operations) == 1
        operation = f"== {quote(rule.operations[0])}" if one else f"in {rego_set(rule.operations)}"
        parts = [f"input.role == {quote(rule.role)}", f"input.op {operation}", *rule.test.rego("input.path")]
        texts.append(rego_rule("allow", parts))
    return "\n".join(texts)


def single_checks(name: str, rules: Sequence[RoleRule], random: Random, path_of: PathMaker) -> Workload:
    """Return single checks. Half of the questions are allowed."""
    roles = sorted({rule.role for rule in rules})
    asked: list[tuple[str, str, str, str]] = []
    right: list[bool] = []
    while len(asked) < QUESTIONS:
        rule, wanted = random.choice(rules), len(asked) % 2 == 0
        role, operation = (
            (rule.role, random.choice(rule.operations)) if wanted else (random.choice(roles), random.choice(CONTENT))
        )
        path = path_of(random, rule if wanted else None)
        if any(each.allows(role, operation, path) for each in rules) == wanted:
            asked.append((role, operation, random.choice(["main", "prod", "dev"]), path))
            right.append(wanted)
    config = pdp_config({"lake": {"kind": "nessie", "default_ref": "main"}}, "cel", policies={"rules": [RULES_FILE]})
    ours = [
        {
            "principal": f"user:oidc~{role}",
            "action": operation,
            "resource": f"table:lake/{path.replace('.', '/')}@{ref}",
        }
        for role, operation, ref, path in asked
    ]
    theirs = [{"role": role, "op": operation, "ref": ref, "path": path} for role, operation, ref, path in asked]
    return Workload(
        name,
        Side(
            {"pdp.yaml": config, RULES_FILE: cel_text(rules)},
            "/v1/check",
            [{"checks": [check]} for check in ours],
        ),
        Side({"policy.rego": rego_text(rules)}, "/v1/data/pdp/allow", [{"input": input} for input in theirs]),
        right,
    )
