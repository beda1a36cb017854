"""The modules that a service imports: those that its configuration needs, and no others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.servers.idp import Authority, jwk
from support.service.commands import run_pdp, run_script
from support.service.serving import FREE_PORTS

pytestmark = pytest.mark.process

SERVE = """
import asyncio, json, sys
from pathlib import Path
from pdp.app.process import quick_imports
with quick_imports():
    import pdp.cli.main, pdp.cli.serve
    from pdp.app.service import Service
from pdp.config.load import load_settings

async def start_and_stop():
    service = Service(load_settings(Path(sys.argv[1]), sys.argv[2:]))
    await service.start()
    await service.stop()

asyncio.run(start_and_stop())
print(json.dumps(sorted(sys.modules)))
"""
MADE = """
import asyncio, json, sys
from pathlib import Path
from pdp.app.process import quick_imports
with quick_imports():
    import pdp.cli.main, pdp.cli.serve
    from pdp.app.service import Service
from pdp.config.load import load_settings

async def make():
    Service(load_settings(Path(sys.argv[1]), sys.argv[2:]))

asyncio.run(make())
connector = sys.modules.get("aiohttp.connector")
contexts = connector and (connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED)
print(json.dumps(contexts and [context.cert_store_stats()["x509"] for context in contexts]))
"""
"""Makes a service, and prints the authorities of https clients; null without aiohttp."""
PLAIN = {
    "authorities": {"default": {"engines": ["cel", "grants"]}},
    "policies": {"rules": ["rules.properties"]},
}
RULES = "nessie.server.authorization.rules.a=op=='READ_ENTITY_VALUE' && role in ['Alice'] && path.startsWith('a.')\n"
UNUSED = {
    "alembic",
    "cryptography",
    "greenlet",
    "jwt",
    "mako",
    "pdp.audit.push.http",
    "pdp.audit.reader",
    "pdp.cli.dry_run.command",
    "pdp.cli.lint",
    "pdp.engines.cel.lint",
    "pdp.engines.row_access.validation",
    "pdp.offline",
    "psycopg",
    "re2",
    "rich",
    "sqlalchemy",
    "sqlglot",
}
"""Modules that neither start nor a decision by rules and grants needs."""
ROW_POLICY = """
policies:
  - {id: own, table: lake.sales.orders, grantees: ["user:Alice"], filter: "owner = 'Alice'"}
"""


def imported(folder: Path, settings: object) -> set[str]:
    """Return the modules of a service that has started in a new process."""
    return set(printed(folder, settings, SERVE))


def printed(folder: Path, settings: object, script: str) -> Any:
    """Return what a script prints about a service in a new process."""
    (folder / "pdp.yaml").write_text(json.dumps(settings))
    (folder / "rules.properties").write_text(RULES)
    free = [f"server.{name}={value}" for name, value in FREE_PORTS.items()]
    return run_script(script, str(folder / "pdp.yaml"), *free, cwd=folder)


def test_a_service_imports_no_module_that_it_does_not_need(tmp_path: Path) -> None:
    modules = imported(tmp_path, PLAIN)
    assert modules & UNUSED == set()
    assert {"pdp.engines.cel.engine", "pdp.surfaces.grpc.server", "pdp.store.sqlite"} <= modules


def test_only_configured_clients_bring_aiohttp_before_the_service_listens(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [jwk()]}))
    provider = {"issuer": "https://idp", "jwks": "keys.json", "audiences": ["pdp"]}
    assert printed(tmp_path, PLAIN, MADE) is None
    assert printed(tmp_path, PLAIN | {"identity": {"providers": {"oidc": provider}}}, MADE) == [0, 0]
    assert printed(tmp_path, PLAIN | {"warehouses": {"lake": {"catalog": {"uri": "https://127.0.0.1:1"}}}}, MADE) == [
        0,
        0,
    ]


def test_other_imports_succeed_after_the_quick_imports() -> None:
    script = "from pdp.app.process import quick_imports\nwith quick_imports(): pass\nimport gc, greenlet, rich.console"
    done = subprocess.run([sys.executable, "-c", f"{script}\nassert gc.isenabled()"], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 0


CLIENT = """
import asyncio, http.client, json, ssl, sys, threading, uvloop
from http.server import BaseHTTPRequestHandler, HTTPServer
from pdp.app.process import quick_imports
with quick_imports():
    with quick_imports():
        import aiohttp
        inner = ssl.create_default_context()
    outer = ssl.create_default_context()
    by_paths = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    by_paths.set_default_verify_paths()
contexts = [inner, outer, ssl.create_default_context(), by_paths]
clients = aiohttp.connector._SSL_CONTEXT_VERIFIED, aiohttp.connector._SSL_CONTEXT_UNVERIFIED
loaded = [context.cert_store_stats()["x509"] for context in (*contexts, *clients)]

class Server(HTTPServer):
    def __init__(self, host):
        super().__init__((host, 0), BaseHTTPRequestHandler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(sys.argv[1], sys.argv[2])
        self.socket = tls.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass

def by_socket(context, server):
    connection = http.client.HTTPSConnection(*server.server_address, context=context)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    except ssl.SSLCertVerificationError:
        return 0

async def by_aiohttp(server):
    host, port = server.server_address
    async with aiohttp.ClientSession() as session:
        try:
            return (await session.get(f"https://{host}:{port}/")).status
        except aiohttp.ClientConnectorCertificateError:
            return 0

found = []
runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
for server in (Server("127.0.0.1"), Server("127.0.0.2")):
    found += [*(by_socket(context, server) for context in contexts), runner.run(by_aiohttp(server))]
print(json.dumps([loaded, found]))
"""


@pytest.mark.parametrize("trusted", [True, False])
def test_authorities_of_tls_come_with_the_first_client(tmp_path: Path, trusted: bool) -> None:
    right, wrong = Authority(tmp_path), Authority(tmp_path, "other")
    cert, key = right.issue("service")
    places = {"SSL_CERT_FILE": str((right if trusted else wrong).path), "SSL_CERT_DIR": str(tmp_path / "none")}
    loaded, found = run_script(CLIENT, str(cert), str(key), environ=places)
    assert loaded == [0, 0, 1, 0, 0, 0]
    assert found == [501 if trusted else 0] * 5 + [0] * 5, "the certificate has no name 127.0.0.2"


def test_row_policies_bring_the_parser_of_sql(tmp_path: Path) -> None:
    (tmp_path / "rows.yaml").write_text(ROW_POLICY)
    policies = {"rules": ["rules.properties"], "row_access": ["rows.yaml"]}
    assert "sqlglot" in imported(tmp_path, PLAIN | {"policies": policies})


CHECKED = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from pdp.config.load import load_settings
from pdp.config.section import Section
load_settings(Path(sys.argv[1], "pdp.yaml"))
print(json.dumps([sorted(one.__name__ for one in Section.__subclasses__() if one.__pydantic_complete__), "spy" in sys.modules]))
"""


def test_a_load_of_settings_makes_one_validator_and_asks_no_plugin(tmp_path: Path) -> None:
    (tmp_path / "pdp.yaml").write_text(json.dumps(PLAIN | {"audit": {"sinks": [{"file": "audit"}]}}))
    (tmp_path / "spy.py").write_text("plugin = None")
    (tmp_path / "spy-1.dist-info").mkdir()
    (tmp_path / "spy-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: spy\nVersion: 1\n")
    (tmp_path / "spy-1.dist-info/entry_points.txt").write_text("[pydantic]\nspy = spy:plugin\n")
    assert run_script(CHECKED, str(tmp_path)) == [["Settings"], False]


PARSER = {"sqlglot", "pdp.engines.row_access.read_restrictions"}


@pytest.mark.parametrize("where", ["file", "store", "nowhere"])
def test_the_parser_of_a_first_restricted_load_comes_with_row_policies(tmp_path: Path, where: str) -> None:
    config: dict[str, Any] = {**PLAIN, "warehouses": {"lake": {}}, "store": {"url": "sqlite:///x.db"}}
    if where == "file":
        (tmp_path / "rows.yaml").write_text(ROW_POLICY)
        config["policies"] = {"rules": ["rules.properties"], "row_access": ["rows.yaml"]}
    (tmp_path / "pdp.yaml").write_text(json.dumps(config))
    if where == "store":
        (tmp_path / "rules.properties").write_text(RULES)
        created = run_pdp("policy", "create", "p", "lake.s.t", "--filter", "a = 1", cwd=tmp_path)
        assert created.returncode == 0, created.stderr
    modules = set(printed(tmp_path, config, SERVE))
    assert PARSER & modules == (set() if where == "nowhere" else PARSER)
