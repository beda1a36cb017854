"""`pdp serve` and `pdp healthcheck`."""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import structlog

from pdp import __version__
from pdp.cli.config.foreign_variables import check_foreign_variables
from pdp.cli.options import config_options, refuse_beside
from pdp.cli.terminal import one_line_errors
from pdp.cli.trino_config import properties, url_of
from pdp.cli.wiring import EXAMPLE, Wiring, chosen_file
from pdp.config.files import make_private_folder, open_private_file
from pdp.config.load import load_settings
from pdp.config.origins import key_text
from pdp.config.section import split_address
from pdp.config.settings import Settings
from pdp.errors import ConfigError

_MEMORY: Final = "literal-secrets"
"""File with the keys of changed readings, as seen by an operator."""
log = structlog.get_logger()


@click.command()
@config_options
@click.option("--workers", metavar="N|auto", help="Number of processes, the same as --set server.workers=N.")
@click.pass_obj
@one_line_errors
def serve(composition: Wiring, config: Path | None, overrides: tuple[str, ...], workers: str | None) -> None:
    """Serve decisions over HTTP and gRPC until SIGTERM.

    Without a configuration file the command stops, unless --example asks for the example policies. With several
    workers, SIGUSR2 restarts one worker after the other with the configuration and policies of that moment.
    """
    check_foreign_variables(os.environ)
    if workers is not None:
        overrides = (*overrides, f"server.workers={workers}")
    read = partial(composition.settings, config, overrides)
    settings = read()
    require_seen(settings)
    try:
        code = composition.serve(settings, partial(_announce, settings, config is EXAMPLE), read)
    except ConfigError as error:
        raise settings.origins.complete(error) from None
    raise SystemExit(code)


def _announce(settings: Settings, is_example: bool, service: Any) -> None:
    """Log the start as one line, and print the addresses and what Trino needs: on stderr if records go to stdout."""
    log.info(
        "serving",
        version=__version__,
        configuration="example" if is_example else str(settings.origins.file and settings.origins.file.absolute()),
        **service.counts,
        **service.addresses,
    )
    http = url_of(service.scheme, service.addresses["http"])
    lines = "".join(f"  {name}={value}\n" for name, value, _ in properties(http))
    is_for_records = any(sink.stdout for sink in settings.audit.sinks)
    text = f"""\
pdp serves
  HTTP         {http}
  gRPC         {service.addresses["grpc"]}
  diagnostics  {url_of("http", service.addresses["diagnostics"])}/health/ready
{_trial(http) if is_example else ""}
Trino's access-control.properties, with comments: pdp trino-config
{lines}"""
    click.echo(text, err=is_for_records)


def _trial(http: str) -> str:
    """Return a command that asks the example policies."""
    return f"""
These are the example policies. Try
  curl -s {http}/v1/check -H 'content-type: application/json' -d \\
    '{{"checks":[{{"principal":"user:oidc~Alice","action":"read_data","resource":"table:lake/Foo@prod"}}]}}'
"""


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
    if address is not None:
        refuse_beside("--address", useless=("--config",))
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


def require_seen(settings: Settings) -> None:
    """Raise ConfigError if a secret is read in another way than by earlier versions, at the first start only.

    A file in the folder of the audit, else of the database, remembers the keys. Without a folder each start stops.
    """
    differing = settings.origins.differing
    folder = settings.audit.folder or (str(file.parent) if (file := settings.sqlite_file()) else None)
    place = None if folder is None else settings.path(folder) / _MEMORY
    unseen = {key_text(key): source for key, source in differing.items()} if differing else {}
    for key in _seen(place) if unseen else ():
        unseen.pop(key, None)
    if not unseen:
        return
    if place is not None:
        _remember(place, unseen)
    names = ", ".join(f"`{key}` ({source})" for key, source in sorted(unseen.items()))
    way = "start again if this is meant" if place else "give it by its key with `_file`"
    raise ConfigError(f"{names}: taken to the letter now, and earlier versions read another text, as YAML: {way}")


def _seen(place: Path | None) -> frozenset[str]:
    try:
        return frozenset(place.read_text(encoding="utf-8").splitlines()) if place else frozenset()
    except FileNotFoundError:
        return frozenset()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read `{place}`: {type(error).__name__}") from None


def _remember(place: Path, keys: Iterable[str]) -> None:
    try:
        make_private_folder(place.parent)
        with os.fdopen(open_private_file(place, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8") as file:
            file.writelines(f"{key}\n" for key in keys)
    except OSError as error:
        raise ConfigError(f"cannot write `{place}`: {error.strerror}") from None
