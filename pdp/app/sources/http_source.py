"""Bundle at a URL. The server's `ETag`, or the digest of the body without one, tells a new bundle."""

from __future__ import annotations

from hashlib import sha256

from pdp.app.sources.client import FetchedBundle
from pdp.app.sources.http_fetch import HttpFetcher, require_status


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
