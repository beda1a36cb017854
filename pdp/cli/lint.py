"""`pdp lint`."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from pdp.cli.config.problems import (
    CONFIGURATION,
    RULE_KEYS,
    cedar_finding,
    find_cedar_remarks,
    find_overlooked_files,
    find_row_access_problems,
    find_rule_errors,
    find_scope_remarks,
    find_world_file_problems,
    find_world_problems,
    finding_of,
    problems_of,
    scope_findings,
)
from pdp.cli.dry_run.sides import is_row_file, is_world_file
from pdp.cli.grants.store import inspect_store
from pdp.cli.options import format_option, say_configuration
from pdp.cli.terminal import fail, one_line_errors
from pdp.cli.wiring import Wiring, chosen_file
from pdp.config.load import load_settings
from pdp.config.names import NameCheck
from pdp.config.policy_files import RULES_KEY, missing_of_quarkus, policy_files
from pdp.config.references import name_check
from pdp.config.regular_files import find_files, unique_files
from pdp.config.settings import Settings
from pdp.engines.cedar.lint import is_cedar_file, lint_cedar, sources_of_files
from pdp.engines.cel.lint.linter import Finding, LintOptions, lint_files
from pdp.engines.scopes.explain import is_permission_file
from pdp.errors import InvalidArgument, PolicyError
from pdp.facts.objects import RowPolicy


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    help="Configuration of the service, default ./pdp.yaml. Without PATHS, its policies are checked.",
)
@format_option("text", "json")
@click.option("--strict", is_flag=True, help="Also exit with 1 on warnings.")
@click.option(
    "-v", "--verbose", is_flag=True, help="Print for each rule an input that it decides, and the roles it sees."
)
@click.option(
    "--cel-extension",
    "extensions",
    multiple=True,
    type=click.Choice(["strings"]),
    help="CEL extension to enable, as in `policies.cel_extensions`.",
)
@click.option("--stored", is_flag=True, help="Also check the row policies and masks of the configured store.")
@click.option("--profile", metavar="NAMES", help="Quarkus profiles of the files, instead of `policies.profiles`.")
@click.pass_obj
@one_line_errors
def lint(
    composition: Wiring,
    paths: tuple[Path, ...],
    config: Path | None,
    form: str,
    strict: bool,
    verbose: bool,
    extensions: tuple[str, ...],
    stored: bool,
    profile: str | None,
) -> None:
    """Check rule files and other policies before they are loaded.

    Without PATHS: the rules, forbids, row policies, permissions of scopes, Cedar files and the world file of the
    configuration. `pdp config check` checks all else of a configuration, too.

    PATHS are files, or folders with .properties, .yaml and .json files. Together, the rule files form one rule set.
    Files that end in .cedar and .cedarschema, and JSON with entities, are checked together, too. A world file counts if
    it is named itself.

    With --stored, the row policies and masks of the store are checked, too. Such a finding has the table and the id of
    the policy in place of a line.

    Prints file:line:column, severity and code of each finding; docs/lint.md explains the codes. Exits with 1 on an
    error.
    """
    settings = _settings(config, paths, stored=stored)
    options = LintOptions(
        frozenset(extensions) | frozenset(settings.policies.cel_extensions),
        len(settings.warehouses),
        witnesses=verbose,
        profiles=tuple(profile.split(",")) if profile else settings.policies.profiles,
        names=name_check(settings, forbid=False) if settings.model_fields_set else NameCheck(),
    )
    rules = tuple(inspect_store(composition, settings).row_rules()) if stored else ()
    findings = _lint_paths(paths, options, rules) if paths else _lint_configured(settings, options, rules)
    _print(findings, form)
    failing = {"error", "warning"} if strict else {"error"}
    raise SystemExit(1 if any(finding.severity in failing for finding in findings) else 0)


def _settings(config: Path | None, paths: Sequence[Path], *, stored: bool) -> Settings:
    """Return the settings of the configuration, if there is one. Files alone need none."""
    file = config if paths and not stored else chosen_file(config)
    if not paths and file is None:
        fail("nothing to lint: give files, folders or a configuration")
    if stored and file is None:
        fail("--stored needs a configuration that names the store: give -c")
    settings = load_settings(file) if file else Settings()
    if file and config is None:
        say_configuration(settings)
    return settings


def _lint_paths(paths: Sequence[Path], options: LintOptions, stored: Sequence[RowPolicy]) -> list[Finding]:
    """Return the findings of files and folders: rules, row policies, permissions of scopes, worlds, and Cedar."""
    files = unique_files(_files(paths))
    cedar = [file for file in files if is_cedar_file(file)]
    scopes = [file for file in files if is_permission_file(file)]
    rows = [file for file in files if file not in cedar and is_row_file(file)]
    worlds = [file for file in files if is_world_file(file)]
    rules = [file for file in files if file not in (*cedar, *rows, *scopes, *worlds)]
    findings = lint_files(rules, options) if rules or not (cedar or scopes or worlds) else []
    findings += _row_findings(rows, stored)
    findings += scope_findings(scopes, strict=False) if scopes else []
    findings += [finding_of(problem) for file in worlds for problem in find_world_file_problems(file)]
    findings += _skipped(paths, {file.resolve() for file in files}, options.profiles)
    return [*findings, *_cedar_findings(cedar)] if cedar else findings


def _skipped(paths: Sequence[Path], read: Collection[Path], profiles: Sequence[str]) -> Iterator[Finding]:
    """Yield a warning for each file that may hold rules, and that lint does not read."""
    named = [path for path in paths if not path.is_dir()]
    for file in named:
        if message := missing_of_quarkus([file], str(file), read, profiles):
            yield Finding(CONFIGURATION, "warning", str(file), 0, 0, "", message)
    below = (file for path in paths if path.is_dir() for file in find_files(path))
    for file in below:
        if file.suffix.lower() == ".json" and file.resolve() not in read and file.is_file():
            text = file.read_text("utf-8", "replace")
            if RULES_KEY.search(text) and not _OF_TESTS.search(text):
                yield Finding(CONFIGURATION, "warning", str(file), 0, 0, "", _NO_RULE_FILE)


_OF_TESTS: Final = re.compile(r'"(?:cases|checks|scopeChecks|load|commitView)"\s*:')
"""Key of a policy test, which names rule files."""
_NO_RULE_FILE: Final = "is skipped: it may hold rules, and rule files end in .properties, .yaml or .yml"


def _cedar_findings(files: Sequence[Path]) -> list[Finding]:
    try:
        return list(map(cedar_finding, lint_cedar(sources_of_files(files))))
    except PolicyError as error:
        return list(map(finding_of, problems_of(error)))


def _row_findings(files: Sequence[Path], stored: Sequence[RowPolicy]) -> list[Finding]:
    if not files and not stored:
        return []
    from pdp.offline.row_policies.lint import lint_row_files  # noqa: PLC0415  needs the parser of SQL

    return lint_row_files(files, stored)


def _lint_configured(settings: Settings, options: LintOptions, stored: Sequence[RowPolicy]) -> list[Finding]:
    """Return the findings of all policies and of the world file. Permitting and forbidding rules are two rule sets."""
    findings: list[Finding] = []
    for key in RULE_KEYS:
        errors = find_rule_errors(settings, key)
        missing = any(finding.code == CONFIGURATION for finding in errors)
        of_key = msgspec.structs.replace(options, names=options.names._replace(forbid=key == "forbid"))
        findings += errors if missing else lint_files(policy_files(settings, key).paths, of_key)
    problems = find_row_access_problems(settings)
    findings += map(finding_of, problems)
    is_readable = not any(problem.severity == "error" for problem in problems)
    files = policy_files(settings, "row_access").paths if is_readable else ()
    findings += [found for found in _row_findings(files, stored) if found.code != CONFIGURATION]
    findings += map(finding_of, find_overlooked_files(settings))
    findings += [*find_scope_remarks(settings), *find_cedar_remarks(settings)]
    return [*findings, *map(finding_of, find_world_problems(settings))]


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise InvalidArgument(f"cannot read `{path}`: no such file or folder")
        yield from filter(_holds_policies, find_files(path)) if path.is_dir() else [path]


def _holds_policies(path: Path) -> bool:
    """Tell whether a file of a folder holds policies; configuration and world files are YAML, too."""
    if path.is_file() and (is_cedar_file(path) or is_row_file(path) or is_permission_file(path)):
        return True
    if path.suffix.lower() not in (".yaml", ".yml"):
        return path.suffix.lower() == ".properties"
    return bool(RULES_KEY.search(path.read_text("utf-8", "replace")))


def _print(findings: Sequence[Finding], form: str) -> None:
    if form == "json":
        sys.stdout.buffer.write(msgspec.json.encode(findings) + b"\n")
        return
    for finding in findings:
        rule = f"rule `{finding.rule}`: " if finding.rule else ""
        place = f"{finding.file}:{finding.line}:{finding.column}" if finding.line else finding.file
        click.echo(_escape(f"{place}: {finding.severity}: [{finding.code}] {rule}{finding.message}"))
        if finding.hint:
            click.echo(_escape(f"  hint: {finding.hint}"))


def _escape(text: str) -> str:
    """Escape control characters in the way of string literals in rules."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text)
