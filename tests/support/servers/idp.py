"""Identity for tests: real keys, a real provider of them on loopback, real certificates."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import ipaddress
import json
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtensionOID, NameOID

ISSUER = "https://idp.example/realms/lake"


@cache
def rsa_key(name: str = "one", bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key(name: str = "one") -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def jwk(kid: str | None = "one", key: Any = None, **more: Any) -> dict[str, Any]:
    """The public half of a key."""
    key = key or rsa_key()
    kind: Any = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    made: dict[str, Any] = kind.to_jwk(key.public_key(), as_dict=True) | {"use": "sig"} | more
    made.pop("key_ops", None)
    return made | ({"kid": kid} if kid is not None else {})


def claims(**more: Any) -> dict[str, Any]:
    """What a good token of `alice` says; None leaves a claim out."""
    now = int(time.time())
    said = {"iss": ISSUER, "sub": "alice", "aud": "pdp", "iat": now, "nbf": now, "exp": now + 300, **more}
    return {key: value for key, value in said.items() if value is not None}


def token(key: Any = None, algorithm: Any = "RS256", headers: Any = None, **more: Any) -> str:
    return jwt.encode(claims(**more), key or rsa_key(), algorithm, {"kid": "one", **(headers or {})})


def b64(text: bytes | str) -> str:
    return base64.urlsafe_b64encode(text.encode() if isinstance(text, str) else text).rstrip(b"=").decode()


def raw_token(header: str, said: str, key: Any = None) -> str:
    """A token of exactly these texts, signed with RS256."""
    signing = f"{b64(header)}.{b64(said)}"
    signature = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(signing.encode(), key or rsa_key())
    return f"{signing}.{b64(signature)}"


def public_pem(key: rsa.RSAPrivateKey) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


class Provider:
    """A server of keys; counts what it is asked, and misbehaves as it is told."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [jwk()]
        self.asked = 0
        self.body: bytes | None = None
        self.status = 200
        self.headers: dict[str, str] = {}
        self.delay = 0.0
        self.paths: list[str] = []
        self.url = self.base = ""
        self.documents: dict[str, Any] = {}
        """Path -> the document there, or a function that makes the response."""
        self.authorizations: list[str | None] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        self.paths.append(request.path)
        self.authorizations.append(request.headers.get("Authorization"))
        await asyncio.sleep(self.delay)
        body = self.body if self.body is not None else json.dumps({"keys": self.keys}).encode()
        return web.Response(status=self.status, body=body, headers=self.headers, content_type="application/json")

    async def document(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        self.authorizations.append(request.headers.get("Authorization"))
        found = self.documents.get(request.path)
        if callable(found):
            return found()  # type: ignore[no-any-return]
        return web.Response(status=404) if found is None else web.json_response(found)

    async def elsewhere(self, request: web.Request) -> web.Response:
        """Where a redirect would lead: keys that nobody configured."""
        self.paths.append(request.path)
        return web.json_response({"keys": [jwk("evil", rsa_key("evil"))]})


@asynccontextmanager
async def provider(tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> AsyncIterator[Provider]:
    made = Provider()
    app = web.Application()
    app.router.add_get("/keys", made.answer)
    app.router.add_get("/elsewhere", made.elsewhere)
    app.router.add_get("/{path:.*}", made.document)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    made.base = f"http{'s' * bool(tls)}://{host}:{runner.addresses[0][1]}"
    made.url = f"{made.base}/keys"
    try:
        yield made
    finally:
        await runner.cleanup()


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self._key = ec_key(f"ca {name}")
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(self._signed(self._name, self._key, (), ca=True))

    def issue(
        self, name: str, *others: x509.GeneralName, organization: str = "", odd: bytes = b""
    ) -> tuple[Path, Path]:
        """A certificate and its key, for this machine's addresses too; or with alternative names as these bytes."""
        parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if organization:
            parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        key = ec.generate_private_key(ec.SECP256R1())
        here = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        stem = "".join(sign if sign.isalnum() else "_" for sign in f"{self.path.stem}-{name}")
        cert_path, key_path = self.folder / f"{stem}.crt", self.folder / f"{stem}.key"
        cert_path.write_bytes(self._signed(x509.Name(parts), key, odd or [*here, *others]))
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return cert_path, key_path

    def _signed(self, name: x509.Name, key: Any, others: Sequence[x509.GeneralName] | bytes, ca: bool = False) -> bytes:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if isinstance(others, bytes):
            odd = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, others)
            builder = builder.add_extension(odd, critical=False)
        elif others:
            builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def server_tls(authority: Authority, *names: str) -> ssl.SSLContext:
    """The TLS of a server with these names, signed by an authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server", *(x509.DNSName(name) for name in names)))
    return context
