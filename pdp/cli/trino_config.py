"""`pdp trino-config`: the lines by which a Trino finds the service, and whether they lead to it."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
import msgspec

from pdp.cli.context import Composition, one_line_errors, visible
from pdp.config.section import split_address
from pdp.config.settings import Settings
from pdp.identity.tls import client_context

_URLS: Final = (
    ("opa.policy.uri", "allow", "may the user do this?"),
    (
        "opa.policy.batched-uri",
        "batch",
        "which of many may the user see? without it Trino asks one by one",
    ),
    (
        "opa.policy.row-filters-uri",
        "rowFilters",
        "row filters, from Trino 440 on; WITHOUT THIS LINE EVERYBODY SEES ALL ROWS",
    ),
    (
        "opa.policy.column-masking-uri",
        "columnMask",
        "masks, from Trino 440 on; WITHOUT THIS LINE AND THE NEXT NOTHING IS MASKED",
    ),
    (
        "opa.policy.batch-column-masking-uri",
        "batchColumnMasks",
        "masks of a table at once, from Trino 453 on, where it takes the place of the line before",
    ),
)
"""Property, endpoint, and what it is for."""
_ENDPOINTS: Final = "/v1/data/trino/"
_ANY: Final = ("0.0.0.0", "::")  # noqa: S104  compared with, not bound to
_SPARE_SECONDS: Final = 5
"""How much longer than the service takes at most Trino is to wait on a connection where nothing happens."""
_PATIENCE: Final = 3.0
"""Seconds to wait for an answer here."""
_QUEUED: Final = 100_000
"""Requests that a listing may queue in Trino; there is one for each table of `information_schema.columns`."""


@click.command()
@click.option("-c", "--config", type=click.Path(path_type=Path), help="pdp.yaml; else ./pdp.yaml, else the example.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting.")
@click.option("--url", metavar="URL", help="How Trino reaches the service, in place of `server.http`.")
@click.option("--check", is_flag=True, help="Exit with 1 where the service does not answer there, or not to Trino.")
@click.pass_obj
@one_line_errors
def trino_config(
    composition: Composition, config: Path | None, overrides: tuple[str, ...], url: str | None, check: bool
) -> None:
    """Print Trino's etc/access-control.properties for a service with these settings.

    Asks the service whether it is there; a warning on stderr says where it is not, or what Trino will stumble over.
    """
    settings = composition.settings(config, overrides)
    base = _own_url(settings) if url is None else _checked_url(url)
    for line in _lines(settings, base):
        click.echo(line)
    fault = unreachable(settings, base)
    for warning in (*_warnings(settings, given=url is not None), *([fault] if fault else [])):
        click.echo(f"pdp: warning: {visible(warning)}", err=True)
    raise SystemExit(1 if check and fault else 0)


def properties(base: str) -> Iterator[tuple[str, str, str]]:
    """The properties that name the service's endpoints: name, value, and what it is for."""
    yield "access-control.name", "opa", "Trino's own plugin for policies that somebody else decides"
    for name, endpoint, purpose in _URLS:
        yield name, f"{base}{_ENDPOINTS}{endpoint}", purpose


def at_url(scheme: str, address: str) -> str:
    """The URL of `host:port`."""
    host, port = split_address(address)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _own_url(settings: Settings) -> str:
    address = settings.server.http
    host, port = split_address(address)
    if port == 0:
        raise click.UsageError("`server.http` takes a free port: say with --url which one it is")
    scheme = "https" if settings.server.tls.cert else "http"
    return at_url(scheme, f"127.0.0.1:{port}" if host in _ANY else address)


def _checked_url(url: str) -> str:
    """A URL that means in a properties file what it says."""
    try:
        parts = urlsplit(url)
        plain = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        plain = False
    if not plain or not url.isascii() or not url.isprintable() or any(sign in url for sign in " \\?#@"):
        raise click.UsageError(f"--url `{visible(url)}` is not `http://host:port` or `https://host:port`")
    return url.rstrip("/")


def _lines(settings: Settings, base: str) -> Iterator[str]:
    yield "# Trino's etc/access-control.properties, by `pdp trino-config`."
    yield from _catalogs(settings)
    yield ""
    for name, value, purpose in properties(base):
        yield f"# {purpose}"
        yield f"{name}={value}"
    yield ""
    yield "# the service answers within limits.request_timeout_seconds, or not at all"
    yield f"opa.http-client.idle-timeout={_idle_seconds(settings):g}s"
    yield "# a listing of columns asks once for each table, all at once; more than 1024 would be an error"
    yield f"opa.http-client.max-requests-queued-per-destination={_QUEUED}"
    if base.startswith("https:"):
        yield from _stores(settings)


def _idle_seconds(settings: Settings) -> float:
    return settings.limits.request_timeout_seconds + _SPARE_SECONDS


def _catalogs(settings: Settings) -> Iterator[str]:
    trino = settings.trino
    for name, catalog in sorted(trino.catalogs.items()):
        at = f"@{catalog.ref}" if catalog.ref else ""
        yield visible(f"# catalog {name} is warehouse {catalog.warehouse}{at}")
    others = "every other catalog is" if trino.catalogs else "no catalog is mapped to a warehouse, all are"
    said = "denied" if trino.unmanaged_catalogs == "deny" else "open to everybody"
    yield f"# {others} {said} (trino.unmanaged_catalogs), but for Trino's own `system`"


def _stores(settings: Settings) -> Iterator[str]:
    yield ""
    if settings.server.tls.client_ca:
        yield "# the certificate by which the service knows Trino (server.tls.client_ca, identity.callers.*.mtls)"
        yield "#opa.http-client.key-store-path=etc/trino-client.p12"
        yield "#opa.http-client.key-store-password=..."
    yield "# who signed the service's certificate, where Java does not know"
    yield "#opa.http-client.trust-store-path=etc/pdp-ca.p12"
    yield "#opa.http-client.trust-store-password=..."


def _warnings(settings: Settings, *, given: bool) -> Iterator[str]:
    trino, rules = settings.trino, settings.identity.callers.values()
    if not trino.catalogs:
        said = "denied" if trino.unmanaged_catalogs == "deny" else "open to everybody"
        yield f"`trino.catalogs` is empty: every catalog is {said}"
    if not given and split_address(settings.server.http)[0] in _ANY:
        yield "`server.http` is every address of this machine: say with --url how Trino reaches it"
    if _idle_seconds(settings) >= settings.limits.idle_timeout_seconds:
        yield (
            f"`limits.idle_timeout_seconds` should be more than the {_idle_seconds(settings):g} s that Trino keeps an "
            "idle connection: it does not ask again where one is closed under it"
        )
    if rules and not any((rule.loopback or rule.mtls) and "principals" in rule.may_assert for rule in rules):
        yield (
            "`identity.callers` has no `loopback` or `mtls` caller that may assert `principals`: Trino shows no token, "
            "so all that it asks is denied"
        )


def unreachable(settings: Settings, base: str) -> str:
    """Why nothing that answers Trino is at a URL; empty where it does.

    What is sent is no decision to make, so nothing is recorded: the service has to know its sender to refuse it.
    """
    url = f"{base}{_ENDPOINTS}allow"
    try:
        status, body = _post(settings, url)
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or type(error).__name__
        return f"no answer from {url}: {cause}"
    try:
        refusal = msgspec.json.decode(body, type=_Refusal).error
    except msgspec.DecodeError:
        return f"{url} is not this service: status {status}"
    if (status, refusal.code) == (400, "invalid_argument"):
        return ""
    if status == 401 and settings.server.tls.client_ca:
        return ""  # there is one for Trino, and none here
    return f"{url} refuses: {refusal.message}"


class _Error(msgspec.Struct):
    code: str
    message: str


class _Refusal(msgspec.Struct):
    error: _Error


def _post(settings: Settings, url: str) -> tuple[int, bytes]:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = client_context(settings)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, parts.port, timeout=_PATIENCE, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=_PATIENCE)
    try:
        connection.request("POST", parts.path, b"{}", {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read(65_536)
    finally:
        connection.close()
