"""`pdp grants`: one grant at a time, lists, and moves, on the store that the configuration names.

Whoever can open the database is an operator of the deployment: no right is asked for. What makes no sense is refused
as it is over HTTP, by the same code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.cells import cell_len

from pdp.cli.change_report import ChangeReport, grant_text, many, text_lines
from pdp.cli.context import Composition, one_line_errors, visible
from pdp.cli.grants_export import export_world
from pdp.cli.grants_import import import_world
from pdp.cli.grants_store import actor, print_lines, read_store, store_options, writable
from pdp.engines.grants.administration import Administration
from pdp.engines.grants.edits import GrantEdits, ObjectEdits
from pdp.errors import InvalidArgument
from pdp.facts.objects import Change, Grant
from pdp.facts.snapshot import Facts
from pdp.management.codec import grant_body, wanted_of
from pdp.management.service import GrantListing, listed, matching
from pdp.model.vocabulary import PRIVILEGES
from pdp.store.world import read_grant, read_key
from pdp.store.world_text import entry_text

_COLUMNS = ("OBJECT", "PRIVILEGE", "PRINCIPAL", "ID", "FLAGS")
_ODD = {
    "unknown_principal": "nobody registered `{principal}`",
    "orphaned": "`{object}` is registered with another id, so this permits nothing",
}
"""Flag -> what it says of a grant."""


@click.group()
def grants() -> None:
    """Look at and change the grants of the store that the configuration names.

    Works on the database itself, as an operator of the deployment; running services follow. A store that is a world
    file can be looked at, and is changed by editing it.
    """


@grants.command("list")
@store_options
@click.option("--object", "object_", metavar="REF", help="Grants on this object, such as namespace:lake/sales.")
@click.option("--below", is_flag=True, help="And on everything below it.")
@click.option("--principal", metavar="P", help="Grants to user:<idp>~<subject> or role:<id>.")
@click.option("--privilege", metavar="P", help="Grants of this privilege, such as select.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_obj
@one_line_errors
def list_grants(
    composition: Composition, config: Path | None, overrides: tuple[str, ...], object_: str | None, below: bool,
    principal: str | None, privilege: str | None, form: str,
) -> None:  # fmt: skip
    """List grants in order, with what is odd about each: unknown_principal, orphaned.

    JSON is one grant a line, as an entry of a world file.
    """
    if below and not object_:
        raise InvalidArgument("--below needs an --object")
    if privilege is not None and privilege not in PRIVILEGES:
        raise InvalidArgument(f"no privilege `{privilege}`: there are {', '.join(sorted(PRIVILEGES))}")
    given = {"object": object_, "principal": principal, "privilege": privilege, "below": "true" if below else None}
    wanted = wanted_of({name: value for name, value in given.items() if value is not None})
    facts = read_store(composition, composition.settings(config, overrides))
    found = listed(facts, matching(facts, wanted))
    print_lines((entry_text(grant_body(one)) for one in found) if form == "json" else _columns(found))


def _columns(found: Sequence[GrantListing]) -> Iterator[str]:
    if not found:
        yield "no grants"
        return
    rows = [_COLUMNS, *(_row(one) for one in found)]
    widths = [max(cell_len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
    for row in rows:
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _row(one: GrantListing) -> tuple[str, ...]:
    entry = grant_body(one)
    cells = (entry["object"], entry["privilege"], entry["principal"], entry.get("id", ""), ",".join(one.flags))
    return tuple(map(visible, cells))


@grants.command("add")
@store_options
@click.argument("principal")
@click.argument("privilege")
@click.argument("object_", metavar="OBJECT")
@click.option("--id", "id_", help="Grant it for the object with this stable id alone.")
@click.pass_obj
@one_line_errors
def add_grant(
    composition: Composition, config: Path | None, overrides: tuple[str, ...], principal: str, privilege: str,
    object_: str, id_: str | None,
) -> None:  # fmt: skip
    """Grant PRIVILEGE on OBJECT to PRINCIPAL; a grant that is there already stays.

    Example: pdp grants add role:analyst select namespace:lake/sales
    """
    grant = _grant(principal, privilege, object_, id_)
    with composition.writing(writable(composition, config, overrides), actor().name, seeded=True) as writer:
        is_new = writer.write(lambda facts: Administration().edit_grants(facts, actor(), GrantEdits(add=[grant])))
        click.echo(visible(f"{'added' if is_new else 'there already'}: {grant_text(grant)}"))
        for flag in listed(writer.facts, [grant])[0].flags:
            said = _ODD[flag].format(principal=principal, object=object_)
            click.echo(visible(f"{flag}: {said}"))
        click.echo(f"revision {writer.revision}")


@grants.command("remove")
@store_options
@click.argument("principal")
@click.argument("privilege")
@click.argument("object_", metavar="OBJECT")
@click.option("--id", "id_", help="The grant for the object with this stable id.")
@click.pass_obj
@one_line_errors
def remove_grant(
    composition: Composition, config: Path | None, overrides: tuple[str, ...], principal: str, privilege: str,
    object_: str, id_: str | None,
) -> None:  # fmt: skip
    """Take PRIVILEGE on OBJECT from PRINCIPAL; where it was not granted, nothing happens.

    What is held by another grant, on an object above or through a role, stays.
    """
    grant = _grant(principal, privilege, object_, id_)
    with composition.writing(writable(composition, config, overrides), actor().name, seeded=True) as writer:
        was_there = writer.write(lambda facts: Administration().edit_grants(facts, actor(), GrantEdits(remove=[grant])))
        click.echo(visible(f"{'removed' if was_there else 'not there'}: {grant_text(grant)}"))
        click.echo(f"revision {writer.revision}")


def _grant(principal: str, privilege: str, object_: str, id_: str | None) -> Grant:
    entry = {"principal": principal, "privilege": privilege, "object": object_}
    return read_grant(entry if id_ is None else entry | {"id": id_}, ())


@grants.command("move")
@store_options
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--dry-run", is_flag=True, help="Say what would move, and write nothing.")
@click.pass_obj
@one_line_errors
def move_object(
    composition: Composition, config: Path | None, overrides: tuple[str, ...], source: str, target: str, dry_run: bool
) -> None:
    """Let what is registered and granted on FROM, and on all below it, follow it to TO.

    Example: pdp grants move table:lake/sales/orders table:lake/archive/orders
    """
    edits = ObjectEdits(move=[(read_key(source, ("from",)), read_key(target, ("to",)))])
    settings = writable(composition, config, overrides)

    def decide(facts: Facts) -> Sequence[Change]:
        return Administration().edit_objects(facts, actor(), edits)

    if dry_run:
        facts = read_store(composition, settings)
        report = ChangeReport.of_dry_run(decide(facts), facts)
    else:
        with composition.writing(settings, actor().name, seeded=True) as writer:
            before = writer.facts
            report = ChangeReport(writer.write(decide), before, writer.revision)
    print_lines(text_lines(report, _moved(report, source, target)))


def _moved(report: ChangeReport, source: str, target: str) -> str:
    if not report.changes:
        return f"nothing to move: nothing is registered or granted on `{source}` or below it"
    counts = report.counts()
    what = f"{many(counts['added'], 'grant')} and {many(counts['registered'], 'registered object')}"
    return f"{'would move' if report.dry_run else 'moved'} {source} to {target}, with {what}"


for command in (import_world, export_world):
    grants.add_command(command)
