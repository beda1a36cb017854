"""Bundles of policies for tests: real keys, and a real server of bundles on loopback."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


def private_key(name: str = "one", kind: str = "ed25519") -> Any:
    return _private_key(name, kind)


@cache
def _private_key(name: str, kind: str) -> Any:
    return ed25519.Ed25519PrivateKey.generate() if kind == "ed25519" else ec.generate_private_key(ec.SECP256R1())


def write_keys(folder: Path, name: str = "one", kind: str = "ed25519") -> tuple[Path, Path]:
    """Write a private and a public key; return their files."""
    key = private_key(name, kind)
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


Answer: TypeAlias = tuple[int, dict[str, str], bytes]


class BundleServer:
    """Server with one body at each path. `answers` takes the place of a body: status, headers, body."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.bodies: dict[str, bytes] = {}
        self.answers: dict[str, Answer] = {}
        self.guard: Callable[[str, dict[str, str]], Answer | None] = lambda path, headers: None
        """Answer in place of all others, by path and headers in lower case."""
        self.tags = True
        self.requests: list[tuple[str, dict[str, str], int]] = []
        """Path, headers in lower case, and status of each request."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = {name.lower(): value for name, value in self.headers.items()}
                answer = outer.guard(self.path, asked) or outer.answer(self.path, asked.get("if-none-match"))
                status, headers, body = answer
                outer.requests.append((self.path, asked, status))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def url(self, path: str = "/bundle.tar.gz") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def answer(self, path: str, known: str | None) -> Answer:
        if path in self.answers:
            return self.answers[path]
        if path not in self.bodies:
            return 404, {}, b""
        body = self.bodies[path]
        tag = f'"{sha256(body).hexdigest()}"'
        if not self.tags:
            return 200, {}, body
        return (304, {"ETag": tag}, b"") if known == tag else (200, {"ETag": tag}, body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def bundle_server(tls: ssl.SSLContext | None = None) -> Iterator[BundleServer]:
    server = BundleServer(tls)
    try:
        yield server
    finally:
        server.close()
