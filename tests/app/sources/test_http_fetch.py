"""Requests to servers of bundles: certificates, slow and cut answers, ways without TLS."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.generators.bundles import BundleServer, bundle_server
from support.servers.idp import Authority
from support.service.serving import settings_of

from pdp.app.sources.client import SourceUnreachable
from pdp.app.sources.http import HttpFetcher
from pdp.config.bundles.manifest import BundleRefused
from pdp.errors import ConfigError

URL = "https://127.0.0.1:1/b"


def fetcher(folder: Path, url: str = URL, **more: Any) -> HttpFetcher:
    settings = settings_of({"policies": {"source": {"http": url, "keys": ["one.pub"], **more}}}, folder)
    assert settings.policies.source
    return HttpFetcher(settings, settings.policies.source)


@contextmanager
def tls_server(cert: Path, key: Path) -> Iterator[BundleServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with bundle_server(context) as server:
        server.bodies["/b"] = b"content"
        yield server


def test_only_certificates_of_the_configured_authorities_count(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    with tls_server(*authority.issue("localhost")) as server:
        url = f"https://localhost:{server.port}/b"
        assert fetcher(tmp_path, ca=str(authority.path)).get(url, {}, 100).body == b"content"
        for options in ({}, {"ca": str(other.path)}):
            with pytest.raises(SourceUnreachable, match="certificate is not valid"):
                fetcher(tmp_path, **options).get(url, {}, 100)
        with pytest.raises(SourceUnreachable, match="certificate is not valid"):  # another name of this machine
            fetcher(tmp_path, ca=str(authority.path)).get(f"https://127.1:{server.port}/b", {}, 100)
        server.answers["/down"] = (302, {"Location": f"http://localhost:{server.port}/b"}, b"")
        with pytest.raises(BundleRefused, match="another host"):
            fetcher(tmp_path, ca=str(authority.path)).get(f"https://localhost:{server.port}/down", {}, 100)
        for place in ("ftp://localhost/b", "file:///etc/passwd", "//127.0.0.2/b", "http://[/b", ""):
            server.answers["/other"] = (302, {"Location": place}, b"")
            with pytest.raises(BundleRefused):
                fetcher(tmp_path, ca=str(authority.path)).get(f"https://localhost:{server.port}/other", {}, 100)
    with pytest.raises(ConfigError, match=r"policies\.source\.ca"):
        fetcher(tmp_path, ca="missing.pem").get(URL, {}, 100)


def raw_server(answer: Callable[[socket.socket], None]) -> tuple[str, threading.Thread]:
    """A server that answers one connection by hand; its URL and its thread."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening, listening.accept()[0] as connection:
            connection.recv(65536)
            answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}/b", thread


def test_endless_cut_and_silent_answers_end(tmp_path: Path) -> None:
    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                connection.sendall(b"x" * 65536)
        except OSError:
            return

    def dripping(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        try:
            while True:
                connection.sendall(b"x")
                time.sleep(0.05)
        except OSError:
            return

    def dripping_head(beginning: bytes, part: bytes) -> Callable[[socket.socket], None]:
        def answer(connection: socket.socket) -> None:
            try:
                connection.sendall(beginning)
                while True:
                    connection.sendall(part)
                    time.sleep(0.05)
            except OSError:
                return

        return answer

    def cut(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")

    def no_http(connection: socket.socket) -> None:
        connection.sendall(b"hello\r\n" * 1000)

    cases: list[tuple[Callable[[socket.socket], None], type[Exception]]] = [
        (endless, BundleRefused),
        (dripping, SourceUnreachable),
        (dripping_head(b"", b"H"), SourceUnreachable),
        (dripping_head(b"HTTP/1.1 200 OK\r\nX-A: ", b"a"), SourceUnreachable),
        (dripping_head(b"HTTP/1.1 200 OK\r\n", b"X-A: a\r\n"), SourceUnreachable),
        (dripping_head(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), SourceUnreachable),
        (cut, SourceUnreachable),
        (no_http, SourceUnreachable),
        (lambda connection: None, SourceUnreachable),
    ]
    for answer, error in cases:
        url, thread = raw_server(answer)
        with pytest.raises(error):
            fetcher(tmp_path, url, timeout_seconds=1).get(url, {}, 1 << 20)
        thread.join(20)
        assert not thread.is_alive()
