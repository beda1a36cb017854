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

from pdp.cli.explain.load import explain_load, trace_tree
from pdp.cli.options import chosen_settings, format_option, policy_options, say_configuration
from pdp.cli.rewrite import print_rows
from pdp.cli.terminal import fail, one_line_errors, visible
from pdp.cli.wiring import Wiring
from pdp.decision.codec import decision_body, decode_checks
from pdp.engines.cel.rules import RuleSet
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.answer import Answer
from pdp.model.trino_operations import TRINO_OPERATIONS
from pdp.model.vocabulary import CATALOG_ACTIONS, CEL_CHECKS


@click.command()
@policy_options
@click.option("--principal", help="Principal of the check: user:<idp>~<subject>, role:<id> or anonymous.")
@click.option("--role", "roles", multiple=True, help="Role from the principal's token. Can be repeated.")
@click.option("--acting-role", help="Role that the principal assumes: role:<id>.")
@click.option("--action", help="Catalog action, Nessie check type or trino:<Operation>.")
@click.option("--resource", help="Resource of the check, such as table:lake/sales/orders@main.")
@click.option(
    "--load",
    metavar="FILE",
    help="Explain a load through views instead of a check. FILE is a body of POST /v1/load; - is stdin.",
)
@format_option("text", "json")
@click.option("--rows", is_flag=True, help="Explain row policies and masks of the resource, a table or view.")
@click.option("--group", "groups", multiple=True, help="Group from the principal's token. Can be repeated.")
@click.option("--code", metavar="RULE", help="Print the Python code that a rule compiles to.")
@click.option("--vocabulary", is_flag=True, help="Print all actions and the checks that each action needs.")
@click.pass_obj
@one_line_errors
def explain(
    composition: Wiring, config: Path | None, overrides: tuple[str, ...], rules: tuple[str, ...],
    world: str | None, principal: str | None, roles: tuple[str, ...], acting_role: str | None, action: str | None,
    resource: str | None, load: str | None, rows: bool, groups: tuple[str, ...], form: str, code: str | None,
    vocabulary: bool,
) -> None:  # fmt: skip
    """Explain why a check is allowed or denied.

    Prints the decision, and a trace of every evaluated engine, rule and grant. With --rows: the filter and the masks of
    a table, and why each row policy and each mask counts or not.
    """
    if vocabulary:
        _print_vocabulary()
        return
    settings = chosen_settings(composition, config, overrides, rules, world)
    say_configuration(settings)
    if code:
        click.echo(_code(composition.read_rules(settings), code))
        return
    if load:
        explain_load(composition, settings, load, form)
        return
    if rows and not action:
        action = "read_data"
    if not (principal and action and resource):
        raise click.UsageError("give --principal, --action and --resource (or --load, --code or --vocabulary)")
    subject = {"id": principal, "roles": roles, "groups": groups}
    check = {"principal": subject, "action": action, "resource": resource}
    if acting_role is not None:
        check["actingRole"] = acting_role
    request = decode_checks([msgspec.json.encode(check)]).request("cli", explain=True)
    batch = admit(request, EMBEDDED_CALLER)
    for rejected in batch.rejected.values():
        fail(rejected.message)
    if rows:
        print_rows(composition.pdp(settings).explain_rows(batch), form)
        return
    answer = asyncio.run(composition.pdp(settings).check(batch))
    _print_json(answer) if form == "json" else _print_text(answer)


def _code(rule_sets: tuple[RuleSet, ...], rule: str) -> str:
    code = [known.program.code for rules in rule_sets for known in rules.rules if known.id == rule]
    return code[0] if code else fail(f"no rule `{rule}` is loaded")


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
        console.print(trace_tree(decision.trace))


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
