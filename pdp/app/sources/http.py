"""Bundles at a URL and in registries of images: verified TLS, bounded bodies, one deadline, redirects to known hosts.

Knows no cookies. The token goes to the configured host alone, and into no message.

Registries speak the OCI distribution specification 1.1. An artefact has one layer: the archive of the bundle. Digests
are compared, and the signature within the archive counts as for any other server. So the registry need not be trusted.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from hashlib import sha256
from threading import Thread
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlencode, urljoin, urlsplit

import msgspec

from pdp import __version__
from pdp.app.sources.client import FetchedBundle, SourceUnreachable
from pdp.config.bounded_answers import bound_answer, failure, open_connection
from pdp.config.bundles.manifest import BundleRefused, shown
from pdp.config.policies import OCI_PATH, SourceSettings
from pdp.config.regular_files import read_regular
from pdp.config.settings import Settings
from pdp.errors import ConfigError, InvalidArgument
from pdp.model.strict import refuse_duplicates

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS: Final = 3
_CHUNK: Final = 1 << 16
_MOST_BESIDE: Final = 8 << 20
"""Bytes of an answer beside its body: the head, and the lengths of chunks."""
_PORTS: Final = {"http": 80, "https": 443}


class SourceAnswer(NamedTuple):
    """Answer of a server. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpFetcher:
    """Requests by the settings of a source."""

    def __init__(self, settings: Settings, source: SourceSettings) -> None:
        self._source = source
        self._token = settings.path(source.token_file) if source.token_file else None
        self._way = settings.way_out(source.ca, "policies.source.ca")

    def get(self, url: str, headers: Mapping[str, str], most_bytes: int, bearer: str | None = None) -> SourceAnswer:
        """Return the answer to a GET after redirects; raise SourceUnreachable, BundleRefused or ConfigError.

        `bearer` is a token in place of the configured one.
        """
        deadline = time.monotonic() + self._source.timeout_seconds
        first = at = urlsplit(url)
        for _ in range(_MOST_REDIRECTS + 1):
            own = self._authorization(bearer) if _same_host(at, first) else {}
            answer = self._get(at, {**headers, **own}, most_bytes, deadline)
            if answer.status not in _REDIRECTS:
                return answer
            at = self._redirected(at, first, answer.headers.get("location", ""))
        raise BundleRefused(f"the server redirects more than {_MOST_REDIRECTS} times")

    def require_known(self, base: str, url: str) -> None:
        """Raise BundleRefused unless a URL leads to the host of another one, or to one of `redirect_hosts`."""
        self._redirected(urlsplit(base), urlsplit(base), url)

    def _authorization(self, bearer: str | None) -> dict[str, str]:
        if bearer is None and self._token is None:
            return {}
        user = self._source.username
        if bearer is None and user is not None:
            pair = base64.b64encode(f"{user}:{self._read_token()}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {"Authorization": f"Bearer {bearer or self._read_token()}"}

    def _redirected(self, at: SplitResult, first: SplitResult, location: str) -> SplitResult:
        """Return the next URL; raise BundleRefused for another host, or for a way without TLS."""
        try:
            to = urlsplit(urljoin(at.geturl(), location))
            known = _same_host(to, first) or (to.hostname in self._source.redirect_hosts and to.scheme == "https")
        except ValueError:
            known = False
        if not known:
            raise BundleRefused(f"the server leads to `{shown(location)}`, another host: see `redirect_hosts`")
        return to

    def _get(self, url: SplitResult, headers: Mapping[str, str], most_bytes: int, deadline: float) -> SourceAnswer:
        connection = open_connection(url.geturl(), self._way, self._source.timeout_seconds)
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")

        def ask() -> SourceAnswer:
            bound_answer(connection, 2 * most_bytes + _MOST_BESIDE, deadline)
            connection.request("GET", path, headers={"User-Agent": f"pdp/{__version__}", **headers})
            with connection.getresponse() as response:
                found = {name.lower(): value for name, value in response.getheaders()}
                return SourceAnswer(response.status, found, _read(response, most_bytes, deadline))

        try:
            return _before(deadline, ask)
        except TimeoutError:
            _cut(connection)
            raise SourceUnreachable(f"{url.netloc} does not answer in time") from None
        except ssl.SSLCertVerificationError as error:
            raise SourceUnreachable(f"{url.netloc}: the certificate is not valid: {error.verify_message}") from None
        except (OSError, http.client.HTTPException) as error:
            raise SourceUnreachable(f"{url.netloc} does not answer: {failure(error)}") from None
        except ValueError:
            raise SourceUnreachable(f"{url.netloc}: the URL or a header cannot be sent") from None
        finally:
            connection.close()

    def _read_token(self) -> str:
        try:
            token = read_regular(self._token).decode().strip() if self._token else ""
        except (OSError, UnicodeDecodeError):
            raise ConfigError("cannot read `policies.source.token_file`") from None
        if not token.isascii() or not token.isprintable() or not token:
            raise ConfigError("`policies.source.token_file` holds no token of one line")
        return token


def _before(deadline: float, ask: Callable[[], SourceAnswer]) -> SourceAnswer:
    """Return the answer of a function in a thread of its own; raise TimeoutError after the deadline.

    Timeouts of sockets bound one wait each: a name server, or one byte a second, could take hours.
    """
    answer: Future[SourceAnswer] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001  raised again by the waiting thread
            answer.set_exception(error)

    try:
        Thread(target=run, name="source", daemon=True).start()
    except RuntimeError:
        raise OSError(errno.EAGAIN, "no thread can be started") from None
    return answer.result(max(0.0, deadline - time.monotonic()))


def _cut(connection: http.client.HTTPConnection) -> None:
    """Let all waits for a connection end."""
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


def require_status(answer: SourceAnswer, *allowed: int) -> None:
    """Raise SourceUnreachable for an answer with another status. Servers may fail for a while with any status."""
    if answer.status not in allowed:
        raise SourceUnreachable(f"the server answers with status {answer.status}")


def _read(response: http.client.HTTPResponse, most_bytes: int, deadline: float) -> bytes:
    """Return the body; raise BundleRefused beyond a size, SourceUnreachable beyond a time."""
    body = bytearray()
    while part := response.read1(_CHUNK):
        body += part
        if len(body) > most_bytes:
            raise BundleRefused(f"the answer of the server has more than {most_bytes} bytes")
        if time.monotonic() > deadline:
            raise SourceUnreachable("the server sends too slowly")
    if response.length:
        raise SourceUnreachable("the answer of the server is cut off")
    return bytes(body)


def _same_host(one: SplitResult, other: SplitResult) -> bool:
    """Tell whether two URLs have the same scheme, host and port."""
    return (one.scheme, one.hostname, one.port or _PORTS.get(one.scheme)) == (
        other.scheme,
        other.hostname,
        other.port or _PORTS.get(other.scheme),
    )


class HttpSource:
    """Server with a bundle at one URL."""

    def __init__(self, fetcher: HttpFetcher, url: str, most_bytes: int) -> None:
        self._fetcher = fetcher
        self._url = url
        self._most_bytes = most_bytes

    def fetch(self, tag: str) -> FetchedBundle | None:
        """Return the bundle; None if the server or the digest says that the bundle is the same."""
        headers = {"If-None-Match": tag} if tag.endswith('"') else {}
        answer = self._fetcher.get(self._url, headers, self._most_bytes)
        require_status(answer, 200, *([304] if headers else []))
        if answer.status == 304:
            return None
        new = answer.headers.get("etag", "")
        new = new if new.endswith('"') else sha256(answer.body).hexdigest()
        return None if new == tag else FetchedBundle(new, answer.body)


LAYER: Final = "application/vnd.pdp.bundle.v1.tar+gzip"
"""Media type of the archive. An artefact with one layer of any type is taken as well."""
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_MAX_MANIFEST_BYTES: Final = 4 << 20
_MAX_TOKEN_BYTES: Final = 1 << 16
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')


class _Layer(msgspec.Struct):
    digest: str
    size: int
    mediaType: str = ""  # noqa: N815  the name of the specification


class _Manifest(msgspec.Struct):
    layers: list[_Layer]


class OciSource:
    """Artefact of a registry, by tag or by digest."""

    def __init__(self, fetcher: HttpFetcher, place: str, most_bytes: int) -> None:
        url = urlsplit(place)
        found = OCI_PATH.fullmatch(url.path)
        assert found  # the settings are checked
        self._fetcher = fetcher
        self._base = f"{url.scheme}://{url.netloc}/v2/{found['name']}"
        self._reference = found["digest"] or found["tag"]
        self._most_bytes = most_bytes
        self._bearer: str | None = None
        """Token that the registry's own server of tokens has given."""

    def fetch(self, tag: str) -> FetchedBundle | None:
        """Return the bundle; None if the tag of the registry still names the artefact with this digest."""
        body = self._get(f"manifests/{self._reference}", _MAX_MANIFEST_BYTES, _MANIFEST)
        digest = f"sha256:{sha256(body).hexdigest()}"
        if self._reference.startswith("sha256:") and digest != self._reference:
            raise BundleRefused("the registry gives another artefact than the one of the digest")
        if digest == tag:
            return None
        layer = _layer_of(body)
        if layer.size > self._most_bytes:
            raise BundleRefused(f"the layer has more than {self._most_bytes} bytes")
        archive = self._get(f"blobs/{layer.digest}", self._most_bytes, "*/*")
        if f"sha256:{sha256(archive).hexdigest()}" != layer.digest:
            raise BundleRefused("the registry gives another layer than the one of the digest")
        return FetchedBundle(digest, archive)

    def _get(self, path: str, most_bytes: int, accept: str) -> bytes:
        """Return a body, with a token of the registry's own server of tokens if the registry asks for one."""
        url = f"{self._base}/{path}"
        answer = self._fetcher.get(url, {"Accept": accept}, most_bytes, self._bearer)
        if answer.status == 401 and (challenge := _challenge(answer)):
            self._bearer = self._exchange(challenge)
            answer = self._fetcher.get(url, {"Accept": accept}, most_bytes, self._bearer)
        require_status(answer, 200)
        return answer.body

    def _exchange(self, challenge: dict[str, str]) -> str:
        """Return a token for the scope of a challenge; raise BundleRefused if another host would learn the password."""
        self._fetcher.require_known(self._base, challenge["realm"])
        realm = urlsplit(challenge["realm"])
        scope = {name: challenge[name] for name in ("service", "scope") if name in challenge}
        query = urlencode([*parse_qsl(realm.query), *scope.items()])
        answer = self._fetcher.get(realm._replace(query=query).geturl(), {}, _MAX_TOKEN_BYTES)
        require_status(answer, 200)
        try:
            found: Any = json.loads(answer.body)
            token = found.get("token") or found.get("access_token")
        except (ValueError, AttributeError, RecursionError):
            token = None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise SourceUnreachable("the server of tokens gives no token")
        return token


def _challenge(answer: SourceAnswer) -> dict[str, str] | None:
    """Return the parameters of a challenge for a bearer token; None for another challenge."""
    scheme, _, rest = answer.headers.get("www-authenticate", "").partition(" ")
    found = dict(_PARAMETER.findall(rest))
    return found if scheme.lower() == "bearer" and "realm" in found else None


def _layer_of(manifest: bytes) -> _Layer:
    """Return the layer with the archive; raise BundleRefused for another artefact."""
    try:
        layers = msgspec.json.decode(manifest, type=_Manifest).layers
        refuse_duplicates(manifest)
    except (msgspec.MsgspecError, RecursionError, InvalidArgument):
        raise BundleRefused("the registry's manifest is no image manifest of OCI") from None
    ours = [layer for layer in layers if layer.mediaType == LAYER] or layers
    if len(ours) != 1 or not _DIGEST.fullmatch(ours[0].digest):
        raise BundleRefused("the artefact has not one layer with a digest of SHA-256")
    return ours[0]
