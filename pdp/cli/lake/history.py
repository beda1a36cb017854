"""`pdp pipeline history`."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from pdp.cli.lake.options import lake_options, one_line_spark_errors, open_chosen_lake
from pdp.cli.options import format_option, refuse_beside
from pdp.cli.progress import Progress
from pdp.cli.terminal import plural, visible
from pdp.cli.wiring import Wiring
from pdp.decision.codec import decode_checks
from pdp.errors import InvalidArgument
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.question import Check

if TYPE_CHECKING:
    from pdp.lake.replay.history import RightHistory


@click.command()
@lake_options
@click.option("--principal", required=True, help="Whose right: user:<idp>~<subject>, or a role.")
@click.option("--role", "roles", multiple=True, help="Role that the token of the principal carries. Can be repeated.")
@click.option("--resource", required=True, help="Object, such as table:lake/sales/orders.")
@click.option("--action", default="read_data", show_default=True, help="Action of the right.")
@click.option("--on", "day", required=True, metavar="DAY", help="Day in UTC, such as 2026-01-31.")
@click.option("--explain", is_flag=True, help="Print Spark's plan for the uses of the day, and decide nothing.")
@format_option("text", "json")
@click.pass_obj
@one_line_spark_errors
def history(
    composition: Wiring, /, lake: str, config: Path | None, overrides: tuple[str, ...],
    properties: tuple[str, ...], principal: str, roles: tuple[str, ...], resource: str, action: str, day: str,
    explain: bool, form: str,
) -> None:  # fmt: skip
    """Tell who could do what on a day, through what, and whether he did.

    Decides the action by the grants and policies of each hour of the day, and counts the recorded checks of the day.
    """
    if explain:
        refuse_beside("--explain", useless=("--format",))
    try:
        on = date.fromisoformat(day)
    except ValueError:
        raise InvalidArgument(f"`--on {day}` is no day such as 2026-01-31") from None
    check = _check(principal, roles, resource, action)
    with Progress("starting Spark") as progress:
        opened = open_chosen_lake(composition, lake, config, overrides, properties)
        from pdp.lake.replay.archive import read_archive  # noqa: PLC0415
        from pdp.lake.replay.history import plan_of_uses, right_on  # noqa: PLC0415  help needs neither

        if explain:
            click.echo(plan_of_uses(opened, check, on))
            return
        progress.say("reading policies and facts")
        archive = read_archive(opened)
        progress.say("deciding the right, and counting its use")
        found = right_on(opened, archive, composition.rebuild_pdp, check, on)
    if form == "json":
        fields = {"could": found.could, "did": found.did, "intervals": found.intervals, "uses": found.uses}
        sys.stdout.buffer.write(msgspec.json.encode(fields) + b"\n")
        return
    click.echo(f"{visible(principal)}, {visible(action)} on {visible(resource)}, {on}")
    _say(found)


def _check(principal: str, roles: tuple[str, ...], resource: str, action: str) -> Check:
    body = {"principal": {"id": principal, "roles": list(roles)}, "action": action, "resource": resource}
    batch = admit(decode_checks([msgspec.json.encode(body)]).request("cli"), EMBEDDED_CALLER)
    for rejected in batch.rejected.values():
        raise InvalidArgument(rejected.message)
    return batch.checks[0]


def _say(found: RightHistory) -> None:
    for interval in found.intervals:
        end = f"{interval.until:%H:%M:%S}" if interval.until.date() == interval.since.date() else "24:00:00"
        word = "could" if interval.allowed else "could not"
        actor = f", written by {visible(interval.actor)}" if interval.actor else ""
        click.echo(f"  {interval.since:%H:%M:%S} to {end}: {word}, by {visible(interval.by)}{actor}")
    if not found.uses:
        click.echo("  no recorded check of that day")
    for use in found.uses:
        word = "permitted" if use.allowed else "denied"
        times = f"first {use.first:%H:%M:%S}, last {use.last:%H:%M:%S}"
        click.echo(
            f"  {visible(use.action)} {word} {plural(use.checks, 'time')}, {times} [{visible(', '.join(use.samples))}]"
        )
        for by in use.by:
            click.echo(f"    by {visible(by)}")
