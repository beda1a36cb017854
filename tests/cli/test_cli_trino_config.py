"""Tests of `pdp trino-config` against a running service and the properties of Trino's plugin."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import javaproperties
import pytest
from support.clients.http_client import fetch
from support.paths import RECORDED as RECORDED_FOLDER
from support.servers.idp import Authority
from support.service.commands import example_option, run_pdp
from support.service.serving import Process, serve_process, serving, settings_of

pytestmark = pytest.mark.process

RECORDED = RECORDED_FOLDER / "trino"
ENDPOINTS = {
    "opa.policy.uri": "allow",
    "opa.policy.batched-uri": "batch",
    "opa.policy.row-filters-uri": "rowFilters",
    "opa.policy.column-masking-uri": "columnMask",
    "opa.policy.batch-column-masking-uri": "batchColumnMasks",
}
KNOWN = {line.split(" | ")[0] for line in (RECORDED / "plugin_properties.txt").read_text().splitlines()}


def trino_config(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return run_pdp("trino-config", *example_option(folder, arguments), *arguments, cwd=folder, env=env)


def read(text: str) -> dict[str, str]:
    """Parse properties as Java does."""
    properties: dict[str, str] = javaproperties.loads(text)
    return properties


def urls(text: str) -> dict[str, str]:
    return {name: value for name, value in read(text).items() if name.startswith("opa.policy.")}


def of(base: str) -> dict[str, str]:
    return {name: f"{base}/v1/data/trino/{endpoint}" for name, endpoint in ENDPOINTS.items()}


def configured(folder: Path, text: str) -> None:
    (folder / "pdp.yaml").write_text(text)


def warnings(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """Return all warnings except for the missing answer of a service."""
    lines = ended.stderr.splitlines()
    assert all(line.startswith("pdp: warning: ") for line in lines), ended.stderr
    return [line.removeprefix("pdp: warning: ") for line in lines if "no answer from " not in line]


def bodies() -> dict[str, Any]:
    """Return a recorded body for each endpoint."""
    lines = map(json.loads, (RECORDED / "requests.jsonl").read_text().splitlines())
    return {line["endpoint"]: line["request"] for line in lines}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serve_process(tmp_path_factory.mktemp("serving")) as process:
        yield process


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


# --- a service that runs ------------------------------------------------------------------------------------------


def test_every_printed_url_is_served(tmp_path: Path, process: Process) -> None:
    ended = trino_config(tmp_path, "--check", "--set", f"server.http={process.addresses['http']}")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert read(ended.stdout)["access-control.name"] == "opa"
    assert urls(ended.stdout) == of(process.url(""))
    sent = bodies()
    for url in urls(ended.stdout).values():
        endpoint = url.rpartition("/")[2]
        response = fetch(url, sent.pop(endpoint), headers={"Content-Type": "application/json; charset=utf-8"})
        answer = response.json()
        assert response.status == 200
        assert answer == {} if endpoint == "columnMask" else isinstance(answer["result"], bool | list)
    assert not sent


def test_a_starting_service_prints_the_same_lines(tmp_path: Path, process: Process) -> None:
    printed = (process.folder / "stdout").read_text().partition("Trino's access-control.properties")[2]
    lines = read(trino_config(tmp_path, "--url", process.url("")).stdout)
    assert {name: value for name, value in lines.items() if "http-client" not in name}.items() <= read(printed).items()


def test_the_probe_leaves_no_audit_record(tmp_path: Path) -> None:
    with serve_process(tmp_path) as process:
        assert trino_config(tmp_path, "--check", "--url", process.url("")).returncode == 0
        assert process.terminate() == 0
        assert [record for record in process.records() if record["event"] == "decision"] == []
        assert process.stderr().count("error") == 0


def test_the_configuration_is_found_as_for_the_service(tmp_path: Path, process: Process) -> None:
    configured(
        tmp_path, f"server: {{http: '{process.addresses['http']}'}}\ntrino: {{catalogs: {{a: {{warehouse: w}}}}}}"
    )
    (tmp_path / "other.yaml").write_text("server: {http: '127.0.0.1:1'}\ntrino: {catalogs: {b: {warehouse: w}}}")
    found = trino_config(tmp_path, "--check")
    named = trino_config(tmp_path, "-c", "other.yaml")
    changed = trino_config(tmp_path, env={"PDP__SERVER__HTTP": "localhost:2"})
    assert (found.returncode, found.stderr) == (0, "")
    assert urls(found.stdout) == of(process.url(""))
    assert "# catalog a is warehouse w\n" in found.stdout
    assert urls(named.stdout) == of("http://127.0.0.1:1")
    assert "# catalog b is warehouse w\n" in named.stdout
    assert urls(changed.stdout) == of("http://localhost:2")


# --- a service that does not --------------------------------------------------------------------------------------


def test_the_output_does_not_need_a_service(tmp_path: Path) -> None:
    base = f"http://127.0.0.1:{free_port()}"
    ended = trino_config(tmp_path, "--url", base)
    checked = trino_config(tmp_path, "--url", base, "--check")
    assert (ended.returncode, checked.returncode) == (0, 1)
    assert ended.stderr == f"pdp: warning: no answer from {base}/v1/data/trino/allow: Connection refused\n"
    assert (ended.stdout, ended.stderr) == (checked.stdout, checked.stderr)
    assert urls(ended.stdout) == of(base)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("listener", ["grpc", "diagnostics"])
def test_another_listener_is_reported(tmp_path: Path, process: Process, listener: str) -> None:
    ended = trino_config(tmp_path, "--check", "--url", process.url("", listener))
    assert ended.returncode == 1
    assert ended.stderr.startswith("pdp: warning: ")
    assert ended.stderr.count("\n") == 1


def test_another_server_is_reported(tmp_path: Path) -> None:
    class Stranger(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"result":true}')

        def log_message(self, format: str, *args: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        ended = trino_config(tmp_path, "--check", "--url", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()
    assert ended.returncode == 1
    assert warnings(ended)[0].endswith("/allow is not this service: status 200")


def test_a_refusal_is_reported_as_trino_would_get_it(tmp_path: Path, process: Process) -> None:
    ended = trino_config(tmp_path, "--check", "--url", f"{process.url('')}/prefix")
    assert (ended.returncode, len(warnings(ended))) == (1, 1)
    assert "refuses: no such endpoint" in ended.stderr


# --- TLS ----------------------------------------------------------------------------------------------------------

STORES = ("opa.http-client.key-store-path", "opa.http-client.key-store-password",
          "opa.http-client.trust-store-path", "opa.http-client.trust-store-password")  # fmt: skip


async def test_a_service_with_certificates(tmp_path: Path) -> None:
    cert, key = Authority(tmp_path).issue("pdp")
    other, _ = Authority(tmp_path, "other").issue("pdp")
    tls = {"cert": str(cert), "key": str(key), "client_ca": str(tmp_path / "ca.pem")}
    callers = {"trino": {"mtls": {"subjects": ["trino"]}, "may_assert": ["principals"]}}
    config = {"identity": {"callers": callers}, "trino": {"catalogs": {"a": {"warehouse": "w"}}}}
    async with serving(settings_of({**config, "server": {"tls": tls}}, tmp_path)) as service:
        address = service.addresses["http"]
        configured(tmp_path, json.dumps({**config, "server": {"http": address, "tls": tls}}))
        ended = await asyncio.to_thread(trino_config, tmp_path, "--check")
        configured(tmp_path, json.dumps({**config, "server": {"http": address, "tls": {**tls, "cert": str(other)}}}))
        unknown = await asyncio.to_thread(trino_config, tmp_path, "--check")
        unencrypted = await asyncio.to_thread(trino_config, tmp_path, "--check", "--url", f"http://{address}")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert urls(ended.stdout) == of(f"https://{address}")
    assert [name for name in STORES if f"\n#{name}=" in ended.stdout] == list(STORES)
    assert not set(STORES) & set(read(ended.stdout))
    assert unknown.returncode == 1
    assert "no answer from https://" in unknown.stderr
    assert "certificate" in unknown.stderr
    assert unencrypted.returncode == 1
    assert not any(name in unencrypted.stdout for name in STORES)


def test_the_key_store_is_printed_only_for_client_certificates(tmp_path: Path) -> None:
    cert, key = Authority(tmp_path).issue("pdp")
    tls = {"cert": str(cert), "key": str(key)}
    configured(tmp_path, json.dumps({"server": {"http": "127.0.0.1:1", "tls": tls}}))
    text = trino_config(tmp_path).stdout
    assert [name for name in STORES if name in text] == list(STORES[2:])
    configured(tmp_path, json.dumps({"server": {"tls": {**tls, "cert": str(tmp_path / "none.pem")}}}))
    ended = trino_config(tmp_path)
    assert (ended.returncode, ended.stderr) == (2, "pdp: `server.tls` cannot be used: No such file or directory\n")


# --- what Trino would stumble over --------------------------------------------------------------------------------


def test_every_property_is_one_that_the_plugin_knows(tmp_path: Path) -> None:
    lines = trino_config(tmp_path, "--url", "https://pdp:8181").stdout.splitlines()
    named = {line.lstrip("#").partition("=")[0] for line in lines if line.lstrip("#").startswith("opa.")}
    assert named <= KNOWN
    assert named >= set(ENDPOINTS)


def test_catalogs_are_named(tmp_path: Path) -> None:
    example = trino_config(tmp_path).stdout
    assert "# catalog lakehouse is warehouse lake@prod\n# catalog tpch is warehouse tpch\n" in example
    assert "# every other catalog is denied (trino.unmanaged_catalogs)" in example
    opened = trino_config(tmp_path, "--set", "trino.unmanaged_catalogs=allow").stdout
    assert "# every other catalog is open to everybody (trino.unmanaged_catalogs)" in opened


@pytest.mark.parametrize(("unmanaged", "said"), [("deny", "denied"), ("allow", "open to everybody")])
def test_no_catalogs_is_a_warning(tmp_path: Path, unmanaged: str, said: str) -> None:
    configured(tmp_path, f"trino: {{unmanaged_catalogs: {unmanaged}}}")
    ended = trino_config(tmp_path)
    assert ended.returncode == 0
    assert warnings(ended) == [f"`trino.catalogs` is empty: every catalog is {said}"]
    assert f"# no catalog is mapped to a warehouse, all are {said}" in ended.stdout


def test_no_name_breaks_out_of_its_comment(tmp_path: Path) -> None:
    name = "a\nopa.policy.uri=http://elsewhere\r\\\u2028\x1b[31m"
    configured(tmp_path, json.dumps({"trino": {"catalogs": {name: {"warehouse": name}}}}))
    text = trino_config(tmp_path).stdout
    assert urls(text) == of("http://127.0.0.1:8181")
    assert "\x1b" not in text


def test_a_service_that_lets_nobody_speak_for_users_is_a_warning(tmp_path: Path) -> None:
    configured(tmp_path, "trino: {catalogs: {a: {warehouse: w}}}")
    for rule, warned in (
        ("{loopback: true, may_assert: [principals]}", False),
        ("{loopback: true, may_assert: [groups]}", True),
        ("{unix_socket: true, may_assert: [principals]}", True),
        ("{bearer: {idp: oidc, subjects: [x]}, may_assert: [principals]}", True),
    ):
        ended = trino_config(
            tmp_path, "--set", f"identity.callers.x={rule}",
            "--set", "identity.providers.oidc={issuer: 'https://i', jwks: keys.json}",
        )  # fmt: skip
        assert ended.returncode == 0
        assert ["Trino shows no token" in warning for warning in warnings(ended)] == [True] * warned, rule


def test_an_address_of_version_6_is_written_as_urls_write_it(tmp_path: Path) -> None:
    for address in ("[::1]:1", "::1:1"):
        assert urls(trino_config(tmp_path, "--set", f"server.http='{address}'").stdout) == of("http://[::1]:1")


def test_a_wildcard_address_is_no_url(tmp_path: Path) -> None:
    cert, key = Authority(tmp_path).issue("pdp")
    callers = {"x": {"mtls": {"subjects": ["x"]}, "may_assert": ["principals"]}}
    server = {"http": "0.0.0.0:1", "tls": {"cert": str(cert), "key": str(key), "client_ca": str(cert)}}
    trino = {"catalogs": {"a": {"warehouse": "w"}}}
    configured(tmp_path, json.dumps({"server": server, "identity": {"callers": callers}, "trino": trino}))
    ended, told = trino_config(tmp_path), trino_config(tmp_path, "--url", "http://pdp.invalid:1")
    assert urls(ended.stdout) == of("https://127.0.0.1:1")
    assert "`server.http` is every address of this machine" in ended.stderr
    assert urls(told.stdout) == of("http://pdp.invalid:1")
    assert "every address" not in told.stderr


def test_trino_closes_idle_connections_first(tmp_path: Path) -> None:
    usual = trino_config(tmp_path)
    assert read(usual.stdout)["opa.http-client.idle-timeout"] == "15s"
    assert "idle" not in usual.stderr
    ended = trino_config(tmp_path, "--set", "limits.request_timeout_seconds=60.5")
    assert read(ended.stdout)["opa.http-client.idle-timeout"] == "65.5s"
    assert "`limits.idle_timeout_seconds` should be more than the 65.5 s" in ended.stderr


# --- what cannot be meant -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://pdp.invalid", "http://pdp.invalid"),
        ("https://pdp.invalid:8443/", "https://pdp.invalid:8443"),
        ("http://[::1]:1", "http://[::1]:1"),
        ("https://pdp.invalid/pdp/", "https://pdp.invalid/pdp"),
    ],
)
def test_urls_are_taken_as_they_are(tmp_path: Path, url: str, base: str) -> None:
    ended = trino_config(tmp_path, "--url", url)
    assert ended.returncode == 0
    assert urls(ended.stdout) == of(base)


@pytest.mark.parametrize(
    "url",
    ["", "pdp:8181", "ftp://pdp", "http:/pdp", "http://", "http://[pdp", "http://pdp:0", "http://pdp:99999",
     "http://pdp:x", "http://a b", "http://pdp?x", "http://pdp#x", "http://u:p@pdp", "http://pdp\\", "http://pdp\nx=y",
     "http://p\u00fcp", "http://pdp\x1b]0;owned\x07"],
)  # fmt: skip
def test_an_invalid_url_exits_with_2(tmp_path: Path, url: str) -> None:
    ended = trino_config(tmp_path, "--url", url)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("pdp: --url `")
    assert ended.stderr.count("\n") == 1
    assert "\x1b" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["-c", "none.yaml"], "none.yaml"),
        (["--set", "trino.catalog={}"], "trino.catalog"),
        (["--set", "server.http=127.0.0.1:0"], "--url"),
        (["--set", "server.http=nowhere"], "nowhere"),
        (["extra"], "extra"),
    ],
)
def test_unusable_settings_exit_with_2(tmp_path: Path, arguments: list[str], named: str) -> None:
    ended = trino_config(tmp_path, *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("pdp: ")
    assert named in ended.stderr
    assert ended.stderr.count("\n") == 1
