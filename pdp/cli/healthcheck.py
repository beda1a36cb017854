"""`pdp healthcheck`."""

from __future__ import annotations

import http.client
from pathlib import Path

import click

from pdp.cli.composition import chosen_file
from pdp.cli.terminal import one_line_errors
from pdp.config.load import load_settings
from pdp.config.section import split_address


@click.command()
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    help="Configuration file of the running service. Default: ./pdp.yaml.",
)
@click.option("--address", metavar="HOST:PORT", help="Diagnostics address. Default: the configured one.")
@click.option("--timeout", default=2.0, show_default=True, help="Seconds to wait for the answer.")
@one_line_errors
def healthcheck(config: Path | None, address: str | None, timeout: float) -> None:
    """Ask a running service whether it is ready.

    Prints the answer and exits with 1 if the service is not ready. For container probes.
    """
    try:
        host, port = split_address(address or load_settings(chosen_file(config)).server.diagnostics)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        connection = http.client.HTTPConnection("127.0.0.1" if host == "0.0.0.0" else host, port, timeout=timeout)  # noqa: S104
        connection.request("GET", "/health/ready")
        response = connection.getresponse()
        click.echo(response.read().decode())
        raise SystemExit(0 if response.status == 200 else 1)
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "strerror", None) or type(error).__name__
        click.echo(f"pdp: no answer from {host}:{port}: {cause}", err=True)
        raise SystemExit(1) from None
