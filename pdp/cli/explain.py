"""`pdp explain`, and for `--load` the denying hop of a view chain, with the principal without the right.

A hop is one resource of the chain: each view, then the loaded table. Hops count from 1.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from pdp.cli.options import (
    POLICY_OPTIONS,
    chosen_settings,
    format_option,
    policy_options,
    refuse_beside,
    say_configuration,
)
from pdp.cli.rewrite import print_rows
from pdp.cli.terminal import fail, one_line_errors, visible
from pdp.cli.wiring import Wiring
from pdp.config.settings import Settings
from pdp.decision.codec import decision_body, decode_checks
from pdp.engines.cel.rules import RuleSet
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.answer import DEFAULT_DENY, Answer, Trace
from pdp.model.references import parse_principal
from pdp.model.trino_operations import TRINO_OPERATIONS
from pdp.model.vocabulary import CATALOG_ACTIONS, CEL_CHECKS
from pdp.views.codec import LoadBody, LoadResult, LoadStep, decode_load, encode_load
from pdp.views.loads import ViewSecurity

_STYLES = {"permit": "green", "true": "green", "forbid": "red", "failed": "red", "error": "red"}


def explain_load(composition: Wiring, settings: Settings, file: str, form: str) -> None:
    """Decide the load in a file and print the explanation; raise InvalidArgument for an invalid body.

    `file` is a path, or `-` for stdin. `form` is `text` or `json`.
    """
    body = decode_load(_read(file))
    loaded = asyncio.run(_decide(body, composition, settings))
    if form == "json":
        sys.stdout.buffer.write(encode_load(loaded) + b"\n")
    else:
        _print_load(loaded)


async def _decide(body: LoadBody, composition: Wiring, settings: Settings) -> LoadResult:
    catalogs = composition.build_catalogs(settings)
    try:
        views = ViewSecurity(composition.pdp(settings), settings, catalogs)
        return await views.load(body, EMBEDDED_CALLER, "cli", explain=True)
    finally:
        for catalog in catalogs.values():
            await catalog.close()


def summary(loaded: LoadResult) -> str:
    """Return the result as one line, such as `denied at hop 2 of 3: owner carol lacks select on view:lake/ns/v`."""
    hops = len(loaded.load.views) + 1
    if loaded.decision.allowed:
        return f"allowed, storage access {loaded.storage_access}, hops: {hops}"
    missing = next((at for at, view in enumerate(loaded.load.views, 1) if not view.exists), 0)
    if missing:
        return f"denied at hop {missing} of {hops}: {loaded.steps[0].resource} is not there"
    reason = loaded.decision.by[0]
    for at, step in enumerate(loaded.steps):
        if not step.allowed and reason == f"{step.resource}: {step.by[0]}":
            why = "" if step.by[0] == DEFAULT_DENY else f" ({step.by[0]})"
            lacked = [step.action]
            # each view has two steps, one for each right: name both if the principal lacks both
            if at % 2 == 0 and _hop(at, hops) < hops and not loaded.steps[at + 1].allowed:
                lacked.append(loaded.steps[at + 1].action)
            return (
                f"denied at hop {_hop(at, hops)} of {hops}: "
                f"{_principal_text(step)} lacks {' and '.join(lacked)} on {step.resource}{why}"
            )
    return f"denied by {reason}"


def trace_tree(trace: Trace) -> Tree:
    """Return a trace as a tree for the terminal."""
    label = Text.assemble(visible(trace.what), ": ", (visible(trace.outcome), _STYLES.get(trace.outcome, "dim")))
    if trace.why:
        label.append(f"  {visible(trace.why)}", "dim")
    tree = Tree(label)
    for part in trace.parts:
        tree.add(trace_tree(part))
    return tree


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        fail(f"cannot read `{file}`: {error.strerror}")


def _hop(step: int, hops: int) -> int:
    """Return the hop of a step. Each view has two steps; all further steps belong to the loaded table."""
    return min(step // 2 + 1, hops)


def _principal_text(step: LoadStep) -> str:
    principal = parse_principal(step.as_principal)
    name = principal.name.partition("~")[2] if principal.type == "user" else principal.id
    return f"{'owner' if step.delegated else 'caller'} {name}"


def _print_load(loaded: LoadResult) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 1000)
    console.print(Text(visible(summary(loaded)), "bold green" if loaded.decision.allowed else "bold red"))
    if loaded.read_restrictions:
        console.print(Text(visible(f"read restrictions: {loaded.read_restrictions}")), soft_wrap=True)
    if loaded.load.ignored:
        console.print(Text(visible(f"referencedBy is ignored: {loaded.load.ignored}"), "yellow"))
    for view in loaded.load.views:
        if view.owner:
            source = f"{view.property} of view {'.'.join(view.path)}, read by engine {view.engine}"
            console.print(Text(visible(f"user:{view.owner} takes over: {source}"), "dim"))
    hops = len(loaded.load.views) + 1
    table = Table("hop", "as", "action", "resource", "allowed", "by")
    for at, step in enumerate(loaded.steps):
        outcome = Text("yes", "green") if step.allowed else Text("no", "red")
        cells = (step.as_principal, step.action, step.resource)
        table.add_row(str(_hop(at, hops)), *map(visible, cells), outcome, visible(step.by[0]))
    console.print(table)
    if loaded.decision.trace:
        console.print(trace_tree(loaded.decision.trace))


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
    _refuse_useless(load, code, vocabulary=vocabulary)
    if vocabulary:
        _print_vocabulary()
        return
    settings = chosen_settings(composition, config, overrides, rules, world)
    say_configuration(settings)
    if code is not None:
        click.echo(_code(composition.read_rules(settings), code))
        return
    if load is not None:
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


def _refuse_useless(load: str | None, code: str | None, *, vocabulary: bool) -> None:
    if vocabulary:
        refuse_beside("--vocabulary")
    if code is not None:
        refuse_beside("--code", POLICY_OPTIONS)
    if load is not None:
        refuse_beside("--load", (*POLICY_OPTIONS, "--format"))


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
