"""`pdp grants import`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from pdp.cli.grants.report import ChangeReport, json_lines, summary, text_lines
from pdp.cli.grants.store import actor, writable_settings
from pdp.cli.options import config_options, format_option
from pdp.cli.progress import Progress
from pdp.cli.terminal import one_line_errors, print_lines
from pdp.cli.wiring import Wiring
from pdp.config.references import listed_warehouses
from pdp.config.settings import Settings
from pdp.errors import Unavailable
from pdp.facts.objects import Change
from pdp.store.store import EpochChanged
from pdp.store.world import read_world_file
from pdp.store.writer import ImportStep, Writer, import_changes, plan_import

CHUNK: Final = 5_000
"""Changes in one revision. Other writers wait for a revision, and every replica reads a revision as a whole."""


@click.command("import")
@config_options
@click.argument("file")
@click.option("--dry-run", is_flag=True, help="Print the changes and write nothing.")
@click.option("--prune", is_flag=True, help="Remove grants and registrations that are missing in the file.")
@format_option("text", "json")
@click.pass_obj
@one_line_errors
def import_world(
    composition: Wiring, config: Path | None, overrides: tuple[str, ...], file: str, dry_run: bool, prune: bool,
    form: str,
) -> None:  # fmt: skip
    """Import the objects and grants of a world file.

    The import adds missing grants and objects, and sets the fields of objects that FILE gives. All other entries and
    fields of the store stay unchanged.

    With --prune, the store afterwards equals FILE: the import also removes all grants and registrations that are
    missing in FILE, and the parent, managed access or id of an object if FILE does not give them.

    The import writes differences only, so a second import of the same file writes nothing.

    FILE is JSON if the name ends in .json, else YAML; - is stdin, JSON or YAML.

    The output lists every change as JSON, the first 20 as text.
    """
    settings = writable_settings(composition, config, overrides)
    with Progress("reading the file") as progress:
        world = read_world_file(file, listed_warehouses(settings))
        progress.say("reading the store")
        if dry_run:
            facts = composition.read_facts(_without_seed(settings))
            report = ChangeReport.of_dry_run(import_changes(facts, world, prune=prune), facts)
        else:
            with composition.writing(settings, actor().name, seeded=False) as writer:
                report = _write(writer, plan_import(writer.facts, world, prune=prune), progress)
    nothing = f"nothing to change: the store has all of `{file}`{' and no more' if prune else ''}"
    conclusion = summary(report) if report.changes else nothing
    print_lines(json_lines(report) if form == "json" else text_lines(report, conclusion))


def _without_seed(settings: Settings) -> Settings:
    """Return the settings without a seed: an import into an empty store replaces the seed."""
    return settings.model_copy(update={"store": settings.store.model_copy(update={"seed": None})})


def _write(writer: Writer, changes: Sequence[ImportStep], progress: Progress) -> ChangeReport:
    """Write the changes, in revisions of at most CHUNK changes."""
    before = writer.facts
    written: list[Change] = []
    for start in range(0, len(changes), CHUNK):
        progress.say(f"writing: {start:,} of {len(changes):,} changes")
        try:
            written += writer.write_steps(changes[start : start + CHUNK])
        except (Unavailable, EpochChanged) as error:
            raise _interrupted(error, len(written), writer.revision) from error
    return ChangeReport(written, before, writer.revision)


def _interrupted(error: Unavailable | EpochChanged, written: int, revision: str) -> Unavailable:
    """Return the error of an incomplete import. The written changes stay; a second import writes the rest."""
    if not written:
        return Unavailable(str(error))
    return Unavailable(
        f"{error}; {written:,} changes are written, up to revision {revision}: import again for the rest"
    )
