"""`pdp grants`: list, add, remove, move, import and export grants of the configured store.

A user who can open the database is an operator of the deployment, so no further right is needed. Invalid changes are
refused by the same code as over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
from rich.cells import cell_len

from pdp.cli.grants.report import ChangeReport, grant_text, json_lines, summary, text_lines
from pdp.cli.grants.store import actor, read_store, readable_settings, writable_settings
from pdp.cli.options import config_options, format_option
from pdp.cli.progress import Progress
from pdp.cli.terminal import one_line_errors, plural, print_lines, visible
from pdp.cli.wiring import Wiring
from pdp.config.files import whole_file
from pdp.config.references import listed_warehouses
from pdp.config.settings import Settings
from pdp.engines.grants.administration import Administration
from pdp.engines.grants.edits import GrantEdits, ObjectEdits
from pdp.errors import InvalidArgument, Unavailable
from pdp.facts.objects import Change, ObjectKey
from pdp.facts.snapshot import Facts
from pdp.management.codec import grant_body, make_grant_filter
from pdp.management.requests import GrantListing, describe_grant, matching_grants, sorted_grants
from pdp.model.vocabulary import PRIVILEGES
from pdp.store.store import EpochChanged
from pdp.store.world import is_yaml, read_grant, read_key, read_known_grant, read_world_file, unknown_of
from pdp.store.world_text import entry_text, world_lines
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


@click.command("export")
@config_options
@click.argument("file", required=False)
@click.pass_obj
@one_line_errors
def export_world(composition: Wiring, config: Path | None, overrides: tuple[str, ...], file: str | None) -> None:
    """Write all objects and grants to a world file.

    FILE is JSON if the name ends in .json, else YAML. Without FILE, or for `-`, the command prints JSON on stdout.

    The file has one entry a line, in order. An import of the file into an empty store and an export of this store give
    the same bytes.
    """
    with Progress("reading the store") as progress:
        facts = read_store(composition, readable_settings(composition, config, overrides))
        progress.say("writing")
        if file in (None, "-"):
            print_lines(world_lines(facts))
        else:
            with whole_file(Path(file)) as output:
                output.writelines(f"{line}\n".encode() for line in world_lines(facts, yaml=is_yaml(file)))


_COLUMNS = ("OBJECT", "PRIVILEGE", "PRINCIPAL", "ID", "FLAGS")
_FLAGS = {
    "unknown_principal": "nobody registered `{principal}`",
    "orphaned": "`{object}` is registered with another id, so this permits nothing",
}
"""Flag of a grant -> explanation."""


@click.group()
def grants() -> None:
    """List and change the grants of the configured store.

    The commands work on the database directly, with the rights of an operator of the deployment. Running services
    pick up the changes.

    If the store is a world file, the commands can only read it: edit the file to change it.
    """


@grants.command("list")
@config_options
@click.option("--object", "object_", metavar="REF", help="Only grants on this object, such as namespace:lake/sales.")
@click.option("--below", is_flag=True, help="With --object: also grants on all objects below.")
@click.option("--principal", metavar="P", help="Only grants to this user:<idp>~<subject> or role:<id>.")
@click.option("--privilege", metavar="P", help="Only grants of this privilege, such as select.")
@format_option("text", "json")
@click.pass_obj
@one_line_errors
def list_grants(
    composition: Wiring, config: Path | None, overrides: tuple[str, ...], object_: str | None, below: bool,
    principal: str | None, privilege: str | None, form: str,
) -> None:  # fmt: skip
    """List grants, in order.

    The column FLAGS has unknown_principal if the principal is not registered, and orphaned if the grant has another
    id than the object, so that the grant permits nothing.

    JSON output is one grant a line, as an entry of a world file.
    """
    if below and not object_:
        raise InvalidArgument("--below needs an --object")
    if privilege is not None and privilege not in PRIVILEGES:
        raise InvalidArgument(f"no privilege `{privilege}`: there are {', '.join(sorted(PRIVILEGES))}")
    options = {"object": object_, "principal": principal, "privilege": privilege, "below": "true" if below else None}
    filter = make_grant_filter({name: value for name, value in options.items() if value is not None})
    facts = read_store(composition, readable_settings(composition, config, overrides))
    listings = sorted_grants(facts, matching_grants(facts, filter))
    print_lines((entry_text(grant_body(listing)) for listing in listings) if form == "json" else _table(listings))


def _table(listings: Sequence[GrantListing]) -> Iterator[str]:
    if not listings:
        yield "no grants"
        return
    rows = [_COLUMNS, *map(_row, listings)]
    widths = [max(cell_len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
    for row in rows:
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _row(listing: GrantListing) -> tuple[str, ...]:
    entry = grant_body(listing)
    cells = (entry["object"], entry["privilege"], entry["principal"], entry.get("id", ""), ",".join(listing.flags))
    return tuple(map(visible, cells))


@grants.command("add")
@config_options
@click.argument("principal")
@click.argument("privilege")
@click.argument("object_", metavar="OBJECT")
@click.option("--id", "id_", help="Limit the grant to the object with this stable id.")
@click.pass_obj
@one_line_errors
def add_grant(
    composition: Wiring, config: Path | None, overrides: tuple[str, ...], principal: str, privilege: str,
    object_: str, id_: str | None,
) -> None:  # fmt: skip
    """Grant PRIVILEGE on OBJECT to PRINCIPAL.

    Does nothing if the grant exists.

    Example: pdp grants add role:analyst select namespace:lake/sales
    """
    grant = read_grant(_entry(principal, privilege, object_, id_), ())
    settings = writable_settings(composition, config, overrides)
    _require_known(grant.object, settings)
    with composition.writing(settings, actor().name, seeded=True) as writer:
        is_new = writer.write(lambda facts: Administration().edit_grants(facts, actor(), GrantEdits(add=[grant])))
        click.echo(visible(f"{'added' if is_new else 'there already'}: {grant_text(grant)}"))
        for flag in describe_grant(writer.facts, grant).flags:
            explanation = _FLAGS[flag].format(principal=principal, object=object_)
            click.echo(visible(f"{flag}: {explanation}"))
        click.echo(f"revision {writer.revision}")


@grants.command("remove")
@config_options
@click.argument("principal")
@click.argument("privilege")
@click.argument("object_", metavar="OBJECT")
@click.option("--id", "id_", help="Remove the grant that is limited to the object with this stable id.")
@click.pass_obj
@one_line_errors
def remove_grant(
    composition: Wiring, config: Path | None, overrides: tuple[str, ...], principal: str, privilege: str,
    object_: str, id_: str | None,
) -> None:  # fmt: skip
    """Remove the grant of PRIVILEGE on OBJECT to PRINCIPAL.

    Does nothing if there is no such grant. The principal may still have the privilege by another grant, on an object
    above or through a role.
    """
    grant = read_known_grant(_entry(principal, privilege, object_, id_), ())
    with composition.writing(writable_settings(composition, config, overrides), actor().name, seeded=True) as writer:
        existed = writer.write(lambda facts: Administration().edit_grants(facts, actor(), GrantEdits(remove=[grant])))
        click.echo(visible(f"{'removed' if existed else 'not there'}: {grant_text(grant)}"))
        click.echo(f"revision {writer.revision}")


def _require_known(key: ObjectKey, settings: Settings) -> None:
    """Raise InvalidArgument for an object in a warehouse that the configuration does not name."""
    if unknown := unknown_of(key, listed_warehouses(settings)):
        raise InvalidArgument(unknown)


def _entry(principal: str, privilege: str, object_: str, id_: str | None) -> dict[str, str]:
    entry = {"principal": principal, "privilege": privilege, "object": object_}
    return entry if id_ is None else entry | {"id": id_}


@grants.command("move")
@config_options
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--dry-run", is_flag=True, help="Print the changes and write nothing.")
@click.pass_obj
@one_line_errors
def move_object(
    composition: Wiring, config: Path | None, overrides: tuple[str, ...], source: str, target: str, dry_run: bool
) -> None:
    """Move the registrations and grants of an object after a rename.

    All registrations and grants on FROM, and on all objects below, become those of TO.

    Example: pdp grants move table:lake/sales/orders table:lake/archive/orders
    """
    edits = ObjectEdits(move=[(read_key(source, ("from",)), read_key(target, ("to",)))])
    settings = writable_settings(composition, config, overrides)
    _require_known(edits.move[0][1], settings)

    def decide(facts: Facts) -> Sequence[Change]:
        return Administration().edit_objects(facts, actor(), edits)

    if dry_run:
        facts = read_store(composition, settings)
        report = ChangeReport.of_dry_run(decide(facts), facts)
    else:
        with composition.writing(settings, actor().name, seeded=True) as writer:
            before = writer.facts
            report = ChangeReport(writer.write(decide), before, writer.revision)
    print_lines(text_lines(report, _move_text(report, source, target)))


def _move_text(report: ChangeReport, source: str, target: str) -> str:
    if not report.changes:
        return f"nothing to move: nothing is registered or granted on `{source}` or below it"
    counts = report.counts()
    moved = f"{plural(counts['added'], 'grant')} and {plural(counts['registered'], 'registered object')}"
    return f"{'would move' if report.dry_run else 'moved'} {source} to {target}, with {moved}"


for command in (import_world, export_world):
    grants.add_command(command)
