"""`pdp explain --load`: the denying hop of a view chain, and the principal without the right.

A hop is one resource of the chain: each view, then the loaded table. Hops count from 1.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from pdp.cli.terminal import fail, visible
from pdp.cli.wiring import Wiring
from pdp.config.settings import Settings
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.model.answer import DEFAULT_DENY, Trace
from pdp.model.references import parse_principal
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
        _print_text(loaded)


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


def _print_text(loaded: LoadResult) -> None:
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
