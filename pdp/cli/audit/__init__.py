"""`pdp audit`: read, verify and export the audit of one or more services."""

from __future__ import annotations

import click

from pdp.cli.audit.export import export
from pdp.cli.audit.tail import tail
from pdp.cli.audit.verify import verify


@click.group()
def audit() -> None:
    """Follow, verify and export the audit.

    The commands read the folder of the configuration (`audit.sinks`), or that of --audit, while services write to it.
    They change nothing.
    """


audit.add_command(tail)
audit.add_command(verify)
audit.add_command(export)
