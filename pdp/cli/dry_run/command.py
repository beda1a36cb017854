"""`pdp dry-run`: the same checks decided under two sets of policies, and a report of all differences."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from pdp.audit.reader import read_audit
from pdp.audit.records.recorded import ReadReport, RecordFilter, ReplayCheck
from pdp.cli.dry_run.checks import parse_time, read_checks
from pdp.cli.dry_run.report import DryRunReport, as_json, print_text
from pdp.cli.dry_run.rows import are_row_files, compare_rows, compare_stored
from pdp.cli.dry_run.sides import had_implicit_rule, has_implicit_rule, side_settings, warnings_of
from pdp.cli.grants.store import readable_settings
from pdp.cli.options import format_option, refuse_beside, say_configuration, set_option
from pdp.cli.progress import Progress
from pdp.cli.terminal import one_line_errors
from pdp.cli.wiring import Wiring, chosen_file
from pdp.config.settings import Settings
from pdp.decision.service import Pdp
from pdp.errors import InvalidArgument
from pdp.offline.replay.basis import FolderArchive, HistoricalPdps
from pdp.offline.replay.differences import Differences
from pdp.offline.replay.replay import repeat_recorded, replay

DIFFERENT: Final = 3
"""Exit code if a check is decided differently."""


class DryRunOptions(msgspec.Struct, frozen=True):
    """Options of the command, except `--format`."""

    baseline: tuple[str, ...]
    candidate: tuple[str, ...]
    forbid_baseline: tuple[str, ...]
    forbid_candidate: tuple[str, ...]
    config: Path | None
    overrides: tuple[str, ...]
    checks: str | None
    audit: Path | None
    since: str | None
    until: str | None
    principal: str
    listings: bool
    data: tuple[str, ...] = ()
    stored: bool = False

    @property
    def has_baseline(self) -> bool:
        """Tell whether a baseline decides the checks; if not, the recorded decisions are the baseline."""
        return bool(self.baseline or self.forbid_baseline or (chosen_file(self.config) and self.checks))

    @property
    def repeats_recorded(self) -> bool:
        """Tell whether no policies are given: then recorded checks are decided again as they were decided."""
        return self.audit is not None and not (self.candidate or self.forbid_candidate)

    @property
    def compares_rows(self) -> bool:
        """Tell whether both sides have row policies alone, and no checks are given."""
        return self._has_no_checks and not self.stored and are_row_files(self.baseline, self.candidate)

    @property
    def compares_stored(self) -> bool:
        """Tell whether the candidate replaces row policies of the store, and nothing else is given."""
        given = self.baseline or self.forbid_baseline or self.forbid_candidate
        return self.stored and self._has_no_checks and not given and are_row_files(self.candidate)

    @property
    def _has_no_checks(self) -> bool:
        return self.checks is None and self.audit is None

    def validate(self) -> None:
        """Raise InvalidArgument if the options contradict each other."""
        if self.stored:
            raise InvalidArgument(
                "--stored compares the row policies of the store with files of row policies: give these as "
                "--candidate, and no --baseline, --checks, --audit and rules"
            )
        if self.data:
            raise InvalidArgument("--data counts rows for two sides of row policies, without --checks and --audit")
        if (self.checks is None) == (self.audit is None):
            raise InvalidArgument("give either --checks or --audit")
        if self.repeats_recorded:
            if self.baseline or self.forbid_baseline or self.config or self.overrides:
                raise InvalidArgument(
                    "give a --candidate: the new policies. Without, --audit decides again by the policies and grants "
                    "in its folder, and takes no --baseline, -c and --set"
                )
            return
        if not self.has_baseline and self.audit is None:
            raise InvalidArgument("--checks needs a --baseline or --config: a file of checks has no recorded decisions")
        if not (self.candidate or self.forbid_candidate):
            raise InvalidArgument("give a --candidate: the new policies")
        if self.audit is None and (self.since or self.until or self.principal or self.listings):
            raise InvalidArgument("--since, --until, --principal and --listings choose records of --audit")

    def read_checks(self, reading: ReadReport) -> Iterator[ReplayCheck]:
        """Yield the checks of the file or of the audit; count them in `reading`."""
        if self.audit is None:
            return read_checks(self.checks or "-", reading)
        since, until = parse_time(self.since, "--since"), parse_time(self.until, "--until")
        again = self.repeats_recorded
        return read_audit(
            self.audit, reading, RecordFilter(since, until, self.principal, self.listings or again, at_revision=again)
        )


class MultiValueCommand(click.Command):
    """Command whose repeatable file options take all arguments up to the next option, as a shell's `*` expands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each of its arguments: `--a x y` becomes `--a x --a y`."""
        options = {name for param in self.params if param.multiple for name in param.opts if name != "--set"}
        spread: list[str] = []
        current = ""
        for arg in args:
            if arg.startswith("-") and arg != "-":
                current = arg if arg in options else ""
            elif current and spread[-1] != current:
                spread.append(current)
            spread.append(arg)
        return super().parse_args(ctx, spread)


@click.command("dry-run", cls=MultiValueCommand)
@click.option("--baseline", multiple=True, metavar="FILE...", help="Current policies: rules, a world, a pdp.yaml.")
@click.option("--candidate", multiple=True, metavar="FILE...", help="New policies: rules, a world, a pdp.yaml.")
@click.option("--forbid-baseline", multiple=True, metavar="FILE...", help="Current rule files that forbid.")
@click.option("--forbid-candidate", multiple=True, metavar="FILE...", help="New rule files that forbid.")
@click.option(
    "-c", "--config", type=click.Path(path_type=Path), help="Configuration that both sides share. Default: ./pdp.yaml."
)
@set_option("Override one setting of both sides.")
@click.option("--checks", metavar="FILE", help="Checks, one JSON object a line as for `pdp check`; - is stdin.")
@click.option("--audit", type=click.Path(path_type=Path), help="Folder of audit records, whose checks are repeated.")
@click.option("--since", metavar="TIME", help="Only records from this time on, such as 2026-01-31T12:00Z.")
@click.option("--until", metavar="TIME", help="Only records before this time.")
@click.option("--principal", default="", help="Only records about this principal.")
@click.option("--listings", is_flag=True, help="Also repeat the checks of listings: /v1/list and /v1/access.")
@click.option("--data", multiple=True, metavar="TABLE=FILE", help="CSV file of a table, to count rows by row policies.")
@click.option("--stored", is_flag=True, help="The baseline is the row policies of the store of -c.")
@format_option("text", "json")
@click.pass_obj
@one_line_errors
def dry_run(composition: Wiring, /, form: str, **values: Any) -> None:
    """Compare two sets of policies on the same checks.

    Decides the checks under both sets and reports who gains and who loses access. The checks come from a file
    (--checks) or from an audit folder (--audit).

    Without --baseline, the baseline is the recorded decisions for --audit, and the policies of --config for --checks.

    With --audit alone, every recorded check is decided again at its revision, by the policies and the grants that the
    audit folder has kept. No difference is expected.

    Policy files are rules (.properties, or .yaml with `rules`), worlds (.json, or .yaml with `objects` or `grants`), or
    settings (a pdp.yaml). The suffix and the first top-level key tell the kind.

    With two sides of row policies alone, no checks are needed: who sees more or fewer rows and columns. With --stored,
    the candidate replaces the stored policies and masks of each table that its files name.

    Exits with 3 if a decision differs, else with 0.
    """
    options = DryRunOptions(**values)
    if options.compares_stored:
        refuse_beside("--stored", ("--candidate", "--config", "--set", "--data", "--format"))
        settings = readable_settings(composition, options.config, options.overrides)
        changed = compare_stored(composition, settings, options.candidate, options.data, form)
        raise SystemExit(DIFFERENT if changed else 0)
    if options.compares_rows:
        refuse_beside("--baseline", ("--candidate", "--data", "--format"))
        changed = compare_rows(options.baseline, options.candidate, options.data, form)
        raise SystemExit(DIFFERENT if changed else 0)
    options.validate()
    reading = ReadReport()
    checks = options.read_checks(reading)
    first = list(itertools.islice(checks, 1))  # raises for unusable checks, before any policies are read
    if not first:
        _refuse_nothing(reading, options.checks)
    checks = itertools.chain(first, checks)
    report = (_repeat if options.repeats_recorded else _report)(composition, options, checks, reading)
    if not report.differences.checks:
        _refuse_nothing(reading, options.checks)
    if form == "json":
        sys.stdout.buffer.write(msgspec.json.encode(as_json(report)) + b"\n")
    else:
        print_text(report)
    raise SystemExit(DIFFERENT if report.differences else 0)


def _report(
    composition: Wiring, options: DryRunOptions, checks: Iterator[ReplayCheck], reading: ReadReport
) -> DryRunReport:
    """Compare two sets of policies."""
    baseline, candidate = _build_sides(composition, options)
    differences = _watched(lambda show: replay(checks, baseline, candidate, show))
    implicit_before = has_implicit_rule(baseline) if baseline else had_implicit_rule(options.audit, reading.bundles)
    notes = warnings_of(baseline, candidate)
    return DryRunReport(differences, reading, implicit_before, has_implicit_rule(candidate), notes)


def _repeat(
    composition: Wiring, options: DryRunOptions, checks: Iterator[ReplayCheck], reading: ReadReport
) -> DryRunReport:
    """Decide recorded checks again, by nothing but the audit folder."""
    assert options.audit
    basis = HistoricalPdps(FolderArchive(options.audit), composition.rebuild_pdp)
    return DryRunReport(_watched(lambda show: repeat_recorded(checks, basis, reading, show)), reading)


def _refuse_nothing(reading: ReadReport, checks: str | None) -> None:
    """Raise InvalidArgument if every record was skipped, or a file of checks has none."""
    if reading.skipped:
        why, place = next(iter(reading.first.items()))
        raise InvalidArgument(f"nothing could be compared: {why}, first at {place}")
    if checks is not None:
        raise InvalidArgument(f"nothing could be compared: `{checks}` has no checks")


def _build_sides(composition: Wiring, options: DryRunOptions) -> tuple[Pdp | None, Pdp]:
    """Build the services of the baseline, if there is one, and of the candidate."""
    shared = options.config, options.overrides
    baseline = None
    if options.has_baseline:
        baseline = composition.pdp(_side(options, side_settings(*shared, options.baseline, options.forbid_baseline)))
    candidate = _side(options, side_settings(*shared, options.candidate, options.forbid_candidate))
    return baseline, composition.pdp(candidate)


def _side(options: DryRunOptions, settings: Settings) -> Settings:
    """Return the settings of a side. Raise InvalidArgument if recorded decisions would meet other facts than theirs."""
    if not options.has_baseline:
        if settings.origins.file is None and settings.store.world_file() is None:
            raise InvalidArgument("--audit needs the configuration of the deciding service: give -c, or a world file")
        database = settings.sqlite_file()
        if database is not None and not database.exists():
            raise InvalidArgument(
                f"there is no database at `{database}`, on which the records of --audit were decided: give its address "
                "with --set store.url=..., or a world file"
            )
    say_configuration(settings)
    return settings


def _watched(work: Callable[[Callable[[Differences], None]], Coroutine[Any, Any, Differences]]) -> Differences:
    """Return the result of a replay, and show its progress."""
    with Progress("reading", delay=0) as progress:

        def show(differences: Differences) -> None:
            progress.say(f"{differences.checks:,} checks, {differences.totals.total():,} different")

        return asyncio.run(work(show))
