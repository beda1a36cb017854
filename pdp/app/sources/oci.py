"""Bundle in a registry of container images, by the OCI distribution specification 1.1.

An artefact has one layer: the archive of the bundle. Digests are compared, and the signature within the archive counts
as for any other server. So the registry need not be trusted.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from pdp.app.sources.client import FetchedBundle, SourceUnreachable
from pdp.app.sources.http import HttpFetcher, SourceAnswer, require_status
from pdp.config.bundles.manifest import BundleRefused
from pdp.config.policies import OCI_PATH
from pdp.errors import InvalidArgument
from pdp.model.strict import refuse_duplicates

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
