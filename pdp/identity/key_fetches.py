"""Fetches of key sets over HTTP, and the discovery of their address by the issuer (OpenID Connect Discovery 1.0, 4).

Bounded in size and time, without redirects, cookies and `.netrc`. Messages hold no part of an address but a host, and
no part of an answer but its status.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

import aiohttp
import msgspec

from pdp.config.identity import ProviderSettings, checked_key_url
from pdp.config.regular_files import read_regular
from pdp.errors import InvalidArgument
from pdp.model.strict import refuse_duplicates

MAX_BYTES: Final = 1 << 20
_WELL_KNOWN: Final = "/.well-known/openid-configuration"
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HOST: Final = re.compile(r"[a-z0-9._:-]{1,253}")
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
"""Codes of OpenSSL for certificates whose authority is not among the trusted ones."""


class _Discovery(msgspec.Struct):
    issuer: str
    jwks_uri: str


class KeyFetcher:
    """Client of the key endpoint of one issuer. The constructor needs no event loop."""

    def __init__(self, idp: str, provider: ProviderSettings) -> None:
        """Read the authorities; raise ConfigError for a file without certificates."""
        self.idp = idp
        self._provider = provider
        self._tls = provider.way.context() if provider.way.ca else True

    async def fetch(self) -> bytes:
        """Return the answer of the key endpoint; raise ValueError, OSError or an error of aiohttp for none."""
        timeout = aiohttp.ClientTimeout(total=self._provider.fetch_timeout_seconds)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", **await self._authorization()}
        connector = aiohttp.TCPConnector(ssl=self._tls)
        async with (
            asyncio.timeout(self._provider.fetch_timeout_seconds),
            aiohttp.ClientSession(
                connector=connector, timeout=timeout, headers=headers, auto_decompress=False
            ) as session,
        ):
            return await self._get(session, self._provider.jwks or await self._discover(session))

    async def _authorization(self) -> dict[str, str]:
        """Return the header with the token of a file, read at each fetch."""
        file = self._provider.jwks_token_file
        if file is None:
            return {}
        try:
            token = (await asyncio.to_thread(read_regular, Path(file))).decode().strip()
        except (OSError, UnicodeDecodeError):
            token = ""
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError(f"`identity.providers.{self.idp}.jwks_token_file` cannot be read, or holds no token")
        return {"Authorization": f"Bearer {token}"}

    async def _discover(self, session: aiohttp.ClientSession) -> str:
        """Return the address of the keys from the issuer's document; raise ValueError for another issuer or host."""
        text = await self._get(session, self._provider.issuer.rstrip("/") + _WELL_KNOWN)
        try:
            found = msgspec.json.decode(text, type=_Discovery)
            refuse_duplicates(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidArgument):
            raise ValueError("its discovery document has no `issuer` and `jwks_uri`") from None
        if found.issuer != self._provider.issuer:
            raise ValueError("its discovery document is of another issuer: write `issuer` to the letter, or `jwks`")
        self._require_known(found.jwks_uri)
        return found.jwks_uri

    def _require_known(self, url: str) -> None:
        try:
            at, issuer = urlsplit(checked_key_url(url)), urlsplit(self._provider.issuer)
            others = {each if ":" in each else f"{each}:443" for each in self._provider.jwks_hosts}
            is_known = _place(at) == _place(issuer) or f"{at.hostname}:{at.port or 443}" in others
            known = is_known and at.scheme in ("https", issuer.scheme)
        except ValueError:
            known, at = False, urlsplit("")
        if not known:
            host = f" `{at.hostname}`" if _HOST.fullmatch(at.hostname or "") else ""
            raise ValueError(f"its keys are at another host{host}: see `identity.providers.{self.idp}.jwks_hosts`")

    async def _get(self, session: aiohttp.ClientSession, url: str) -> bytes:
        async with session.get(url, allow_redirects=False, proxy=self._provider.way.proxy_to(url)) as response:
            if response.status != 200:
                raise ValueError(f"the answer is {response.status}{_target(response)}")
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise ValueError("the answer is compressed")
            text = b""
            while chunk := await response.content.read(MAX_BYTES):
                text += chunk
                if len(text) > MAX_BYTES:
                    raise ValueError(f"the answer is larger than {MAX_BYTES} bytes")
            return text

    def describe(self, error: Exception) -> str:
        """Return why a fetch failed, without the text of a library: texts quote addresses."""
        if type(error) is ValueError:
            return str(error)
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return self._distrust(error.certificate_error)
        if isinstance(error, aiohttp.ClientConnectorSSLError):
            return "no connection by TLS can be made"
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return f"the proxy answers {error.status}"
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return "the proxy cannot be reached"
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return "its host has no address in DNS: `outgoing.proxy` names a proxy that knows it"
        if isinstance(error, aiohttp.ClientConnectorError):
            number = error.os_error.errno
            return f"no connection: {os.strerror(number) if number else type(error.os_error).__name__}"
        if isinstance(error, TimeoutError):
            return f"no answer within {self._provider.fetch_timeout_seconds:g} seconds"
        return type(error).__name__

    def _distrust(self, error: Exception) -> str:
        """Return why a certificate is not trusted, and the setting of an authority that this machine does not know."""
        cause = getattr(error, "verify_message", type(error).__name__)
        unknown = getattr(error, "verify_code", 0) in _UNKNOWN_AUTHORITY
        key = f"`identity.providers.{self.idp}.ca_file`"
        return f"its certificate is not trusted: {cause}" + f"; {key} names the file of a private authority" * unknown


def _target(response: aiohttp.ClientResponse) -> str:
    """Return the host of a redirect, without the rest of the address."""
    if response.status not in _REDIRECTS:
        return ""
    try:
        host = urlsplit(urljoin(str(response.url), response.headers.get("Location", ""))).hostname or ""
    except ValueError:
        host = ""
    known = f" to the host `{host}`" if _HOST.fullmatch(host) else ""
    return f", a redirect{known}: give the address where it ends"


def _place(url: SplitResult) -> tuple[str, str | None, int]:
    return url.scheme, url.hostname, url.port or (443 if url.scheme == "https" else 80)
