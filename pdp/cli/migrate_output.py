"""Output of a migration: files, the run of their policy tests, and the report."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import click
import msgspec

from pdp.cli.composition import Composition
from pdp.cli.terminal import plural, print_lines, visible
from pdp.config.files import open_private_file
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


def finish(composition: Composition, migration: Migration, out: Path | None, form: str, *, force: bool) -> None:
    """Run the new policy tests, write the files, print the report, and exit with 1 if a part is left."""
    passed = _run_tests(composition, migration)
    if out is not None:
        _write_files(migration.files, out, force=force)
    if form == "json":
        sys.stdout.buffer.write(msgspec.json.encode(_report(migration, out, passed)) + b"\n")
    else:
        print_lines(_lines(migration, out, passed))
    raise SystemExit(1 if migration.left else 0)


def _run_tests(composition: Composition, migration: Migration) -> int:
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
    return {"files": files, "counts": migration.counts(), "testsPassed": passed, "parts": migration.parts}


def _lines(migration: Migration, out: Path | None, passed: int) -> Iterator[str]:
    for part in migration.parts:
        yield _line(part)
    counts = migration.counts()
    yield ", ".join(f"{counts[status]:,} {word}" for status, word in _WORDS.items())
    if passed:
        yield f"{plural(passed, 'policy test')} passed"
    for name in migration.files if out else ():
        yield f"wrote {visible(str((out or Path()) / name))}"
    if out is None:
        yield "nothing written: give `--out FOLDER`"


def _line(part: MigratedPart) -> str:
    message = f": {part.message}" if part.message else ""
    place = f"{part.place}  " if part.place else ""
    return visible(f"{_WORDS[part.status]:{_WIDTH}}  {place}{part.subject}{message}")
