"""Live certificates: handshakes in memory, before and after a change, with and without a name."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from support.servers.idp import Authority

from pdp.errors import ConfigError
from pdp.identity.tls import Certificates, LiveCertificates, make_context, read_end


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def issued(authority: Authority, name: str, client_ca: Authority | None = None) -> Certificates:
    cert, key = authority.issue(name)
    return Certificates(cert.read_bytes(), key.read_bytes(), client_ca.path.read_bytes() if client_ca else None)


def client(authority: Authority, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.path))
    if certificate:
        context.load_cert_chain(*certificate)
    return context


def handshake(
    server: ssl.SSLContext, context: ssl.SSLContext, name: str = "localhost", session: ssl.SSLSession | None = None
) -> ssl.SSLObject:
    """Shake hands in memory, and let one byte through; return the client's end. Raise SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = context.wrap_bio(to_client, to_server, server_hostname=name, session=session)
    there = server.wrap_bio(to_server, to_client, server_side=True)
    done = set[ssl.SSLObject]()
    while len(done) < 2:
        for end in (here, there):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                continue
    there.write(b"x")
    assert here.read(1) == b"x"
    return here


def serial(end: ssl.SSLObject) -> int:
    der = end.getpeercert(binary_form=True)
    assert der
    return x509.load_der_x509_certificate(der).serial_number


def serial_of(certificates: Certificates) -> int:
    return x509.load_pem_x509_certificate(certificates.cert).serial_number


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_handshakes_follow_the_newest_certificates(authority: Authority, name: str, version: ssl.TLSVersion) -> None:
    """A name is sent, or, for an address, none is."""
    context = client(authority)
    context.minimum_version = context.maximum_version = version
    first = issued(authority, "first")
    live = LiveCertificates(first)
    old = handshake(live.listening, context, name)
    assert serial(old) == serial_of(first)
    for number in range(3):
        newest = issued(authority, f"next{number}")
        live.use(newest, make_context(newest))
        assert live.current is newest
        assert serial(handshake(live.listening, context, name)) == serial_of(newest)
        assert serial(handshake(live.listening, context, name, old.session)) in (serial_of(first), serial_of(newest))


def test_the_protocol_of_http_is_still_agreed_on(authority: Authority) -> None:
    live = LiveCertificates(issued(authority, "first"))
    newest = issued(authority, "next")
    live.use(newest, make_context(newest))
    context = client(authority)
    context.set_alpn_protocols(["h2", "http/1.1"])
    assert handshake(live.listening, context).selected_alpn_protocol() == "http/1.1"


def test_authorities_of_clients_are_replaced(authority: Authority, tmp_path: Path) -> None:
    """No client of the old authority gets in, not even with a session of before."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    clients = {one: client(authority, one.issue("client")) for one in (old, new)}
    live = LiveCertificates(issued(authority, "first", old))
    session = handshake(live.listening, clients[old])
    with pytest.raises(ssl.SSLError):
        handshake(live.listening, clients[new])
    newest = issued(authority, "next", new)
    live.use(newest, make_context(newest))
    handshake(live.listening, clients[new])
    handshake(live.listening, client(authority))  # a certificate is optional
    for before in (None, session.session):
        with pytest.raises(ssl.SSLError):
            handshake(live.listening, clients[old], session=before)


def test_torn_certificates_are_refused_and_change_nothing(authority: Authority) -> None:
    good, other = issued(authority, "first"), issued(authority, "other")
    live = LiveCertificates(good)
    torn = [
        Certificates(other.cert, good.key, None),
        Certificates(good.cert, b"", None),
        Certificates(b"", good.key, None),
        Certificates(good.cert[:-40], good.key, None),
        Certificates(good.cert, good.key[:-40], None),
        Certificates(good.cert, good.key, b""),
        Certificates(good.cert, good.key, good.cert[:100]),
        Certificates(good.cert, good.key, b"\xff\x00"),
    ]
    for certificates in torn:
        with pytest.raises(ConfigError, match=r"server\.tls"):
            make_context(certificates)
    assert serial(handshake(live.listening, client(authority))) == serial_of(good)


def test_the_end_of_validity_is_read(authority: Authority) -> None:
    good = issued(authority, "first")
    assert read_end(good.cert) == x509.load_pem_x509_certificate(good.cert).not_valid_after_utc.timestamp()
    assert read_end(b"nonsense") == 0
