"""`pdp check`."""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path
from typing import Final

import click
import msgspec

from pdp.cli.options import chosen_settings, policy_options, say_configuration
from pdp.cli.terminal import one_line_errors
from pdp.cli.wiring import Wiring
from pdp.decision.codec import decision_body, decode_checks
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit

LINES_PER_BATCH: Final = 1000
"""Lines decided together. Bounds the memory for long inputs."""


@click.command()
@policy_options
@click.option("--explain", is_flag=True, help="Add a trace to every decision.")
@click.pass_obj
@one_line_errors
def check(
    composition: Wiring, config: Path | None, overrides: tuple[str, ...], rules: tuple[str, ...],
    world: str | None, explain: bool,
) -> None:  # fmt: skip
    """Decide checks from stdin.

    The input is one JSON object a line. The output is one decision a line, in order: one for each resource.

    Example line: {"principal":"user:oidc~Alice","action":"read_data","resource":"table:lake/Foo@prod"}

    Exits with 1 if a line is not a valid check. A denial is a normal decision and does not change the exit code.
    """
    settings = chosen_settings(composition, config, overrides, rules, world)
    pdp = composition.pdp(settings)
    say_configuration(settings)
    rejected = False
    with asyncio.Runner() as runner:
        lines = (line for line in sys.stdin.buffer if line.strip())
        while some := list(itertools.islice(lines, LINES_PER_BATCH)):
            request = decode_checks(some, unique_keys=True).request("cli", explain=explain)
            answer = runner.run(pdp.check(admit(request, EMBEDDED_CALLER)))
            rejected = rejected or bool(answer.rejected)
            for at in range(request.size):
                sys.stdout.buffer.write(msgspec.json.encode(decision_body(answer.decision(at))) + b"\n")
            sys.stdout.buffer.flush()
    raise SystemExit(1 if rejected else 0)
