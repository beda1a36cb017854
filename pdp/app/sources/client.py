"""Clients of sources: what each of them returns and raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from pdp.errors import PdpError


class SourceState(msgspec.Struct, frozen=True):
    """Condition of a source: the revision in use, the time of the last answer, and the cause of a silence since."""

    revision: str = ""
    contact: float = 0.0
    trouble: str = ""


class SourceUnreachable(PdpError):
    """Source without an answer: nobody listens, a timeout, an error of the server."""

    code = "source_unreachable"


class FetchedBundle(NamedTuple):
    """Newest content of a source. `tag` names the content to the source; one of `archive` and `files` is set."""

    tag: str
    archive: bytes = b""
    files: Mapping[str, bytes] | None = None


class SourceClient(Protocol):
    """Connection to a source."""

    def fetch(self, tag: str) -> FetchedBundle | None:
        """Return the newest content; None if the content is still the one with this tag.

        Raise SourceUnreachable without an answer, BundleRefused for an answer that must not be used.
        """
        ...
