"""Keys of `server` and `limits`: addresses, certificates, and bounds on requests."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, AliasChoices, Field, PlainValidator, model_validator

from pdp.config.section import Section, defaults, split_address

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
