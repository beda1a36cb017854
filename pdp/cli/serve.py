"""`pdp serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pdp.cli.context import Composition, one_line_errors
from pdp.cli.trino_config import at_url, properties


@click.command()
@click.option("-c", "--config", type=click.Path(path_type=Path), help="pdp.yaml; else ./pdp.yaml, else the example.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, such as limits.max_checks=50."
)
@click.pass_obj
@one_line_errors
def serve(composition: Composition, config: Path | None, overrides: tuple[str, ...]) -> None:
    """Serve decisions over HTTP and gRPC until SIGTERM.

    Without a configuration the example policies are served on loopback, so that there is something to try.
    """
    settings = composition.settings(config, overrides)
    raise SystemExit(composition.serve(settings, _announce))


def _announce(service: Any) -> None:
    http = at_url(service.scheme, service.addresses["http"])
    lines = "".join(f"  {name}={value}\n" for name, value, _ in properties(http))
    click.echo(f"""\
pdp serves
  HTTP         {http}
  gRPC         {service.addresses["grpc"]}
  diagnostics  {at_url("http", service.addresses["diagnostics"])}/health/ready

Try
  curl -s {http}/v1/check -H 'content-type: application/json' -d \\
    '{{"checks":[{{"principal":"user:oidc~Alice","action":"read_data","resource":"table:lake/Foo@prod"}}]}}'

Trino's access-control.properties, with comments: pdp trino-config
{lines}""")
