"""What a request shows of who sent it, as HTTP and gRPC carry it; judges only whether a browser may have sent it.

Headers that other services take an identity from (`X-User`, `X-Forwarded-User`, ...) are never read.
"""

from __future__ import annotations

import os
import socket
import struct
from functools import lru_cache
from typing import Any, Final

from aiohttp import web
from yarl import URL

from pdp import errors
from pdp.config.section import is_loopback
from pdp.identity.callers import Peer
from pdp.identity.tls import names_of_certificate

_PASSED_ON: Final = frozenset({"origin", "forwarded"})
_PASSED_ON_PREFIX: Final = "x-forwarded-"
_PASSED_ON_TEXT: Final = "requests of browsers and proxies are not taken from loopback"
_CREDENTIALS: Final = struct.Struct("3i")
"""What SO_PEERCRED tells: process, user, group."""


def http_peer(request: web.BaseRequest) -> Peer:
    """The peer of an HTTP request."""
    transport = request.transport
    connection = transport.get_extra_info("socket") if transport else None
    by_socket = connection is not None and connection.family == socket.AF_UNIX
    tls = transport.get_extra_info("ssl_object") if transport else None
    certificate = tls.getpeercert(binary_form=True) if tls else None
    return Peer(
        request.remote or "",
        _uid(connection) if by_socket else None,
        names_of_certificate(certificate) if certificate else None,
        tuple(request.headers.getall("Authorization", ())),
        _suspicion(request, by_socket),
    )


def grpc_peer(context: Any) -> Peer:
    """The peer of a gRPC call."""
    certificate = next(iter(context.auth_context().get("x509_pem_cert", ())), None)
    metadata = context.invocation_metadata() or ()
    passed_on = any(_is_passed_on(key) for key, _ in metadata)
    return Peer(
        grpc_host(context.peer()),
        certificate=names_of_certificate(bytes(certificate)) if certificate else None,
        authorization=tuple(str(value) for key, value in metadata if key == "authorization"),
        suspicion=errors.Forbidden(_PASSED_ON_TEXT) if passed_on else None,
    )


def grpc_host(peer: str) -> str:
    """The host of gRPC's peer string, such as `ipv4:127.0.0.1:4711` or `ipv6:%5B::1%5D:4711`."""
    family, _, rest = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return peer
    return rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")


def _uid(connection: Any) -> int:
    with socket.socket(fileno=os.dup(connection.fileno())) as copy:  # the loop's own object lends no options
        credentials = copy.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(credentials)[1]
    return uid


def _suspicion(request: web.BaseRequest, by_socket: bool) -> errors.PdpError | None:
    """Why a request may not pass for one of a program of this machine.

    A page in a browser of this machine, or a proxy on it, must not: neither says anything of who sent it.
    """
    headers = request.headers
    if any(map(_is_passed_on, headers)):
        return errors.Forbidden(_PASSED_ON_TEXT)
    if not by_socket and not _is_this_machine(request.host):
        return errors.Forbidden("the Host header names no loopback address")
    if request.method != "GET" and request.content_type != "application/json":
        return errors.UnsupportedMedia("the content type must be application/json")
    return None


def _is_passed_on(name: str) -> bool:
    """Whether only browsers and proxies send a header or metadata of this name."""
    name = name.lower()
    return name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIX)


@lru_cache(maxsize=64)
def _is_this_machine(authority: str) -> bool:
    """Whether a Host header names a loopback address; clients repeat theirs with every request."""
    try:
        return is_loopback(URL.build(scheme="http", authority=authority).host or "")
    except ValueError:
        return False
