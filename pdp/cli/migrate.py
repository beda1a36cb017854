"""`pdp migrate`: policies of Nessie, Lakekeeper and OpenFGA as files of this service."""

from __future__ import annotations

from pathlib import Path

import click

from pdp.cli.composition import Composition
from pdp.cli.migrate_output import finish, output_options
from pdp.cli.terminal import one_line_errors


@click.group()
def migrate() -> None:
    """Translate policies of Nessie, Lakekeeper or OpenFGA.

    Writes configuration, rules or a world file, and policy tests that show the same decisions, to the folder `--out`.
    The report names every part of the old files: what is translated, what to look at, what is left and why, and what is
    no policy. docs/migration.md explains the parts.

    Exits with 0 if nothing is left, 1 if a part is left, 2 if a file cannot be read.
    """


@migrate.command("nessie")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--env-file", "env_files", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="File with environment variables: NAME=value lines, or a manifest in YAML. Can be repeated.",
)  # fmt: skip
@click.option("--profile", metavar="NAMES", help="Active Quarkus profiles, such as `prod` or `common,prod`.")
@click.option("--warehouse", default="nessie", show_default=True, help="Name of the warehouse in the new files.")
@output_options
@click.pass_obj
@one_line_errors
def nessie(
    composition: Composition, files: tuple[Path, ...], env_files: tuple[Path, ...], profile: str | None, warehouse: str,
    out: Path | None, force: bool, form: str,
) -> None:  # fmt: skip
    """Translate the rules of Nessie's authorization.

    FILES are application.properties and application.yaml, also those of a profile. The keys of all files and variables
    are joined as in Quarkus.
    """
    from pdp.offline.migration.nessie import migrate_nessie  # noqa: PLC0415  help needs none of the readers

    if not files and not env_files:
        raise click.UsageError("nothing to migrate: give files, or `--env-file`")
    profiles = tuple(name.strip() for name in profile.split(",")) if profile else ()
    finish(composition, migrate_nessie(files, env_files, profiles, warehouse), out, form, force=force)


@migrate.command("lakekeeper")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@output_options
@click.pass_obj
@one_line_errors
def lakekeeper(composition: Composition, files: tuple[Path, ...], out: Path | None, force: bool, form: str) -> None:
    """Translate Lakekeeper's variables for trusted engines, identity providers and admins, and those of its OPA bridge.

    FILES have NAME=value lines, or are manifests in YAML: docker compose, Kubernetes, Helm values.
    """
    from pdp.offline.migration.lakekeeper import migrate_lakekeeper  # noqa: PLC0415  help needs none of the readers

    finish(composition, migrate_lakekeeper(files), out, form, force=force)


@migrate.command("openfga")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--names", type=click.Path(path_type=Path), metavar="FILE", help="Names of objects by their ids.")
@click.option("--idp", default="oidc", show_default=True, help="Provider of users whose id has no `<idp>~`.")
@click.option(
    "--tests", "most", type=click.IntRange(min=0), default=300, show_default=True,
    help="Most pairs of user and object in the generated policy tests.",
)  # fmt: skip
@output_options
@click.pass_obj
@one_line_errors
def openfga(
    composition: Composition, files: tuple[Path, ...], names: Path | None, idp: str, most: int, out: Path | None,
    force: bool, form: str,
) -> None:  # fmt: skip
    """Translate Lakekeeper's grants from OpenFGA.

    FILES are exports of tuples in JSON, YAML or CSV, a model in JSON or in OpenFGA's language, and store files
    (.fga.yaml) with tuples, model and assertions.
    """
    from pdp.offline.migration.openfga import migrate_openfga  # noqa: PLC0415  help needs none of the readers

    finish(composition, migrate_openfga(files, composition.build_pdp, names, idp, most), out, form, force=force)
