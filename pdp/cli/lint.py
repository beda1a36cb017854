"""`pdp lint`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import click
import msgspec

from pdp.cli.context import one_line_errors
from pdp.engines.cel.program import CompileError, compile_program
from pdp.engines.cel.sources import RuleText, read
from pdp.errors import InvalidArgument, Place, PolicyError


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that lint has to say, and where."""

    file: str
    line: int
    column: int
    severity: Literal["error", "warning"]
    rule: str
    message: str


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--cel-extension", "extensions", multiple=True, type=click.Choice(["strings"]), help="As configured.")
@one_line_errors
def lint(paths: tuple[Path, ...], form: str, extensions: tuple[str, ...]) -> None:
    """Check rule files before they are served: .properties and .yaml files, or folders of .properties files.

    Syntax and types of every rule, ids that stand twice, patterns that RE2 refuses. Exits with 1 on an error.
    """
    findings = sorted(_lint(list(_files(paths)), frozenset(extensions)), key=lambda found: (found.file, found.line))
    if form == "json":
        sys.stdout.buffer.write(msgspec.json.encode(findings) + b"\n")
    for found in findings if form == "text" else ():
        where = f"{found.file}:{found.line}:{found.column}"
        click.echo(f"{where}: {found.severity}: {f'rule `{found.rule}`: ' if found.rule else ''}{found.message}")
    raise SystemExit(1 if any(found.severity == "error" for found in findings) else 0)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise InvalidArgument(f"cannot read `{path}`: no such file or folder")
        yield from sorted(path.rglob("*.properties")) if path.is_dir() else [path]


def _lint(files: Sequence[Path], extensions: frozenset[str]) -> Iterator[Finding]:
    seen: dict[str, RuleText] = {}
    for file in files:
        try:
            source = read(file)
        except PolicyError as error:
            yield _finding(error.place, "error", "", error.message)
            continue
        for warning in source.warnings:
            place, _, message = warning.rpartition(": ")
            path, line, column = place.rsplit(":", 2)
            yield Finding(path, int(line), int(column), "warning", "", message)
        for rule in source.rules:
            if rule.id in seen:
                yield _finding(rule.place(), "error", rule.id, f"stands at {seen[rule.id].place()} already")
            seen[rule.id] = rule
            yield from _lint_rule(rule, extensions)


def _lint_rule(rule: RuleText, extensions: frozenset[str]) -> Iterator[Finding]:
    try:
        program = compile_program(rule.text, extensions)
    except CompileError as error:
        yield _finding(rule.place(error.offset), "error", rule.id, error.message)
        return
    for message, offset in program.warnings:
        yield _finding(rule.place(offset), "error", rule.id, message)


def _finding(place: Place, severity: Literal["error", "warning"], rule: str, message: str) -> Finding:
    return Finding(place.file, place.line, place.column, severity, rule, message)
