"""`pdp migrate`: policies of Nessie, Lakekeeper and OpenFGA as files of this service, with a report."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import click
import msgspec

from pdp.cli.terminal import one_line_errors, plural, print_lines, visible
from pdp.cli.wiring import Wiring
from pdp.config.files import open_private_file
from pdp.config.origins import without_url_secrets
from pdp.errors import InvalidArgument
from pdp.offline.cases.cases import find_cases
from pdp.offline.cases.runner import run_case
from pdp.offline.migration.report import TESTS, MigratedPart, Migration

F = TypeVar("F", bound=Callable[..., Any])
_WORDS: Final = {"done": "translated", "note": "look at", "left": "left", "ignored": "ignored"}
_WIDTH: Final = max(map(len, _WORDS.values()))


def output_options(command: F) -> F:
    """Add `--out`, `--force` and `--format`."""
    out = click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder of the new files.")
    force = click.option("--force", is_flag=True, help="Overwrite files of the folder.")
    form = click.option(
        "--format", "--output", "form", type=click.Choice(("text", "json")), default="text", show_default=True,
        help="Format of the report.",
    )  # fmt: skip
    return out(force(form(command)))


wider_option: Final = click.option(
    "--accept-wider", "accepted", multiple=True, metavar="NAME",
    help="Write what allows more than the old files do, by the name that the report gives. Can be repeated.",
)  # fmt: skip


def finish(composition: Wiring, migration: Migration, out: Path | None, form: str, *, force: bool) -> None:
    """Run the new policy tests, write the files, print the report, and exit with 1 if a part is left.

    Write no file that would allow more than the old ones.
    """
    if force and out is None:
        raise click.UsageError("`--force` has no effect without `--out`: give both, or none")
    passed = _run_tests(composition, migration)
    if migration.refused:
        migration.files.clear()
    elif out is not None:
        _write_files(migration.files, out, force=force)
    if form == "json":
        sys.stdout.buffer.write(msgspec.json.encode(_report(migration, out, passed)) + b"\n")
    else:
        print_lines(_lines(migration, out, passed))
    raise SystemExit(1 if migration.left else 0)


def _run_tests(composition: Wiring, migration: Migration) -> int:
    """Run the policy tests of the new files, and report the failed ones as left; return the number of passed tests."""
    tests = [name for name in migration.files if name.startswith(TESTS)]
    passed = 0
    with TemporaryDirectory() as folder, asyncio.Runner() as runner:
        _write_files(migration.files, Path(folder), force=True)
        for case in find_cases([Path(folder) / name for name in tests]):
            outcome = run_case(case, composition.build_pdp, runner)
            if outcome.passed:
                passed += 1
            else:
                migration.add("left", tests[0], f"test `{case.note}`", f"pdp decides otherwise: {outcome.error}")
    return passed


def _write_files(files: dict[str, str], out: Path, *, force: bool) -> None:
    existing = [str(out / name) for name in files if (out / name).exists()]
    if existing and not force:
        raise InvalidArgument(f"`{existing[0]}` exists: give `--force` to overwrite, or another folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            opened = open_private_file(out / name, os.O_WRONLY | os.O_TRUNC)
            with open(opened, "w", encoding="utf-8", newline="\n") as file:  # noqa: PTH123  a descriptor
                file.write(text)
    except OSError as error:
        raise InvalidArgument(f"cannot write to `{out}`: {(error.strerror or str(error)).lower()}") from None


def _report(migration: Migration, out: Path | None, passed: int) -> dict[str, Any]:
    files = [str(out / name) for name in migration.files] if out else []
    parts = [shown_part(part) for part in migration.parts]
    return {"files": files, "counts": migration.counts(), "testsPassed": passed, "parts": parts}


def _lines(migration: Migration, out: Path | None, passed: int) -> Iterator[str]:
    for part in migration.parts:
        yield report_line(part)
    counts = migration.counts()
    yield ", ".join(f"{counts[status]:,} {word}" for status, word in _WORDS.items())
    if passed:
        yield f"{plural(passed, 'policy test')} passed"
    for name in migration.files if out else ():
        yield f"wrote {visible(str((out or Path()) / name))}"
    if migration.refused:
        options = " ".join(f"--accept-wider {name}" for name in sorted(migration.refused))
        yield visible(f"nothing written: the new files would allow more than the old ones, unless you give `{options}`")
    elif out is None:
        yield "nothing written: give `--out FOLDER`"


def report_line(part: MigratedPart) -> str:
    """Return the line of a part in the report."""
    part = shown_part(part)
    message = f": {part.message}" if part.message else ""
    place = f"{part.place}  " if part.place else ""
    return visible(f"{_WORDS[part.status]:{_WIDTH}}  {place}{part.subject}{message}")


def shown_part(part: MigratedPart) -> MigratedPart:
    """Return a part without secrets in the texts that it quotes from the old files."""
    subject, message = part.subject, part.message
    subject = _WHOLE.sub(_masked, subject) if "`" in subject else _masked(subject)
    message = without_url_secrets((_WHOLE if "://" in message else _EACH).sub(_masked, message))
    return msgspec.structs.replace(part, subject=subject, message=message)


_WHOLE: Final = re.compile(r"(?<=`).*(?=`)", re.DOTALL)
"""All between the first and the last backtick: a text of an old file may have backticks itself."""
_EACH: Final = re.compile(r"(?<=`)[^`]+(?=`)")
_USER: Final = re.compile(r"(?<![\w/.-])[\w.%-]+:[^\s/@]+(?=@(?!sha\d+:)[\w.-]+[:/])")
"""User and password before a host, without a scheme. The digest of an image is neither."""
_LONE_USER: Final = re.compile(r"(?<![\w/.~-])[\w.%~+-]+(?=@(?!sha\d+:)(?:[\w-]+\.)+[a-z]{2,}[:/])", re.IGNORECASE)
"""Token before a host, without a scheme, as in a context of docker."""
_REMOTE: Final = re.compile(
    r"(?<![\w/.-])((?:\*+@)?(?:[\w-]+\.)+[a-z]{2,}[:/][^\s`'\"?#]*[?#])[^\s`'\"]+", re.IGNORECASE
)
"""Address without a scheme, with a query or a fragment."""


def _masked(quoted: re.Match[str] | str) -> str:
    """Return a quoted text without secrets."""
    from pdp.cli.config.command import masked  # noqa: PLC0415  help needs none of the readers

    text: str = masked(quoted if isinstance(quoted, str) else quoted[0])
    return _REMOTE.sub(r"\1***", _LONE_USER.sub("***", _USER.sub("***", without_url_secrets(text))))


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
@wider_option
@output_options
@click.pass_obj
@one_line_errors
def nessie(
    composition: Wiring, files: tuple[Path, ...], env_files: tuple[Path, ...], profile: str | None, warehouse: str,
    accepted: tuple[str, ...], out: Path | None, force: bool, form: str,
) -> None:  # fmt: skip
    """Translate the rules of Nessie's authorization.

    FILES are application.properties and application.yaml, also those of a profile. The keys of all files and variables
    are joined as in Quarkus.
    """
    from pdp.offline.migration.nessie import migrate_nessie  # noqa: PLC0415  help needs none of the readers

    if not files and not env_files:
        raise click.UsageError("nothing to migrate: give files, or `--env-file`")
    profiles = tuple(name.strip() for name in profile.split(",")) if profile else ()
    migration = migrate_nessie(files, env_files, profiles, warehouse, accepted=accepted)
    finish(composition, migration, out, form, force=force)


@migrate.command("lakekeeper")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@output_options
@click.pass_obj
@one_line_errors
def lakekeeper(composition: Wiring, files: tuple[Path, ...], out: Path | None, force: bool, form: str) -> None:
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
@wider_option
@output_options
@click.pass_obj
@one_line_errors
def openfga(
    composition: Wiring, files: tuple[Path, ...], names: Path | None, idp: str, most: int, accepted: tuple[str, ...],
    out: Path | None, force: bool, form: str,
) -> None:  # fmt: skip
    """Translate Lakekeeper's grants from OpenFGA.

    FILES are exports of tuples in JSON, YAML or CSV, a model in JSON or in OpenFGA's language, and store files
    (.fga.yaml) with tuples, model and assertions.
    """
    from pdp.offline.migration.openfga import migrate_openfga  # noqa: PLC0415  help needs none of the readers

    migration = migrate_openfga(files, composition.build_pdp, names, idp, most, accepted)
    finish(composition, migration, out, form, force=force)
