"""Keys of `policies.source`: a bundle of policies on a server, or a git repository."""

from __future__ import annotations

import re
from typing import Final, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from pdp.config.section import Section, is_loopback

_KINDS: Final = ("http", "oci", "git")
OCI_PATH: Final = re.compile(
    r"/(?P<name>[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*)"
    r"(:(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127})|@(?P<digest>sha256:[0-9a-f]{64}))"
)
"""Path of an artefact in a registry."""


class SourceSettings(Section):
    """Place of all policies whose paths are relative. One of `http`, `oci` and `git` is set."""

    http: str | None = Field(None, description="URL of a bundle, from `pdp bundle build`")
    oci: str | None = Field(
        None, description="bundle in a registry: `https://<registry>/<repository>:<tag>` or `...@sha256:<digest>`"
    )
    git: str | None = Field(None, description="folder of a git repository: its commit at `HEAD` counts, not its files")
    path: str | None = Field(None, description="folder of the policies within the repository of `git`")
    keys: tuple[str, ...] = Field(
        (), description="public keys (PEM files, Ed25519 or ECDSA P-256): a bundle needs a signature by one of them"
    )
    unsigned: bool = Field(False, description="take bundles without a signature: whoever can change the bundle permits")
    token_file: str | None = Field(None, description="file of a bearer token for the server, read at each request")
    username: str | None = Field(None, description="name of a user, whose password is in `token_file`")
    ca: str | None = Field(None, description="authorities of the server (PEM) in place of the system's")
    poll_seconds: float = Field(30, ge=0.1, le=86400, description="how often the service asks for a newer bundle")
    timeout_seconds: float = Field(10, gt=0, le=300, description="for one whole request to the server, with redirects")
    redirect_hosts: tuple[str, ...] = Field(
        (), description="other hosts to which the server may redirect, without the token"
    )
    max_mib: int = Field(64, ge=1, le=1024, description="most MiB of an unpacked bundle")
    folder: str = Field("policy-bundles", description="folder of the last good bundle, for a start without the server")

    @property
    def kind(self) -> str:
        """Return the key that names the place."""
        return next(kind for kind in _KINDS if getattr(self, kind) is not None)

    @property
    def place(self) -> str:
        """Return the URL or folder."""
        return str(getattr(self, self.kind))

    @model_validator(mode="after")
    def _check(self) -> Self:
        if sum(getattr(self, kind) is not None for kind in _KINDS) != 1:
            raise ValueError("set one of `http`, `oci` and `git`")
        if self.kind == "git":
            if self.keys or self.unsigned or self.token_file or self.ca:
                raise ValueError("`git` takes no keys and no token: who can write to the repository writes policies")
            return self
        if self.path is not None:
            raise ValueError("`path` belongs to `git`")
        if bool(self.keys) == self.unsigned:
            raise ValueError("set `keys`, or `unsigned: true`")
        self._check_url()
        return self

    def _check_url(self) -> None:
        try:
            url = urlsplit(self.place)
            host, _ = url.hostname, url.port
        except ValueError:
            raise ValueError(f"`{self.kind}` is no URL") from None
        if url.scheme not in ("http", "https") or not host or "@" in url.netloc or url.fragment:
            raise ValueError(f"`{self.kind}` is a URL with https://, a host, and no user or password")
        if self.kind == "oci" and (url.query or not OCI_PATH.fullmatch(url.path)):
            raise ValueError("`oci` is a URL such as https://registry.example.com/team/policies:prod")
        if self.username and (not self.token_file or ":" in self.username):
            raise ValueError("`username` needs a `token_file` with the password, and has no colon")
        if url.scheme == "http" and not is_loopback(host) and (self.unsigned or self.token_file):
            raise ValueError("http:// to another machine needs `keys` and takes no token: use https://")
