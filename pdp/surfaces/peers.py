"""Evidence of a request's sender, as HTTP and gRPC carry it.

Decides only whether a browser or proxy may have sent the request. Headers from which other services take an identity
(`X-User`, `X-Forwarded-User`, ...) are never read.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Container, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from yarl import URL

from pdp import errors
from pdp.config.section import is_loopback
from pdp.identity.callers import IDENTITY_HEADERS, Peer
from pdp.identity.tls import names_of_certificate
from pdp.surfaces.refusals import NO_IDS, REQUEST_ID, TRACE_PARENT, SentIds, read_ids

if TYPE_CHECKING:
    from aiohttp import web

_REQUEST_ID: Final = REQUEST_ID.lower()
JSON_TYPES: Final = ("application/json",)
_FORWARDED: Final = frozenset(
    {
        # browsers
        "origin", "referer", "sec-gpc", "upgrade-insecure-requests",
        # proxies, gateways and service meshes
        "cdn-loop", "client-ip", "fastly-client-ip", "fly-client-ip", "forwarded", "forwarded-for", "max-forwards",
        "proxy-authorization", "proxy-connection", "true-client-ip", "via", "x-appengine-user-ip", "x-azure-clientip",
        "x-azure-socketip", "x-client-ip", "x-cluster-client-ip", "x-envoy-external-address", "x-envoy-internal",
        "x-envoy-original-path", "x-envoy-peer-metadata", "x-host", "x-original-forwarded-for", "x-original-host",
        "x-original-method", "x-original-uri", "x-original-url", "x-proxyuser-ip", "x-real-ip", "x-remote-addr",
        "x-remote-ip", "x-rewrite-url", "x-scheme",
    }
)  # fmt: skip
_FORWARDED_PREFIXES: Final = (
    "x-forwarded", "sec-fetch-", "sec-ch-", "cf-", "x-amz-cf-", "x-amzn-mtls-", "x-amzn-oidc-", "x-arr-", "x-proxy-",
)  # fmt: skip
"""Headers of forwarding proxies, of browsers, and of the proxies of Cloudflare, Amazon and Microsoft."""
_FORWARDED_TEXT: Final = "requests of browsers and proxies are not taken from loopback"
_CREDENTIALS: Final = struct.Struct("3i")
"""Form of SO_PEERCRED: process id, user id, group id."""


class ConnectionEvidence(NamedTuple):
    """Evidence of the sender that an HTTP connection shows, the same for all its requests."""

    host: str
    uid: int | None
    """User id of the peer of a unix socket."""
    certificate: frozenset[str] | None

    @classmethod
    def of(cls, transport: asyncio.BaseTransport | None, host: str) -> ConnectionEvidence:
        """Return the evidence of a connection. `host` is the address of the peer, empty for a unix socket."""
        connection = transport.get_extra_info("socket") if transport else None
        by_socket = connection is not None and connection.family == socket.AF_UNIX
        tls = transport.get_extra_info("ssl_object") if transport else None
        certificate = tls.getpeercert(binary_form=True) if tls else None
        return cls(
            host, _uid(connection) if by_socket else None, names_of_certificate(certificate) if certificate else None
        )

    def peer(self, authorization: tuple[str, ...], suspicion: errors.PdpError | None) -> Peer:
        """Return the peer of a request on this connection."""
        return Peer(self.host, self.uid, self.certificate, authorization, suspicion)

    def suspicion(self, names: Iterable[str], host: str, *, json: bool) -> errors.PdpError | None:
        """Return why a request does not count as sent by a local program; None if accepted.

        A loopback address proves nothing if a web page in a local browser, or a local proxy, sent the request. `names`
        are those of the headers. `json`: the content type is JSON, or there is no body.
        """
        if any(map(_is_forwarding, names)):
            return errors.Forbidden(_FORWARDED_TEXT)
        # a page whose DNS name was rebound to 127.0.0.1 sends the page's own name as Host
        if self.uid is None and not _is_local(host):
            return errors.Forbidden("the Host header names no loopback address")
        # a page may send other content types to another origin without asking first (CORS)
        if not json:
            return errors.UnsupportedMedia("the content type must be application/json")
        return None


_WITHOUT_BODY: Final = frozenset({"GET", "DELETE"})
"""Methods without a content type. A page may GET, but not read the answer, and may not DELETE without asking first."""


def http_peer(request: web.BaseRequest, content_types: Container[str] | None = JSON_TYPES) -> Peer:
    """Return the peer of an HTTP request. `content_types` are those that no web page may send without asking first.

    None is for requests that change nothing: it takes any content type, and Node's `fetch`. Other signs of pages count.
    """
    evidence = ConnectionEvidence.of(request.transport, request.remote or "")
    asked = content_types is None or request.method in _WITHOUT_BODY or request.content_type in content_types
    names = without_fetch_of_node(request.headers.items()) if content_types is None else request.headers
    suspicion = evidence.suspicion(names, _asked_host(request), json=asked)
    peer = evidence.peer(tuple(request.headers.getall("Authorization", ())), suspicion)
    stated = tuple((name, value) for name in IDENTITY_HEADERS for value in request.headers.getall(name, ()))
    return msgspec.structs.replace(peer, identity_headers=stated) if stated else peer


def without_fetch_of_node(headers: Iterable[tuple[str, str]]) -> Iterable[str]:
    """Return the names of headers, without the sign of browsers in every `fetch` of Node.

    Node sends `Sec-Fetch-Mode: cors` alone. A browser never sends it without `Sec-Fetch-Site`, and adds `Origin` to
    requests of this mode for another origin.
    """
    return [name for name, value in headers if name.lower() != "sec-fetch-mode" or value != "cors"]


def _asked_host(request: web.BaseRequest) -> str:
    """Return the host that a request asks: that of a target in absolute form, else the Host header (RFC 9112 3.2.2)."""
    target = request.raw_path
    if not target.startswith("/") and "://" in target:
        host = URL(target).host or ""
        return f"[{host}]" if ":" in host else host
    # without the header, `request.host` is the name of this machine
    return request.headers.get("Host", "")


def grpc_peer(context: Any, *, certified: bool = True) -> tuple[Peer, SentIds]:
    """Return the peer of a gRPC call, and the ids that the peer gives the request.

    Without TLS no peer is `certified`, and nobody looks for a certificate.
    """
    certificate = next(iter(context.auth_context().get("x509_pem_cert", ())), None) if certified else None
    authorization: tuple[str, ...] = ()
    request_ids: tuple[str, ...] = ()
    trace_parents: tuple[str, ...] = ()
    stated: tuple[tuple[str, str], ...] = ()
    suspicion = None
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            authorization = (*authorization, str(value))
        elif key == _REQUEST_ID:
            request_ids = (*request_ids, str(value))
        elif key == TRACE_PARENT:
            trace_parents = (*trace_parents, str(value))
        elif key in IDENTITY_HEADERS:
            stated = (*stated, (key, str(value)))
        elif _is_forwarding(key):
            suspicion = errors.Forbidden(_FORWARDED_TEXT)
    names = names_of_certificate(bytes(certificate)) if certificate else None
    peer = Peer(grpc_host(context.peer()), None, names, authorization, suspicion, stated)
    return peer, read_ids(request_ids, trace_parents) if request_ids or trace_parents else NO_IDS


@lru_cache(maxsize=1024)  # the text names a connection
def grpc_host(peer: str) -> str:
    """Return the host of gRPC's peer string, such as `ipv4:127.0.0.1:4711` or `ipv6:%5B::1%5D:4711`."""
    family, _, rest = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return peer
    return rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")


def _uid(connection: Any) -> int:
    """Return the user id of a unix socket's peer."""
    # asyncio's socket object offers no getsockopt: read the option from a duplicate
    with socket.socket(fileno=os.dup(connection.fileno())) as copy:
        credentials = copy.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(credentials)[1]
    return uid


def _is_forwarding(name: str) -> bool:
    """Tell whether only browsers and proxies send a header or metadata key of this name."""
    name = name.lower()
    return name in _FORWARDED or name.startswith(_FORWARDED_PREFIXES)


@lru_cache(maxsize=64)  # clients repeat their Host header with every request
def _is_local(authority: str) -> bool:
    """Tell whether a Host header names a loopback address."""
    try:
        return is_loopback(URL.build(scheme="http", authority=authority).host or "")
    except ValueError:
        return False
