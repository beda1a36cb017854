"""Migrated rules of Nessie as new files, with policy tests that are made from example inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from pdp.cel.values import RuleError
from pdp.config.quarkus.expressions import EnvironmentNames, spelling
from pdp.config.quarkus.properties import ConfigEntry
from pdp.engines.cel.lint.check_bindings import WIDENINGS, wider_parts
from pdp.engines.cel.lint.linter import LintOptions, lint_rules
from pdp.engines.cel.lint.search import Input
from pdp.engines.cel.nessie_keys import DEFAULT_BRANCH, NessieConfig
from pdp.engines.cel.program import RULE_VARIABLES
from pdp.engines.cel.rules import IMPLICIT_RULE, inline_rules
from pdp.engines.cel.sources import RuleText, advice_for_rule, inline_rule
from pdp.errors import InvalidArgument, RuleCompileError
from pdp.model.vocabulary import CONFIG_CHECKS, CONTENT_CHECKS
from pdp.offline.migration.nessie_server import IMAGE, NessieServer
from pdp.offline.migration.report import (
    SHUT,
    TESTS_FILE,
    Migration,
    accepting,
    shut_text,
    to_yaml,
    variables_of_some,
)

_CLOSED: Final = "left-parts"
_STRANGER: Final = "nobody-in-the-rules"
_FILLER: Final = "~"


class NessieTests:
    """Tests of some rules."""

    def __init__(self, texts: Mapping[str, str], warehouse: str) -> None:
        mentioned = any("VIEW_REFERENCE" in text for text in texts.values())
        implicit = {} if mentioned else {IMPLICIT_RULE: "op=='VIEW_REFERENCE'"}
        self._programs = {rule.id: rule.program for rule in inline_rules({**texts, **implicit}).rules}
        self._warehouse = warehouse

    def cases(self, witnesses: Mapping[str, Input]) -> Iterator[dict[str, Any]]:
        """Yield a test of each rule with an example input: the input itself, and the same for a stranger."""
        for id, witness in witnesses.items():
            values = self._readable(id, {**witness, "warehouse": self._warehouse})
            if values is None:
                continue
            strange = {**values, "role": _STRANGER, "roles": ()}
            yield {
                "note": f"rule {id} decides, and a stranger has the answer of the other rules",
                "checks": [self._check(values), self._check(strange)],
                "want": [self._answer(values), self._answer(strange)],
            }

    def _readable(self, id: str, values: Input) -> Input | None:
        """Return an input with plain letters for fillers; None if no check has the input."""
        plain = {
            name: value.replace(_FILLER, "x") if isinstance(value, str) else value for name, value in values.items()
        }
        for candidate in (plain, values):
            fits = candidate["op"] in CONTENT_CHECKS or not candidate["path"]
            if fits and candidate["role"] and self._is_true(id, self._as_checked(candidate)):
                return candidate
        return None

    def _as_checked(self, values: Input) -> Input:
        """Return the values that the rules see for the check of an input."""
        return {**values, "roles": (values["role"], *values["roles"])}

    def _is_true(self, id: str, values: Input) -> bool:
        try:
            return bool(self._programs[id].evaluate(*(values[name] for name in RULE_VARIABLES)))
        except RuleError:
            return False

    def _answer(self, values: Input) -> bool:
        return any(self._is_true(id, self._as_checked(values)) for id in self._programs)

    def _check(self, values: Input) -> dict[str, Any]:
        check: dict[str, Any] = {
            "principal": {"id": f"user:oidc~{values['role']}", "roles": [values["role"], *values["roles"]]},
            "action": values["op"],
            "resource": self._resource(values),
        }
        api, actions = values["api"], list(values["actions"])
        if actions or api["apiName"] != "Nessie":
            context = {"api": {"name": api["apiName"], "version": api["apiVersion"]}, "actions": actions}
            check["context"] = context
        return check

    def _resource(self, values: Input) -> dict[str, Any]:
        if values["op"] in CONFIG_CHECKS:
            return {
                "type": "repository_config",
                "warehouse": self._warehouse,
                "path": [values["type"] or "GARBAGE_COLLECTOR"],
            }
        if values["op"] not in CONTENT_CHECKS:
            return {"type": "reference", "warehouse": self._warehouse, "ref": values["ref"]}
        content = {"contentType": values["contentType"]} if values["contentType"] else {}
        path = [part.replace("\u001d", ".") for part in values["path"].split(".")]
        return {"type": "content", "warehouse": self._warehouse, "path": path, "ref": values["ref"], **content}


def usable_rules(migration: Migration, rules: Sequence[RuleText]) -> Iterator[RuleText]:
    """Yield the rules; a rule that does not compile becomes `false`. Report duplicates.

    The text of a broken rule stays in a comment: a mention of VIEW_REFERENCE must go on keeping Nessie's implicit rule
    off, which shows every branch to everybody.
    """
    last = {rule.id: rule for rule in rules}
    for rule in rules:
        if rule is not last[rule.id] and rule.text.startswith(SHUT):
            continue
        if rule is not last[rule.id]:
            message = f"stands at {last[rule.id].place()}, too, and the last counts in Nessie: keep one of them"
            migration.add("left", rule.place(), f"rule `{rule.id}`", message)
            continue
        try:
            inline_rules({rule.id: rule.text})
        except RuleCompileError as error:
            message = error.message.removeprefix(f"rule `{rule.id}`: ")
            advice = "" if advice_for_rule(rule.text, rule.file) else "; `pdp lint` explains the mistake"
            migration.add("left", rule.place(), f"rule `{rule.id}`", message + advice)
            yield rule._replace(text=shut_text(f"does not compile: {rule.text}"))
        else:
            yield _no_wider(migration, rule)


def _no_wider(migration: Migration, rule: RuleText) -> RuleText:
    """Return a rule, `false` if it may permit more here than in Nessie and nobody accepts that. Report it."""
    found = list(wider_parts(rule.text))
    refused = [(name, why) for name, why in found if name not in migration.accepted]
    for name, why in refused:
        migration.add("left", rule.place(), f"rule `{rule.id}`", f"{why}, so it is `false`; {accepting(name)}")
    for _, why in found if not refused else ():
        migration.add("note", rule.place(), f"rule `{rule.id}`", f"{why}, and is written as it is")
    return rule._replace(text=shut_text(rule.text)) if refused else rule


def new_migration(accepted: Collection[str]) -> Migration:
    """Return a migration without parts; raise InvalidArgument for the name of no widening."""
    if unknown := sorted({*accepted} - {*WIDENINGS}):
        raise InvalidArgument(f"`--accept-wider {unknown[0]}`: there are {', '.join(WIDENINGS)}")
    return Migration(accepted=frozenset(accepted))


def write_rules(migration: Migration, rules: Sequence[RuleText], warehouse: str, branch: str) -> None:
    """Add the new files, and report the migrated rules with the findings of lint."""
    findings = list(lint_rules(rules, LintOptions(witnesses=True)))
    witnesses = {finding.rule: finding.witness for finding in findings if finding.witness is not None}
    texts = {rule.id: rule.text for rule in rules}
    settings = _settings(warehouse, branch)
    cases = list(NessieTests(texts, warehouse).cases(witnesses))
    tested = " ".join(case["note"] for case in cases)
    broken = {part.place for part in migration.left}
    for rule in rules:
        if str(rule.place()) in broken or rule.text.startswith(SHUT):
            continue
        remarks = [one.message for one in findings if one.rule == rule.id and one.severity == "warning"]
        if f"rule {rule.id} " not in tested:
            remarks.append("no example input is known, so the rule has no generated test")
        migration.add("note" if remarks else "done", rule.place(), f"rule `{rule.id}`", "; ".join(remarks))
    migration.files["rules.yaml"] = to_yaml({"rules": texts}, "Rules of Nessie's authorization.")
    migration.files["pdp.yaml"] = to_yaml(settings, "The migrated rules decide. Add callers, the audit and Trino.")
    comment = "An input that each rule decides, and the same input of a stranger. Nessie gives the same answers."
    shared = {"rules": "rules.yaml", "config": {key: settings[key] for key in ("authorities", "warehouses")}}
    migration.files[TESTS_FILE] = to_yaml({**shared, "cases": cases}, comment)


def default_branch(migration: Migration, config: NessieConfig, read: NessieServer, names: EnvironmentNames) -> str:
    """Return the name of the default branch, "" for an uncertain name, and report the latter as left."""
    variable = names.find(DEFAULT_BRANCH)
    known = config.branches or ([variable] if variable else [])
    spelt = spelling(DEFAULT_BRANCH)
    others = [*read.doubtful, *(entry for one in read.contents for entry in one.elsewhere)]
    others += [entry for entry in read.variables if spelling(entry.key).startswith("%")]
    others += variables_of_some(read.contents, _of_branch, IMAGE).values()
    unclear = [entry for entry in others if spelling(entry.key).endswith(spelt)]
    last = known[-1] if known else None
    unclear += [one for one in known if "$" in one.text]
    unclear += [one for one in known if last and one.text != last.text and (one.key, one.file) != (last.key, last.file)]
    told = {part.place for part in migration.left}
    for entry in unclear[:1] if not any(str(one.key_place) in told for one in unclear) else ():
        migration.add("left", entry.key_place, f"key `{entry.key}`", _BRANCH)
    if unclear or read.is_closed or any(spelt in spelling(text) for text in read.unread):
        return ""
    return (last.text.strip() if last else "") or "main"


_BRANCH: Final = (
    "may name the default branch, and its value is not known, so requests without a ref have none: write "
    "`warehouses.<warehouse>.default_ref`"
)


def _of_branch(entry: ConfigEntry) -> str:
    return DEFAULT_BRANCH if spelling(entry.key).endswith(spelling(DEFAULT_BRANCH)) else ""


def _settings(warehouse: str, branch: str) -> dict[str, Any]:
    return {
        "authorities": {"default": {"engines": ["cel"]}},
        "warehouses": {warehouse: {"kind": "nessie", **({"default_ref": branch} if branch else {})}},
        "policies": {"rules": ["rules.yaml"]},
    }


def settled_rules(migration: Migration, config: NessieConfig, read: NessieServer) -> Iterator[RuleText]:
    """Yield the rules. One without a known text becomes `false`: a part that is left, or another key, may set it."""
    keys: dict[str, set[tuple[str, str]]] = {}
    for id, rule in config.rules:
        keys.setdefault(id, set()).add((rule.key, rule.file))
    for id, rule in config.rules:
        replaced = _MAY_REPLACE if read.may_replace(id) else _CLOSED_ALL if read.is_closed else ""
        why = replaced or (_EQUAL if len(keys[id]) > 1 else "")
        if why and not rule.text.startswith(SHUT):
            migration.add("note" if replaced else "left", rule.place(), f"rule `{id}`", why)
        is_open = why and not rule.text.startswith(SHUT)
        yield RuleText(id, shut_text(rule.text) if is_open else rule.text, *rule[2:5])


_MAY_REPLACE: Final = (
    "a part that is left names this rule, too, and may replace it, so the rule is `false`: give that part in a form "
    "that is read, such as the output of `helm template` or `kustomize build`"
)
_CLOSED_ALL: Final = (
    "a part that is left may have every rule, and may replace this one, so the rule is `false`: give that part, or "
    "remove it"
)
_EQUAL: Final = "another key or file of the same rank has this rule, too, so it is `false`: keep one of them"


def keep_branches_closed(migration: Migration, rules: list[RuleText]) -> None:
    """Add a rule without permits if a part is left, because the part may mention VIEW_REFERENCE.

    Such a mention keeps Nessie's implicit rule off, which shows every branch to everybody.
    """
    if migration.left and not any("VIEW_REFERENCE" in rule.text for rule in rules):
        text = "false // VIEW_REFERENCE: a part that is left may mention it, so every branch stays hidden"
        rules.append(inline_rule(_CLOSED, text))
        message = "keeps branches hidden, because a part that is left may be about viewing them: remove it in the end"
        migration.add("note", "", f"rule `{_CLOSED}`", message)
