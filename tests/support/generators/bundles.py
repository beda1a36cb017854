"""Bundles of policies for tests: real keys, a real server and registry of bundles on loopback, real repositories."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
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

from pdp.app.sources.http import LAYER
from pdp.config.bundles.archive import build

PATH = "/bundle.tar.gz"
ROOT = "/v2/team/policies"
TAG = f"{ROOT}/manifests/prod"


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


def bundle_of(user: str, number: int, key: str | None = "one", more: bytes = b"") -> bytes:
    """A bundle that permits one user, with a second file of rules."""
    files = {"rules/b.yaml": more} if more else {}
    rules = json.dumps({"rules": {"a": f"role=='{user}'"}}).encode()
    return build({"rules/a.yaml": rules, **files}, number, f"r{number}", private_key(key) if key else None)


def digest_of(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def layer_of(content: bytes, media: str = LAYER) -> dict[str, Any]:
    return {"mediaType": media, "digest": digest_of(content), "size": len(content)}


def push(server: BundleServer, content: bytes, *more: dict[str, Any], media: str = LAYER) -> str:
    """Put an artefact under the tag `prod`; return its digest."""
    kind = "application/vnd.oci.image.manifest.v1+json"
    layers = [layer_of(content, media), *more]
    manifest = json.dumps({"schemaVersion": 2, "mediaType": kind, "layers": layers}).encode()
    server.bodies[f"{ROOT}/blobs/{digest_of(content)}"] = content
    server.bodies[TAG] = server.bodies[f"{ROOT}/manifests/{digest_of(manifest)}"] = manifest
    return digest_of(manifest)


def git(folder: Path, *arguments: str) -> str:
    names = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**os.environ, **names, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *arguments], cwd=folder, env=env, check=True, capture_output=True, text=True).stdout


def write_policies(folder: Path, user: str) -> None:
    (folder / "policies").mkdir(parents=True, exist_ok=True)
    (folder / "policies" / "a.yaml").write_text(f"rules: {{a: role=='{user}'}}")


def commit(folder: Path) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")
    return git(folder, "rev-parse", "HEAD").strip()
