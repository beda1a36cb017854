"""`pdp policy`: create, list and drop row policies and column masks in the configured store, also by DDL.

A user who can open the database is an operator of the deployment, so no further right is needed. Unsound rules are
refused by the same code as over HTTP.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdp.cli.grants.store import actor, read_store, readable_settings, writable_settings
from pdp.cli.options import CONFIG_OPTIONS, config_options, format_option, refuse_beside
from pdp.cli.terminal import fail, one_line_errors, print_lines, visible
from pdp.cli.wiring import Wiring
from pdp.config.settings import Settings
from pdp.engines.row_access.mask_kinds import MASK_KINDS

if TYPE_CHECKING:
    from pdp.facts.objects import RowPolicy, TablePath
    from pdp.management.row_policy_edits import RuleEdit


@click.group()
def policy() -> None:
    """Create, list and drop row policies and masks of the store.

    The commands work on the database directly, with the rights of an operator of the deployment. Running services
    pick up the changes. Policies of files stay in their files.

    TABLE is <warehouse>.<namespace>.<table> or a reference such as table:lake/sales/orders.
    """


@policy.command("create")
@config_options
@click.argument("id_", metavar="ID")
@click.argument("table")
@click.option("--filter", "filter_", metavar="SQL", help="Condition of a row policy; TRUE for every row.")
@click.option("--grantee", "grantees", multiple=True, metavar="MEMBER", help="Member; all authenticated users if none.")
@click.option("--mask", "column", metavar="COLUMN", help="Mask this column, in place of a row policy.")
@click.option("--kind", help=f"Kind of the mask: {', '.join(MASK_KINDS)}; null if none.")
@click.option("--expression", metavar="SQL", help="Expression or constant of the mask.")
@click.option("--except", "exempt", multiple=True, metavar="MEMBER", help="Member exempt from the mask.")
@click.option("--dialect", default="trino", help="Dialect of the SQL.", show_default=True)
@click.option("--restrictive", is_flag=True, help="Rows need the filter beside another policy; for all users if none.")
@click.option("--replace", is_flag=True, help="Replace a policy or mask of this id.")
@click.pass_obj
@one_line_errors
def create(
    composition: Wiring, config: Path | None, overrides: tuple[str, ...], id_: str, table: str,
    filter_: str | None, grantees: tuple[str, ...], column: str | None, kind: str | None, expression: str | None,
    exempt: tuple[str, ...], dialect: str, restrictive: bool, replace: bool,
) -> None:  # fmt: skip
    """Create a row policy, or with --mask a column mask.

    Example: pdp policy create eu lake.sales.orders --filter "region = 'EU'" --grantee group:eu@example.com
    """
    from pdp.engines.row_access.policies import EVERYONE  # noqa: PLC0415
    from pdp.management.row_policy_codec import make_rule  # noqa: PLC0415
    from pdp.management.row_policy_edits import RowPolicyWrite  # noqa: PLC0415

    if (filter_ is None) == (column is None):
        fail("give --filter for a row policy, or --mask for a mask")
    if restrictive and column is not None:
        fail("--restrictive is for a row policy: a mask hides already")
    given = {"grantees": grantees, "except": exempt, "kind": kind, "restrictive": restrictive}
    fields = {"id": id_, "table": table, "dialect": dialect} | {key: value for key, value in given.items() if value}
    if column is None:
        rule = make_rule(fields | {"filter": filter_} | ({} if expression is None else {"expression": expression}))
    else:
        rule = make_rule({"grantees": EVERYONE, "kind": "null", "expression": expression} | fields | {"column": column})
    _write(
        composition,
        writable_settings(composition, config, overrides),
        RowPolicyWrite(rule, "replace" if replace else "insert"),
    )


@policy.command("drop")
@config_options
@click.argument("id_", metavar="[ID]", required=False)
@click.argument("table", required=False)
@click.option("--mask", "column", default="", metavar="COLUMN", help="Drop the mask of this column.")
@click.option("--if-exists", is_flag=True, help="Do nothing if there is no such policy.")
@click.option("--all", "all_", is_flag=True, help="Drop all row policies of TABLE, in place of one.")
@click.pass_obj
@one_line_errors
def drop(
    composition: Wiring, config: Path | None, overrides: tuple[str, ...], id_: str | None, table: str | None,
    column: str, if_exists: bool, all_: bool,
) -> None:  # fmt: skip
    """Drop a row policy, a mask, or with --all every row policy of TABLE.

    Without a policy, a table shows all rows to everybody with a right to read.
    """
    from pdp.management.row_policy_edits import (  # noqa: PLC0415
        RowPoliciesClear,
        RowPolicyDrop,
        table_of,
    )

    if table is None:  # click gives the only name to the first argument
        id_, table = None, id_ or ""
    if all_ == (id_ is not None):
        fail("give the id of a policy, or --all")
    if all_:
        refuse_beside("--all", CONFIG_OPTIONS)
    path = table_of(table)
    edit = RowPoliciesClear(path) if id_ is None else RowPolicyDrop(path, id_, column, if_exists)
    _write(composition, writable_settings(composition, config, overrides), edit)


@policy.command("list")
@config_options
@click.argument("table", required=False)
@format_option("text", "json")
@click.pass_obj
@one_line_errors
def list_policies(
    composition: Wiring, config: Path | None, overrides: tuple[str, ...], table: str | None, form: str
) -> None:
    """List the row policies and masks of the store, of TABLE or of all tables. JSON output is one rule a line."""
    from pdp.facts.objects import fold_name  # noqa: PLC0415
    from pdp.management.row_policies import rule_name  # noqa: PLC0415
    from pdp.management.row_policy_codec import rule_body  # noqa: PLC0415
    from pdp.management.row_policy_edits import table_of  # noqa: PLC0415
    from pdp.store.world_text import entry_text  # noqa: PLC0415

    path = table_of(table) if table else None
    facts = read_store(composition, readable_settings(composition, config, overrides))
    found = facts.row_rules() if path is None else facts.rules_of(fold_name(path[0], path[1:]))
    rules = sorted(found, key=rule_name)
    print_lines((entry_text(rule_body(rule)) for rule in rules) if form == "json" else _lines(rules))


@policy.command("execute")
@config_options
@click.option("--default", default="", metavar="W.NS", help="Warehouse and namespace of short table names.")
@click.pass_obj
@one_line_errors
def execute(composition: Wiring, config: Path | None, overrides: tuple[str, ...], default: str) -> None:
    """Execute one statement on row access policies from stdin.

    CREATE [OR REPLACE] ROW ACCESS POLICY [IF NOT EXISTS] p ON t [GRANT TO (...)] FILTER USING (...),
    DROP ROW ACCESS POLICY [IF EXISTS] p ON t, or DROP ALL ROW ACCESS POLICIES ON t, in the dialect of BigQuery.
    """
    from pdp.management.row_policy_statements import edit_of  # noqa: PLC0415  needs the parser of SQL
    from pdp.rewrite.errors import RewriteRefused  # noqa: PLC0415
    from pdp.rewrite.policy_statements import read_policy_statement  # noqa: PLC0415

    try:
        statement = read_policy_statement(sys.stdin.read())
    except RewriteRefused as error:
        fail(f"{error.rap}: {error}")
    if statement is None:
        fail("this is no statement on row access policies")
    edit = edit_of(statement, tuple(filter(None, default.split("."))))
    _write(composition, writable_settings(composition, config, overrides), edit)


def _write(composition: Wiring, settings: Settings, edit: RuleEdit) -> None:
    """Write an edit, and print the changed rules and the revision."""
    from pdp.cli.grants.report import ChangeReport, text_lines  # noqa: PLC0415
    from pdp.engines.grants.administration import Administration  # noqa: PLC0415
    from pdp.management.row_policy_edits import RowPolicyAdministration  # noqa: PLC0415

    access = composition.row_access(settings)
    rules = RowPolicyAdministration(Administration(warehouses=frozenset(settings.warehouses)), access)
    with composition.writing(settings, actor().name, seeded=True) as writer:
        rules.check(writer.facts, actor(), (edit,))
        before, now = writer.facts, time.time()
        changes = writer.write(lambda facts: rules.edit(facts, actor(), (edit,), now))
        report = ChangeReport(changes, before, writer.revision)
        warnings = rules.remarks(before, actor(), (edit,))
    for warning in warnings:
        click.echo(f"warning: {visible(warning)}", err=True)
    print_lines(text_lines(report, "written" if changes else "nothing to change"))


def _lines(rules: Sequence[RowPolicy]) -> Iterator[str]:
    if not rules:
        yield "no row policies and no masks in the store"
    for rule in rules:
        texts = rule.text if not rule.others else "; ".join(f"in {one.dialect} {one.text}" for one in rule.texts())
        what = f"mask of {rule.column}: {rule.kind} {texts}".rstrip() if rule.column else f"filter: {texts}"
        what = f"restrictive {what}" if rule.restrictive else what
        state = " (its table was dropped: nobody sees rows)" if rule.tombstone else ""
        yield visible(f"{_table(rule.table)}  {rule.id}{state}  {what}  for {', '.join(rule.grantees)}")


def _table(table: TablePath) -> str:
    return ".".join(table)
