"""Certificates that change while clients connect, over HTTP and gRPC, with two workers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import pytest
from cryptography import x509
from support.clients.http_client import fetch
from support.oracles.converging import PATIENCE, until
from support.servers.idp import Authority
from support.service.serving import Process, serve_process

pytestmark = pytest.mark.process

ROTATIONS: Final = 100


class CertificateMount:
    """Folder of a certificate and a key. Good pairs come by one swap of a link, torn ones are written in place."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.authority = Authority(folder.parent)
        self._count = 0
        for name in ("tls.crt", "tls.key"):
            (folder / name).symlink_to(f"..data/{name}")
        self.serial = self.rotate()

    def rotate(self) -> int:
        """Mount a new pair; return its serial number."""
        self._count += 1
        target = self.folder / f"..{self._count}"
        target.mkdir()
        pair = self.authority.issue(f"c{self._count}")
        for file, name in zip(pair, ("tls.crt", "tls.key"), strict=True):
            shutil.copy(file, target / name)
        (self.folder / "..new").symlink_to(target.name)
        (self.folder / "..new").rename(self.folder / "..data")
        self.serial = x509.load_pem_x509_certificate(pair[0].read_bytes()).serial_number
        return self.serial

    def tear(self, kind: str) -> None:
        """Damage the mounted pair: the certificate of another key, half a key, or no key."""
        key = self.folder / "tls.key"
        if kind == "mismatch":
            shutil.copy(self.authority.issue("other")[0], self.folder / "tls.crt")
        elif kind == "half":
            key.write_bytes(key.read_bytes()[:100])
        else:
            key.write_bytes(b"")


@contextmanager
def serving(folder: Path, mount: CertificateMount) -> Iterator[Process]:
    (folder / "a.yaml").write_text('{"rules": {"a": "true"}}')
    tls = {"cert": "mount/tls.crt", "key": "mount/tls.key"}
    config = {
        "policies": {"rules": ["a.yaml"], "refresh_seconds": 0.1},
        "store": {"url": "sqlite:///pdp.db"},
        "server": {"tls": tls},
    }
    (folder / "pdp.yaml").write_text(json.dumps(config))
    with serve_process(folder, "--workers", "2") as process:
        yield process
        assert process.terminate() == 0
        assert "Traceback" not in process.stderr()


def presented(process: Process, mount: CertificateMount, listener: str) -> int:
    """Serial number of the certificate that a new connection gets; raise OSError if the handshake fails."""
    context = ssl.create_default_context(cafile=str(mount.authority.path))
    context.set_alpn_protocols(["h2"] if listener == "grpc" else ["http/1.1"])
    host, _, port = process.addresses[listener].rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        if listener == "http":
            connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        else:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        assert connection.recv(1)
        der = connection.getpeercert(binary_form=True)
        assert der
        return x509.load_der_x509_certificate(der).serial_number


def all_present(process: Process, mount: CertificateMount) -> bool:
    found = {presented(process, mount, listener) for listener in ("http", "grpc") for _ in range(4)}
    return found == {mount.serial}


def readiness(process: Process) -> tuple[str, str]:
    body = fetch(process.url("/health/ready", "diagnostics")).json()
    return body["status"], "".join(body.get("reasons", ()))


@pytest.mark.waits
def test_new_certificates_are_presented_and_torn_ones_are_not(tmp_path: Path) -> None:
    mount = CertificateMount(tmp_path / "mount")
    with serving(tmp_path, mount) as process:
        assert all_present(process, mount)
        first = mount.serial
        mount.rotate()
        until(lambda: all_present(process, mount))
        assert mount.serial != first
        text = fetch(process.url("/metrics", "diagnostics")).text
        assert float(re.findall(r"^pdp_tls_not_after_seconds (\S+)", text, re.MULTILINE)[0]) > time.time()
        for kind in ("mismatch", "half", "none"):
            mount.tear(kind)
            until(lambda: readiness(process)[0] == "degraded")
            assert "server.tls.cert" in readiness(process)[1]
            assert all_present(process, mount)
        pid = process.process.pid
        for worker in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if "app.worker" in Path(f"/proc/{worker}/cmdline").read_text():
                os.kill(int(worker), signal.SIGKILL)
        until(lambda: readiness(process)[0] == "not ready")
        until(lambda: readiness(process)[0] == "degraded")  # the workers are back, on the certificates of before
        assert all_present(process, mount)
        mount.rotate()
        until(lambda: all_present(process, mount) and readiness(process)[0] == "ready")


class Connector(threading.Thread):
    """Connects again and again until `done`. Notes failures."""

    def __init__(self, process: Process, mount: CertificateMount, done: threading.Event, listener: str) -> None:
        super().__init__()
        self.count = 0
        self.failures: list[str] = []
        self.serials: set[int] = set()
        self._process, self._mount, self._listener = process, mount, listener
        self._done = done

    def run(self) -> None:
        while not self._done.is_set():
            try:
                self.serials.add(presented(self._process, self._mount, self._listener))
            except (OSError, AssertionError) as error:
                self.failures.append(repr(error))
            self.count += 1


@pytest.mark.long
@pytest.mark.timeout(300)
def test_no_handshake_fails_over_a_hundred_rotations(tmp_path: Path) -> None:
    """A third of the rotations is torn."""
    random, mount, done = Random(7), CertificateMount(tmp_path / "mount"), threading.Event()
    good = {mount.serial}
    with serving(tmp_path, mount) as process:
        connectors = [Connector(process, mount, done, listener) for listener in ("http", "http", "grpc")]
        for connector in connectors:
            connector.start()
        for number in range(ROTATIONS):
            if number % 3 == 2:
                mount.tear(random.choice(["mismatch", "half", "none"]))
            else:
                good.add(mount.rotate())
            done.wait(random.choice([0.05, 0.2, 0.4]))
        mount.rotate()
        good.add(mount.serial)
        until(lambda: all_present(process, mount))
        done.set()
        for connector in connectors:
            connector.join(PATIENCE)
    assert [failure for connector in connectors for failure in connector.failures] == []
    for connector in connectors:
        assert connector.serials <= good
        assert len(connector.serials) > 10
