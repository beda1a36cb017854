"""Keys of `server`, `limits` and `outgoing`: addresses, certificates, bounds on requests, and ways to other servers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, AliasChoices, Field, PlainValidator, PrivateAttr, model_validator

from pdp.config.section import SecretAddress, Section, defaults, split_address
from pdp.errors import ConfigError

if TYPE_CHECKING:
    import ssl

_MOST_WORKERS: Final = 256


def _address(address: str) -> str:
    split_address(address)
    return address


def _workers(count: object) -> object:
    if count == "auto" or (type(count) is int and 1 <= count <= _MOST_WORKERS):
        return count
    raise ValueError(f"input should be a number from 1 to {_MOST_WORKERS}, or `auto`")


class TlsSettings(Section):
    """Certificates of HTTP and gRPC, as PEM files. No key is written into a configuration."""

    cert: str | None = Field(None, description="the file of the service's certificate and its chain")
    key: str | None = Field(
        None, validation_alias=AliasChoices("key", "key_file"), description="the file of its private key, unencrypted"
    )
    client_ca: str | None = Field(
        None, description="the file of the authorities that sign clients; gRPC then demands a certificate, HTTP asks"
    )

    @model_validator(mode="after")
    def _require_key_and_certificate(self) -> Self:
        if (self.cert is None) != (self.key is None) or (self.client_ca and not self.cert):
            raise ValueError("`cert` and `key` belong together, and `client_ca` needs both")
        return self


class ServerSettings(Section):
    """Addresses of the service, and how it stops."""

    http: Annotated[str, AfterValidator(_address)] = Field(
        "127.0.0.1:8181", description="HTTP address for checks and Trino; port 0 takes a free one"
    )
    grpc: Annotated[str, AfterValidator(_address)] = Field("127.0.0.1:8081", description="gRPC address")
    diagnostics: Annotated[str, AfterValidator(_address)] = Field(
        "127.0.0.1:8282", description="health and metrics; no decisions are served here, so it may leave loopback"
    )
    unix: str | None = Field(None, min_length=1, description="the path of a socket that serves HTTP, too")
    unix_access: Literal["owner", "group"] = Field(
        "owner", description="who may connect to `server.unix`: the user of the service, or the group, too"
    )
    workers: Annotated[int | Literal["auto"], PlainValidator(_workers)] = Field(
        1, description="processes that serve HTTP and gRPC on the same addresses; `auto` is one for each CPU"
    )
    tls: TlsSettings = defaults(TlsSettings)
    lame_duck_seconds: float = Field(
        2, ge=0, le=600, description="how long a stop still serves all, while readiness tells balancers to go elsewhere"
    )
    drain_seconds: float = Field(5, ge=0, le=600, description="how long a stop waits for requests in flight")


class LimitSettings(Section):
    """Bounds that protect the service from large requests and from many requests."""

    max_checks: int = Field(10_000, ge=1, description="checks in one request")
    max_body_bytes: int = Field(8_388_608, ge=1024, le=2**31 - 1, description="bytes of one request body")
    max_values: int = Field(
        500_000,
        ge=1000,
        description="values and parts of names in one request body, counted by its signs `,` `{` `[` `/` `.`; "
        "in messages of gRPC by tags; Trino's bodies may have 10 for each of `trino_max_resources`",
    )
    max_in_flight: int = Field(1024, ge=1, description="requests served at once; above it 429")
    request_timeout_seconds: float = Field(
        10, gt=0, le=3600, description="from the first byte of a request to its answer"
    )
    idle_timeout_seconds: float = Field(
        65, gt=0, le=3600, description="a connection that sends no whole request head for so long is closed"
    )
    rewrite_seconds: float = Field(
        3, gt=0, le=60, description="how long a process may work on one statement before it is killed"
    )
    rewrite_processes: int = Field(2, ge=1, le=64, description="processes that rewrite statements, started on demand")
    referenced_by_depth: int = Field(10, ge=1, description="views that one load may go through")
    namespace_depth: int = Field(10, ge=1, description="parts in the namespace of what is loaded, and of its views")
    trino_max_resources: int = Field(100_000, ge=1, description="resources in one Trino batch")
    trino_max_body_bytes: int = Field(67_108_864, ge=1024, le=2**31 - 1, description="bytes of one Trino request body")


_PROXY: Final = re.compile(
    r"http://(?:[^\x00-\x20\x7f-\U0010ffff/?#\\\[\]@]*@)?(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::(\d{1,5}))?/?", re.ASCII
)
"""Address whose parts every reader divides alike."""


def _proxy(text: str) -> str:
    """Return the address of a proxy; raise ValueError for any other text, which is not quoted."""
    found = _PROXY.fullmatch(text)
    if not found or not 0 < int(found[1] or 80) < 1 << 16:
        raise ValueError("a proxy is `http://host:port`, and `http://user:password@host:port` with signs as `%2F`")
    return text


class OutgoingSettings(Section):
    """Ways to providers of identity, catalogs, sources of policies and receivers of the audit over HTTP."""

    ca_file: str | None = Field(
        None,
        description="certificates in PEM that `https` trusts, in place of the system's; a `ca_file` or `ca` of one "
        "server wins",
    )
    proxy: Annotated[SecretAddress, AfterValidator(_proxy)] | None = Field(
        None,
        description="`http://host:port` of a proxy: `https` goes through it by CONNECT, and `http` never does; without "
        "it the variables `HTTPS_PROXY` and `NO_PROXY` count",
    )
    no_proxy: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="hosts, domains and networks that `proxy` is not for, as in `NO_PROXY`"
    )

    def proxies(self, environment: Mapping[str, str]) -> tuple[str | None, tuple[str, ...]]:
        """Return the proxy of `https`, and the hosts without; raise ConfigError for an unusable variable."""
        if self.proxy is not None:
            return self.proxy, self.no_proxy
        name = next((name for name in ("https_proxy", "HTTPS_PROXY") if environment.get(name)), None)
        if name is None:
            return None, ()
        try:
            text = environment[name]
            proxy = _proxy(text if "://" in text else f"http://{text}")
        except ValueError as error:
            raise ConfigError(f"the variable `{name}` cannot be used: {error}") from None
        without = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
        return proxy, tuple(part for part in without.replace(",", " ").split())


class WayOut(NamedTuple):
    """Way to other servers. `key` is the setting that names the file of authorities."""

    ca: Path | None = None
    key: str = ""
    proxy: str | None = None
    no_proxy: tuple[str, ...] = ()

    def context(self) -> ssl.SSLContext:
        """Return the trust of `https`; raise ConfigError for a file without certificates."""
        import ssl  # noqa: PLC0415  most commands open no connection

        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise ConfigError(f"`{self.key}`: `{self.ca}` holds no certificates: {error.strerror}") from None

    def proxy_to(self, url: str) -> str | None:
        """Return the proxy for a URL; None for a direct connection."""
        parts = urlsplit(url)
        if parts.scheme != "https" or self.proxy is None:
            return None
        host, port = (parts.hostname or "").rstrip("."), parts.port or 443
        return None if any(_covers(entry, host, port) for entry in self.no_proxy) else self.proxy


def _covers(entry: str, host: str, port: int) -> bool:
    """Tell whether an entry of `NO_PROXY` is for a host: `*`, a domain with all below, an address or a network."""
    try:
        network = ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        name, colon, digits = entry.rpartition(":")
        name = (name if colon and digits.isdigit() else entry).strip("[]").lower().removeprefix("*").lstrip(".")
        is_port = not (colon and digits.isdigit()) or int(digits) == port
        return is_port and (entry == "*" or (bool(name) and (host == name or host.endswith(f".{name}"))))
    try:
        return ipaddress.ip_address(host) in network
    except ValueError:
        return False


class RemoteSection(Section):
    """Settings of another server, with the way there once the configuration is whole."""

    ca_file: str | None = Field(None, description="certificates in PEM that `https` trusts, in place of the system's")
    _way: WayOut | None = PrivateAttr(default=None)

    @property
    def way(self) -> WayOut:
        """Return the way to the server."""
        return self._way or WayOut(Path(self.ca_file) if self.ca_file else None, "ca_file")

    def by(self, way: WayOut) -> Self:
        """Return these settings with the way to the server."""
        copy = self.model_copy()
        copy._way = way  # noqa: SLF001  a copy of this object
        return copy
