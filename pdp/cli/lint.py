"""`pdp lint`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from pdp.cli.context import fail, one_line_errors
from pdp.config.settings import Settings, load_settings
from pdp.engines.cel.lint.linter import Finding, Options
from pdp.engines.cel.lint.linter import lint as find
from pdp.errors import InvalidArgument

_RULES_KEY: Final = re.compile(r"^(?:\{\s*)?[\"']?rules[\"']?\s*:", re.MULTILINE)


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("-c", "--config", type=click.Path(path_type=Path), help="What serves the rules: its files, if no PATHS.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--strict", is_flag=True, help="Warnings fail, too.")
@click.option("-v", "--verbose", is_flag=True, help="For each rule an input that it decides.")
@click.option("--cel-extension", "extensions", multiple=True, type=click.Choice(["strings"]), help="As configured.")
@one_line_errors
def lint(
    paths: tuple[Path, ...],
    config: Path | None,
    form: str,
    strict: bool,
    verbose: bool,
    extensions: tuple[str, ...],
) -> None:
    """Check rule files before they are served: files, or folders of .properties and .yaml files; all make one set.

    Says file:line:column, severity and code; docs/lint.md explains the codes. Exits with 1 on an error.
    """
    if not paths and config is None:
        fail("nothing to lint: give files, folders or a configuration")
    settings = load_settings(config) if config else Settings()
    options = Options(
        frozenset(extensions) | frozenset(settings.policies.cel_extensions),
        len(settings.warehouses),
        witnesses=verbose,
    )
    findings = find(list(_files(paths)), options) if paths else _configured(settings, options)
    _print(findings, form)
    failing = {"error", "warning"} if strict else {"error"}
    raise SystemExit(1 if any(found.severity in failing for found in findings) else 0)


def _configured(settings: Settings, options: Options) -> list[Finding]:
    """Permitting and forbidding rules are two sets."""
    forbid = msgspec.structs.replace(options, forbid=True)
    permits = find(settings.paths(settings.policies.rules), options)
    return permits + find(settings.paths(settings.policies.forbid), forbid)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise InvalidArgument(f"cannot read `{path}`: no such file or folder")
        yield from sorted(filter(_holds_rules, path.rglob("*"))) if path.is_dir() else [path]


def _holds_rules(path: Path) -> bool:
    """Folders hold configuration and worlds as well, which are YAML, too."""
    if path.suffix not in (".yaml", ".yml"):
        return path.suffix == ".properties"
    return bool(_RULES_KEY.search(path.read_text("utf-8", "replace")))


def _print(findings: Sequence[Finding], form: str) -> None:
    if form == "json":
        sys.stdout.buffer.write(msgspec.json.encode(findings) + b"\n")
        return
    for found in findings:
        rule = f"rule `{found.rule}`: " if found.rule else ""
        click.echo(
            _shown(f"{found.file}:{found.line}:{found.column}: {found.severity}: [{found.code}] {rule}{found.message}")
        )
        if found.hint:
            click.echo(_shown(f"  hint: {found.hint}"))


def _shown(text: str) -> str:
    """Ids and literals may hold what a terminal would obey."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
