"""`pdp pipeline suggest`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pdp.cli.dry_run.checks import parse_time
from pdp.cli.lake.options import lake_options, one_line_spark_errors, open_chosen_lake, stage_notices
from pdp.cli.options import format_option, refuse_beside
from pdp.cli.progress import Progress
from pdp.cli.terminal import plural, visible
from pdp.cli.wiring import Wiring
from pdp.config.files import whole_file
from pdp.engines.cel.nessie_keys import rule_lines
from pdp.errors import InvalidArgument
from pdp.store.world_text import world_lines

if TYPE_CHECKING:
    from pdp.lake.replay.questions import RecordGaps
    from pdp.lake.replay.suggesting import Suggestion

_RULES: Final = ".properties"


@click.command()
@lake_options
@click.option("--out", required=True, metavar="FILE", help="Proposal: a world (.yaml, .json) or rules (.properties).")
@click.option("--since", metavar="TIME", help="Only records from this time on, such as 2026-01-31T12:00Z.")
@click.option("--explain", is_flag=True, help="Print Spark's plan of one replay, and propose nothing.")
@format_option("text", "json")
@click.pass_obj
@one_line_spark_errors
def suggest(
    composition: Wiring, /, lake: str, config: Path | None, overrides: tuple[str, ...],
    properties: tuple[str, ...], out: str, since: str | None,
    explain: bool, form: str,
) -> None:  # fmt: skip
    """Propose grants or rules with which no recorded access is lost.

    Leaves out unused grants, and narrows others to the privileges and objects of their use. Of rules, leaves out those
    that permitted nothing, and unused alternatives of an `||`. The proposal is replayed before the command writes it.

    Refuses a lake whose permits were sampled, or whose services dropped records. Says first which records could not be
    decided again: their principals keep all grants. Rights that are needed once a year look unused in a month of
    records.
    """
    if explain:
        refuse_beside("--explain", useless=("--format",))
    begin = parse_time(since, "--since")
    suffix = Path(out).suffix
    if suffix not in (_RULES, ".yaml", ".yml", ".json"):
        raise InvalidArgument(f"`--out {out}` ends in none of .yaml, .json (a world) and .properties (rules)")
    with Progress("starting Spark") as progress:
        opened = open_chosen_lake(composition, lake, config, overrides, properties)
        from pdp.lake.replay.archive import read_archive  # noqa: PLC0415  help needs neither
        from pdp.lake.replay.suggesting import LakeSuggestion  # noqa: PLC0415

        stages = stage_notices(progress, opened)
        with LakeSuggestion(opened, read_archive(opened), composition.rebuild_pdp, stages, begin) as search:
            if explain:
                click.echo(search.plan())
                return
            found = search.rules() if suffix == _RULES else search.grants()
    lines = rule_lines(found.rules) if found.facts is None else world_lines(found.facts, yaml=suffix != ".json")
    with whole_file(Path(out)) as file:
        file.writelines(f"{line}\n".encode() for line in lines)
    _say(found, out, form)


def _say(found: Suggestion, out: str, form: str) -> None:
    kind = "rule" if found.facts is None else "grant"
    if form == "json":
        click.echo(json.dumps({"kind": kind, **_fields(found)}))
        return
    _say_gaps(found.gaps)
    click.echo(
        f"{plural(found.before, kind)} -> {found.after:,}: {found.dropped:,} unused, {found.narrowed:,} narrowed"
    )
    if found.facts is not None:
        click.echo(
            f"rights on the objects of the records: {found.rights_before:,} -> {found.rights_after:,} "
            f"({found.rights_before - found.rights_after:,} fewer)"
        )
    click.echo(f"replayed {plural(found.decided, 'check')} under the proposal: no access lost")
    if found.earlier:
        click.echo(f"decided otherwise under today's policies already: {plural(found.earlier, 'question')}")
    click.echo(f"written to {out}: look through it, then `pdp pipeline replay --candidate {out}`")


def _fields(found: Suggestion) -> dict[str, Any]:
    return {
        "before": found.before, "after": found.after, "dropped": found.dropped, "narrowed": found.narrowed,
        "rightsBefore": found.rights_before, "rightsAfter": found.rights_after,
        "fewer": found.rights_before - found.rights_after, "decided": found.decided, "lost": 0,
        "changedBefore": found.earlier, "undecidable": found.gaps.checks, "quarantined": found.gaps.quarantined,
    }  # fmt: skip


def _say_gaps(gaps: RecordGaps) -> None:
    """Print what nothing is proven about: the rest of the report says nothing about these records."""
    if gaps.checks:
        click.echo(f"not proven, because not decided again: {plural(gaps.checks, 'check')}")
        for cause, checks in sorted(gaps.undecidable.items()):
            click.echo(f"  {visible(cause)}: {plural(checks, 'check')}")
    if gaps.quarantined:
        click.echo(f"not proven, because in quarantine: {plural(gaps.quarantined, 'line')}")
