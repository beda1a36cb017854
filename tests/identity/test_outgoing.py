"""Ways to other servers: private authorities and proxies, for keys, policies, catalogs and the audit alike."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest
from support.servers.idp import ISSUER, Authority, provider, server_tls, token
from support.servers.proxy import ConnectProxy, connecting

from pdp.app.facts import build_catalogs
from pdp.app.sources.client import SourceUnreachable
from pdp.app.sources.http import HttpFetcher
from pdp.audit.push.http import DeliveryFailed, open_receiver
from pdp.config.load import make_settings
from pdp.config.server import OutgoingSettings, WayOut
from pdp.config.settings import Settings
from pdp.errors import ConfigError, PdpError, Unavailable
from pdp.identity.tokens import Tokens
from pdp.model.references import parse_resource
from pdp.telemetry import Telemetry

HOST = "server.test"
"""Name that only the proxy knows."""


class Place(NamedTuple):
    """Server of TLS, its authority, a foreign one, and what was asked of it."""

    port: int
    ca: Path
    other: Path
    asked: list[str]

    def url(self, host: str = HOST) -> str:
        return f"https://{host}:{self.port}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("authorities")
    ours, other = Authority(folder, "ours"), Authority(folder, "other")
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(404 if "view" in self.path else 200)
            body = b"{}" if "/v1/" in self.path and "view" not in self.path else NO_VIEW
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  the name of the library

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Print nothing: clients refuse the certificate."""

    server = Server(("127.0.0.1", 0), Handler)
    server.socket = server_tls(ours, HOST).wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield Place(server.server_address[1], ours.path, other.path, asked)
    server.shutdown()
    server.server_close()


NO_VIEW = b'{"error": {"type": "NoSuchViewException", "message": "", "code": 404}}'


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConnectProxy]:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with connecting() as made:
        yield made


def keys(settings: Settings) -> None:
    async def fetch() -> None:
        tokens = Tokens(settings, Telemetry())
        await tokens.start()
        await tokens.stop()
        trouble = tokens.troubles()["identity oidc"]
        if "it is no JWK set" not in trouble:  # an answer of the server
            raise Unavailable(trouble)

    asyncio.run(fetch())


def policies(settings: Settings) -> None:
    source = settings.policies.source
    assert source
    HttpFetcher(settings, source).get(source.place, {}, 1 << 20)


def catalog(settings: Settings) -> None:
    async def ask() -> None:
        made = build_catalogs(settings)["lake"]
        try:
            assert await made.properties(parse_resource("view:lake/sales/v")) is None
        finally:
            await made.close()

    asyncio.run(ask())


def audit(settings: Settings) -> None:
    push = settings.audit.sinks[0].http
    assert push
    sender = open_receiver(settings, push)
    try:
        sender.send(b"{}", {})
    finally:
        sender.close()


def config_of(url: str, ca: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the settings of each client, with an own authority."""
    own, own_file = ({"ca": ca}, {"ca_file": ca}) if ca else ({}, {})
    provider = {"issuer": ISSUER, "jwks": f"{url}/keys", "audiences": ["pdp"], **own_file}
    return {
        "keys": {"identity": {"providers": {"oidc": provider}}},
        "policies": {"policies": {"source": {"http": f"{url}/b.tgz", "unsigned": True, **own}}},
        "catalog": {"warehouses": {"lake": {"catalog": {"uri": url, **own_file}}}},
        "audit": {"audit": {"sinks": [{"http": {"url": f"{url}/take", **own}}]}},
    }


CLIENTS = {"keys": keys, "policies": policies, "catalog": catalog, "audit": audit}
FAILURES = (PdpError, SourceUnreachable, DeliveryFailed)


def ask(client: str, url: str, folder: Path, outgoing: dict[str, Any], ca: str | None = None) -> None:
    CLIENTS[client](make_settings({**config_of(url, ca)[client], "outgoing": outgoing}, folder))


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_goes_by_the_proxy_and_trusts_the_file(
    client: str, place: Place, proxy: ConnectProxy, tmp_path: Path
) -> None:
    both = {"ca_file": str(place.ca), "proxy": proxy.url.replace("://", "://user:p%40ss@")}
    before = len(place.asked)
    ask(client, place.url(), tmp_path, both)
    assert len(place.asked) > before
    assert {target.rpartition(" ")[0] for target in proxy.targets} == {f"CONNECT {HOST}:{place.port}"}
    credentials = base64.b64encode(b"user:p@ss").decode()
    assert all(f"Proxy-Authorization: Basic {credentials}" in head for head in proxy.heads)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_authority_of_one_server_wins(client: str, place: Place, proxy: ConnectProxy, tmp_path: Path) -> None:
    ask(client, place.url("localhost"), tmp_path, {"ca_file": str(place.other)}, str(place.ca))
    before = len(place.asked)
    for outgoing, own in (({"ca_file": str(place.ca)}, str(place.other)), ({}, None)):
        with pytest.raises(FAILURES, match=r"(?i)certificate"):
            ask(client, place.url("localhost"), tmp_path, outgoing, own)
    assert len(place.asked) == before
    (tmp_path / "none.pem").write_text("no certificate")
    for file in ("none.pem", "absent.pem"):
        with pytest.raises(ConfigError, match=r"`outgoing\.ca_file`.*holds no certificates"):
            ask(client, place.url("localhost"), tmp_path, {"ca_file": file})
    assert not proxy.heads


@pytest.mark.parametrize("client", CLIENTS)
def test_the_environment_names_the_proxy_of_https(
    client: str, place: Place, proxy: ConnectProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = {"ca_file": str(place.ca)}
    monkeypatch.setenv("HTTPS_PROXY", proxy.url.removeprefix("http://"))
    ask(client, place.url(), tmp_path, trusted)
    count = len(proxy.heads)
    assert count
    monkeypatch.setenv("NO_PROXY", "example.org, localhost")
    ask(client, place.url("localhost"), tmp_path, trusted)
    assert len(proxy.heads) == count
    monkeypatch.setenv("https_proxy", "socks5://user:secret@127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"`https_proxy` cannot be used") as refused:
        ask(client, place.url(), tmp_path, trusted)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("client", CLIENTS)
def test_http_goes_by_no_proxy(client: str, proxy: ConnectProxy, tmp_path: Path) -> None:
    with pytest.raises(FAILURES):
        ask(client, "http://127.0.0.1:1", tmp_path, {"proxy": proxy.url})
    assert not proxy.heads


@pytest.mark.parametrize("client", CLIENTS)
def test_a_proxy_that_refuses_is_named(client: str, place: Place, proxy: ConnectProxy, tmp_path: Path) -> None:
    proxy.answer = b"HTTP/1.1 407 secret words\r\nContent-Length: 0\r\n\r\n"
    with pytest.raises(FAILURES, match=r"proxy answers 407|ClientHttpProxyError") as refused:
        ask(client, place.url(), tmp_path, {"ca_file": str(place.ca), "proxy": proxy.url})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("entry", "covered"),
    [
        ("*", True), ("idp.acme.com", True), ("acme.com", True), (".acme.com", True), ("*.acme.com", True),
        ("IDP.ACME.COM", True), ("idp.acme.com:443", True), ("idp.acme.com:8443", False), ("cme.com", False),
        ("other.com", False), ("10.0.0.0/8", False), ("com.", False),
    ],
)  # fmt: skip
def test_no_proxy_names_hosts_domains_and_ports(entry: str, covered: bool) -> None:
    way = WayOut(proxy="http://p:1", no_proxy=("x.org", entry))
    assert way.proxy_to("https://idp.acme.com/keys") == (None if covered else "http://p:1")


@pytest.mark.parametrize(
    ("entry", "covered"),
    [("10.1.2.3", True), ("10.0.0.0/8", True), ("10.1.2.4", False), ("11.0.0.0/8", False), ("[10.1.2.3]", True),
     ("10.1.2.3:443", True), ("10.1.2.3:444", False)],
)  # fmt: skip
def test_no_proxy_names_addresses_and_networks(entry: str, covered: bool) -> None:
    assert (WayOut(proxy="http://p:1", no_proxy=(entry,)).proxy_to("https://10.1.2.3/") is None) == covered
    assert WayOut(proxy="http://p:1", no_proxy=("fd00::/8",)).proxy_to("https://[fd00::1]/") is None


@pytest.mark.parametrize(
    "proxy",
    [
        "https://p:1",
        "socks5://p",
        "http://",
        "http://p:1/path",
        "http://p:99999",
        "http://p?q",
        "//p",
        "p:x",
        "p:1",
        "http://a/b@p:1",
        "http://a@b@p:1",
        "http://a#@p:1",
        "http://u:℀@p:1",
    ],
)
def test_another_proxy_is_refused_without_its_words(proxy: str) -> None:
    with pytest.raises(ValueError, match="a proxy is `http://host:port`"):
        OutgoingSettings.model_validate({"proxy": proxy})


async def test_keys_by_a_private_authority_verify_tokens(tmp_path: Path, proxy: ConnectProxy) -> None:
    ours = Authority(tmp_path, "ours")
    async with provider(server_tls(ours, "idp.test"), "idp.test") as idp:
        config = {"oidc": {"issuer": ISSUER, "jwks": idp.url, "audiences": ["pdp"]}}
        trusts: list[dict[str, str]] = [{}, {"ca_file": str(ours.path)}]
        for trust in trusts:
            outgoing = {"proxy": proxy.url, **trust}
            tokens = Tokens(
                make_settings({"identity": {"providers": config}, "outgoing": outgoing}, tmp_path), Telemetry()
            )
            await tokens.start()
            trouble = tokens.troubles().get("identity oidc", "")
            assert ("its certificate is not trusted" in trouble) == (not trust)
            assert ("`identity.providers.oidc.ca_file`" in trouble) == (not trust)
            if trust:
                assert (await tokens.verify(token())).principal.id == "user:oidc~alice"
            await tokens.stop()


def test_the_trust_of_a_way_verifies_names() -> None:
    context = WayOut().context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
