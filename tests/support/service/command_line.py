"""Commands of `pdp` in this process."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from pdp.app.archived_bundle import rebuild_pdp
from pdp.app.assembly import read_row_access, read_rules
from pdp.app.facts import build_pdp, read_facts, writing
from pdp.app.run import embedded_settings, serve
from pdp.cli.main import cli
from pdp.cli.wiring import Wiring

COMPOSITION = Wiring(
    embedded_settings,
    read_rules,
    read_facts,
    build_pdp,
    serve,
    writing,
    rebuild_pdp=rebuild_pdp,
    row_access=read_row_access,
)


def grants(*arguments: str | Path) -> Result:
    """Run `pdp grants` with some arguments in the working directory."""
    return CliRunner().invoke(cli, ["grants", *map(str, arguments)], obj=COMPOSITION)


def policy(*arguments: str | Path, input: str = "") -> Result:
    """Run `pdp policy` with some arguments in the working directory."""
    return CliRunner().invoke(cli, ["policy", *map(str, arguments)], obj=COMPOSITION, input=input)
