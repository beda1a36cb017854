"""`pdp explain`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pdp.cli.context import Composition, chosen_settings, fail, one_line_errors, policy_options, visible
from pdp.cli.explain_load import explain_load, tree_of
from pdp.decision.codec import decision_body, decode_checks
from pdp.engines.cel.rules import RuleSet
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.checks import Answer
from pdp.model.vocabulary import CATALOG_ACTIONS, CEL_CHECKS, TRINO_OPERATIONS


@click.command()
@policy_options
@click.option("--principal", help="user:<idp>~<subject>, role:<id> or anonymous.")
@click.option("--role", "roles", multiple=True, help="A role that the principal's token carries.")
@click.option("--acting-role", help="role:<id> that the principal assumes.")
@click.option("--action", help="A catalog action, a Nessie check type or trino:<Operation>.")
@click.option("--resource", help="Such as table:lake/sales/orders@main.")
@click.option("--load", metavar="FILE", help="A /v1/load body, or - for stdin, in place of a check: which hop denies.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--code", metavar="RULE", help="Print the Python that a rule is compiled to.")
@click.option("--vocabulary", is_flag=True, help="Print the table of actions and what each comes to.")
@click.pass_obj
@one_line_errors
def explain(
    composition: Composition, config: Path | None, overrides: tuple[str, ...], rules: tuple[str, ...],
    world: str | None, principal: str | None, roles: tuple[str, ...], acting_role: str | None, action: str | None,
    resource: str | None, load: str | None, form: str, code: str | None, vocabulary: bool,
) -> None:  # fmt: skip
    """Say why a check is allowed or denied: every engine asked, every rule and grant looked at."""
    if vocabulary:
        _print_vocabulary()
        return
    settings = chosen_settings(composition, config, overrides, rules, world)
    if code:
        click.echo(_code(composition.read_rules(settings), code))
        return
    if load:
        explain_load(composition, settings, load, form)
        return
    if not (principal and action and resource):
        raise click.UsageError("give --principal, --action and --resource (or --load, --code or --vocabulary)")
    check = {"principal": {"id": principal, "roles": roles}, "action": action, "resource": resource}
    if acting_role is not None:
        check["actingRole"] = acting_role
    request = decode_checks([msgspec.json.encode(check)]).request("cli", explain=True)
    batch = admit(request, EMBEDDED_CALLER)
    for rejected in batch.rejected.values():
        fail(rejected.message)
    answer = asyncio.run(composition.pdp(settings).check(batch))
    _print_json(answer) if form == "json" else _print_text(answer)


def _code(rule_sets: tuple[RuleSet, ...], rule: str) -> str:
    found = [known.program.code for rules in rule_sets for known in rules.rules if known.id == rule]
    return found[0] if found else fail(f"no rule `{rule}` is loaded")


def _print_json(answer: Answer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(decision_body(answer.decision(0))) + b"\n")


def _print_text(answer: Answer) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 1000)
    decision = answer.decision(0)
    verdict = Text("allowed" if decision.allowed else "denied", "bold green" if decision.allowed else "bold red")
    console.print(verdict + Text(f" by {visible(', '.join(decision.by))}", "default"))
    if decision.errors:
        console.print(Text(f"rules that raised: {visible(', '.join(decision.errors))}", "red"))
    if decision.trace:
        console.print(tree_of(decision.trace))


def _print_vocabulary() -> None:
    console = Console(highlight=False)
    actions = Table("type", "action", "CEL checks", title="catalog actions")
    for type, names in CATALOG_ACTIONS.items():
        for action in sorted(names):
            checks = CEL_CHECKS.get((type, action), ())
            actions.add_row(type, action, ", ".join(check.op for check in checks))
    console.print(actions)
    operations = Table("operation", "needs", title="trino operations")
    for name, operation in TRINO_OPERATIONS.items():
        steps = ", ".join(f"{step.on}: {step.action}" for step in operation.steps)
        operations.add_row(name, " ".join(filter(None, (f"[rule {operation.rule}]" if operation.rule else "", steps))))
    console.print(operations)
