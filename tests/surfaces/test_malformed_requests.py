"""Requests that are no HTTP: the answers have the product's form, and a record."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clients.http_client import assert_discreet
from support.oracles.audit_files import all_records
from support.service.serving import Process, serve_process

pytestmark = pytest.mark.process
LINE = b"POST %b HTTP/1.1\r\n"
HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SECRET = b"zzsecretzz"
MALFORMED = {
    "a bad chunk": (HOST + JSON + CHUNKED, SECRET + b"\r\n"),
    "a bad chunk after a good one": (HOST + JSON + CHUNKED, b"2\r\n{}\r\n" + SECRET + b"\r\n"),
    "a chunk without end": (HOST + JSON + CHUNKED, b"2\r\n{}" + SECRET + b"\r\n"),
    "two lengths": (HOST + JSON + b"Content-Length: 2\r\nContent-Length: 3\r\n", b"{}"),
    "a negative length": (HOST + JSON + b"Content-Length: -2\r\n", b"{}"),
    "a length that is no number": (HOST + JSON + b"Content-Length: " + SECRET + b"\r\n", b"{}"),
    "a length and chunks": (HOST + JSON + CHUNKED + b"Content-Length: 2\r\n", b"{}"),
    "no host": (JSON + b"Content-Length: 2\r\n", b"{}"),
    "two hosts": (HOST + HOST + JSON + b"Content-Length: 2\r\n", b"{}"),
    "a header without name": (HOST + JSON + b": " + SECRET + b"\r\nContent-Length: 2\r\n", b"{}"),
    "a NUL": (HOST + JSON + b"X: " + SECRET + b"\0\r\nContent-Length: 2\r\n", b"{}"),
}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serve_process(tmp_path_factory.mktemp("malformed")) as process:
        yield process


def answer_of(process: Process, *packets: bytes, listener: str = "http") -> tuple[int, dict[str, str], bytes]:
    """Send packets; return the status, headers by name in lower case, and body of the first answer."""
    host, _, port = process.addresses[listener].partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        for number, packet in enumerate(packets):
            if number:
                time.sleep(0.05)  # so that the service reads the packets one by one
            connection.sendall(packet)
        with connection.makefile("rb") as stream:
            status = int(stream.readline().split()[1])
            headers = {}
            while (line := stream.readline().strip()) != b"":
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            return status, headers, stream.read(int(headers["content-length"]))


@pytest.mark.parametrize("path", [b"/v1/check", b"/v1/list", b"/pdp.v1.DecisionService/Check"])
@pytest.mark.parametrize("divided", [False, True], ids=["one packet", "two packets"])
@pytest.mark.parametrize("shape", MALFORMED)
def test_a_malformed_request_gets_the_form_of_all_errors(
    process: Process, shape: str, divided: bool, path: bytes
) -> None:
    headers, body = MALFORMED[shape]
    head = LINE % path + headers + b"\r\n"
    status, sent, content = answer_of(process, *((head, body) if divided else (head + body,)))
    answer = json.loads(content)
    assert (status, sent["content-type"].partition(";")[0]) == (400, "application/json")
    error = answer.get("error", answer)
    assert error["code"] == "invalid_argument"
    assert "valid HTTP" in error["message"]
    assert sent["x-request-id"]
    assert_discreet(content.decode())
    assert "aiohttp" not in str(sent).lower() + content.decode().lower()
    assert SECRET not in content


def test_the_diagnostics_answer_in_the_same_form(process: Process) -> None:
    status, sent, content = answer_of(process, b"GET /" + SECRET + b" HTTP/9.x\r\n\r\n", listener="diagnostics")
    assert (status, json.loads(content)["error"]["code"]) == (400, "invalid_argument")
    assert sent["x-request-id"]
    assert SECRET not in content


@pytest.mark.parametrize(("listener", "path"), [("http", b"/nothing"), ("diagnostics", b"/health/live")])
def test_no_answer_tells_the_version_of_a_library(process: Process, listener: str, path: bytes) -> None:
    _, sent, _ = answer_of(process, b"GET %b HTTP/1.1\r\n" % path + HOST + b"\r\n", listener=listener)
    assert "aiohttp" not in str(sent)
    assert "Python" not in str(sent)


def test_malformed_requests_are_recorded_with_their_sender(tmp_path: Path) -> None:
    headers, body = MALFORMED["a bad chunk"]
    head = LINE % b"/v1/list" + headers + b"\r\n"
    with serve_process(tmp_path) as process:
        answer_of(process, head + body)
        _, sent, _ = answer_of(process, head.replace(b"Host", b"X-Request-ID: mine\r\nHost"), body)
        assert sent["x-request-id"] == "mine"
        assert process.terminate() == 0
        assert "Traceback" not in process.stderr()
    stranger, known = [record for record in all_records(tmp_path) if record.get("message")][-2:]
    assert {record["message"] for record in (stranger, known)} == {"the request is not valid HTTP"}
    assert stranger["peer"] == "127.0.0.1"
    assert (known["endpoint"], known["requestId"]) == ("/v1/list", "mine")
    assert known["caller"]
    assert SECRET.decode() not in json.dumps([stranger, known])
