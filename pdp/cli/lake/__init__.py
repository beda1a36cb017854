"""`pdp pipeline`: jobs on Spark over the audit lake. Each is a function in the module of its name, or of `_ROOMS`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final

import click

_COMMANDS: Final[Mapping[str, str]] = {
    "compact": "Join the small files of a lake.",
    "demo": "Play a month of a small company, and report on it.",
    "expire": "Remove old snapshots of a lake.",
    "history": "Tell who could do what on a day, through what, and whether he did.",
    "ingest": "Write the audit of services into the tables of a lake.",
    "replay": "Decide recorded checks again, as recorded or under new policies.",
    "report": "Write a report on the decisions of a lake.",
    "suggest": "Propose grants or rules with which no recorded access is lost.",
}
"""Name of a command -> its help in one line."""
_ROOMS: Final[Mapping[str, str]] = {"compact": "ingest", "expire": "ingest"}
"""Function of a command -> its module in this folder, where the names differ."""


class _PipelineGroup(click.Group):
    """Group that imports a command when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names of the commands with their help."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; None for an unknown name."""
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"pdp.cli.lake.{_ROOMS.get(name, name)}"), name)
        return command


@click.group(cls=_PipelineGroup)
def pipeline() -> None:
    """Keep the audit as Iceberg tables, and ask them.

    The jobs run on Spark through PySpark (`pip install 'lakehouse-pdp[spark]'`, Java 17 or 21): on this machine, or on
    a cluster with `spark-submit`. docs/pipeline.md describes the tables and the ways to run the jobs.
    """
