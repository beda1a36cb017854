"""`pdp trino-config`: Trino's configuration for asking the service, and a probe of the URL over HTTP."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
import msgspec

from pdp.cli.options import config_options, say_configuration
from pdp.cli.terminal import one_line_errors, visible
from pdp.cli.wiring import Wiring
from pdp.config.section import split_address
from pdp.config.settings import Settings
from pdp.identity.tls import client_context

_TIMEOUT_SECONDS: Final = 3.0
_URLS: Final = (
    ("opa.policy.uri", "allow", "may the user do this?"),
    (
        "opa.policy.batched-uri",
        "batch",
        "which of many may the user see? without this line, Trino asks for each one",
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
"""Property, endpoint and purpose."""
_ENDPOINTS: Final = "/v1/data/trino/"
_ANY_ADDRESS: Final = ("0.0.0.0", "::")  # noqa: S104  compared with, not bound to
_SPARE_SECONDS: Final = 5
"""Seconds that Trino waits on an idle connection beyond the service's request timeout."""
_QUEUED: Final = 100_000
"""Requests that Trino may queue. A listing of `information_schema.columns` sends one request for each table."""


@click.command()
@config_options
@click.option("--url", metavar="URL", help="URL at which Trino reaches the service. Default: from `server.http`.")
@click.option("--check", is_flag=True, help="Exit with 1 if the service does not answer, or does not accept Trino.")
@click.pass_obj
@one_line_errors
def trino_config(
    composition: Wiring, config: Path | None, overrides: tuple[str, ...], url: str | None, check: bool
) -> None:
    """Print Trino's etc/access-control.properties.

    The properties let Trino ask a service with these settings. The command also sends a test request to the service.
    Prints a warning on stderr if the service does not answer, and for settings that do not work with Trino.
    """
    settings = composition.settings(config, overrides)
    say_configuration(settings)
    base = _own_url(settings) if url is None else _check_url(url)
    for line in _lines(settings, base):
        click.echo(line)
    fault = probe(settings, f"{base}{_ENDPOINTS}allow")
    for warning in (*_warnings(settings, has_url=url is not None), *([fault] if fault else [])):
        click.echo(f"pdp: warning: {visible(warning)}", err=True)
    raise SystemExit(1 if check and fault else 0)


def properties(base: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and purpose of each property that names an endpoint of the service at the URL `base`."""
    yield "access-control.name", "opa", "Trino's plugin for external policies"
    for name, endpoint, purpose in _URLS:
        yield name, f"{base}{_ENDPOINTS}{endpoint}", purpose


def url_of(scheme: str, address: str) -> str:
    """Return the URL of `host:port`."""
    host, port = split_address(address)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _own_url(settings: Settings) -> str:
    address = settings.server.http
    host, port = split_address(address)
    if port == 0:
        raise click.UsageError("`server.http` takes a free port: give the URL with --url")
    scheme = "https" if settings.server.tls.cert else "http"
    return url_of(scheme, f"127.0.0.1:{port}" if host in _ANY_ADDRESS else address)


def _check_url(url: str) -> str:
    """Check and return a URL; raise UsageError if a properties file would change any character."""
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
    yield f"# {others} {_unmanaged_access(settings)} (trino.unmanaged_catalogs), but for Trino's own `system`"


def _unmanaged_access(settings: Settings) -> str:
    return "denied" if settings.trino.unmanaged_catalogs == "deny" else "open to everybody"


def _stores(settings: Settings) -> Iterator[str]:
    yield ""
    if settings.server.tls.client_ca:
        yield "# Trino's client certificate (server.tls.client_ca, identity.callers.*.mtls)"
        yield "#opa.http-client.key-store-path=etc/trino-client.p12"
        yield "#opa.http-client.key-store-password=..."
    yield "# the CA of the service's certificate, if Java does not know the CA"
    yield "#opa.http-client.trust-store-path=etc/pdp-ca.p12"
    yield "#opa.http-client.trust-store-password=..."


def _warnings(settings: Settings, *, has_url: bool) -> Iterator[str]:
    trino, rules = settings.trino, settings.identity.callers.values()
    if not trino.catalogs:
        yield f"`trino.catalogs` is empty: every catalog is {_unmanaged_access(settings)}"
    if not has_url and split_address(settings.server.http)[0] in _ANY_ADDRESS:
        yield "`server.http` is every address of this machine: give the URL at which Trino reaches it with --url"
    if _idle_seconds(settings) >= settings.limits.idle_timeout_seconds:
        yield (
            f"`limits.idle_timeout_seconds` should be more than the {_idle_seconds(settings):g} s that Trino keeps an "
            "idle connection: Trino does not repeat a request if the service closes its connection"
        )
    if rules and not any((rule.loopback or rule.mtls) and "principals" in rule.may_assert for rule in rules):
        yield (
            "`identity.callers` has no `loopback` or `mtls` caller that may assert `principals`: Trino shows no token, "
            "so every request of Trino is denied"
        )


class _Error(msgspec.Struct):
    code: str
    message: str


class _ProbeErrorResponse(msgspec.Struct):
    error: _Error


def probe(settings: Settings, url: str) -> str:
    """Return why no service answers Trino at the URL of an endpoint; empty if a service does.

    The probe sends a list, which is no request. The service authenticates the sender before refusing the request, so
    the refusal shows the sender's access. The service decides and records nothing.
    """
    try:
        status, body = _post(settings, url)
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or type(error).__name__
        return f"no answer from {url}: {cause}"
    try:
        refusal = msgspec.json.decode(body, type=_ProbeErrorResponse).error
    except msgspec.DecodeError:
        return f"{url} is not this service: status {status}"
    if (status, refusal.code) == (400, "invalid_argument"):
        return ""
    if status == 401 and settings.server.tls.client_ca:
        return ""  # the service asks for a client certificate: Trino has one, this command has none
    return f"{url} refuses: {refusal.message}"


def _post(settings: Settings, url: str) -> tuple[int, bytes]:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = client_context(settings)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, parts.port, timeout=_TIMEOUT_SECONDS, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("POST", parts.path, b"[]", {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read(65_536)
    finally:
        connection.close()
