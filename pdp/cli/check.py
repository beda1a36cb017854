"""`pdp check`."""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

import click
import msgspec

from pdp.cli.context import Composition, chosen_settings, one_line_errors, policy_options
from pdp.decision.codec import decision_body, decode_checks
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit

AT_ONCE = 1000
"""Lines decided together, so that a long input streams."""


@click.command()
@policy_options
@click.option("--explain", is_flag=True, help="Add a trace to every decision.")
@click.pass_obj
@one_line_errors
def check(
    composition: Composition, config: Path | None, overrides: tuple[str, ...], rules: tuple[str, ...],
    world: str | None, explain: bool,
) -> None:  # fmt: skip
    """Decide checks from stdin, one JSON object a line; prints one decision a line, in order.

    Example line: {"principal":"user:oidc~Alice","action":"read_data","resource":"table:lake/Foo@prod"}

    Exits with 1 when a line is no valid check; a denial is an answer like any other.
    """
    pdp = composition.pdp(chosen_settings(composition, config, overrides, rules, world))
    malformed = False
    with asyncio.Runner() as runner:
        lines = (line for line in sys.stdin.buffer if line.strip())
        while some := list(itertools.islice(lines, AT_ONCE)):
            request = decode_checks(some, unique_keys=True).request("cli", explain=explain)
            answer = runner.run(pdp.check(admit(request, EMBEDDED_CALLER)))
            malformed = malformed or bool(answer.rejected)
            for at in range(len(some)):
                sys.stdout.buffer.write(msgspec.json.encode(decision_body(answer.decision(at))) + b"\n")
            sys.stdout.buffer.flush()
    raise SystemExit(1 if malformed else 0)
