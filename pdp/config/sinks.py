"""Keys of `audit.sinks`: the destinations of audit records."""

from __future__ import annotations

from typing import Final, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from pdp.config.section import Section, is_loopback

KINDS: Final = ("file", "stdout", "http", "otlp")
"""Keys of a sink, of which each has one."""
OTLP_PATH: Final = "/v1/logs"
"""Path of OpenTelemetry's log records below an endpoint."""


class PushSettings(Section):
    """Push of records to a receiver: what all receivers have in common."""

    headers_file: str | None = Field(
        None,
        description="a file with headers, one `Name: value` per line, such as a token; read again after a 401 or 403",
    )
    ca: str | None = Field(
        None, description="a file with the certificates of the authorities to trust; by default those of the system"
    )
    insecure: bool = Field(
        False, description="permit `http://` to another machine: everybody on the way can read records"
    )
    timeout_seconds: float = Field(10, gt=0, le=300, description="silence after which an attempt has failed")
    spool_mib: int = Field(
        1024, ge=16, description="MiB that may wait in the spool, of each worker; beyond them `audit.on_full` applies"
    )
    batch_records: int = Field(1000, ge=1, le=100_000, description="most records of a batch")
    batch_kib: int = Field(
        1024, ge=1, le=65_536, description="most KiB of a batch, uncompressed; a longer record is alone"
    )
    batch_seconds: float = Field(1, ge=0, le=60, description="how long records wait for more of a batch")
    gzip: bool = Field(True, description="compress batches")


class HttpSinkSettings(PushSettings):
    """Receiver of JSON lines over HTTP."""

    url: str = Field(description="where to POST batches: https, or http on loopback; credentials go to `headers_file`")
    spool: str = Field(
        "audit-spool/http", description="a folder of this sink alone, in which records wait for the receiver"
    )

    @model_validator(mode="after")
    def _check_url(self) -> Self:
        _check_address("url", self.url, insecure=self.insecure)
        return self


class OtlpSinkSettings(PushSettings):
    """Receiver of OpenTelemetry logs, OTLP over HTTP in JSON."""

    endpoint: str = Field(description=f"the receiver, such as `https://collector:4318`; `{OTLP_PATH}` is added")
    service: str = Field("pdp", description="`service.name` of the log records")
    spool: str = Field(
        "audit-spool/otlp", description="a folder of this sink alone, in which records wait for the receiver"
    )

    @model_validator(mode="after")
    def _check_endpoint(self) -> Self:
        _check_address("endpoint", self.endpoint, insecure=self.insecure)
        return self


class SinkSettings(Section):
    """One destination of records: exactly one of its keys."""

    stdout: bool | None = Field(None, description="`true`: JSON lines on stdout, which then has nothing else")
    http: HttpSinkSettings | None = Field(None, description="push of JSON lines to a receiver over HTTP")
    otlp: OtlpSinkSettings | None = Field(None, description="push of OpenTelemetry logs to a receiver")
    file: str | None = Field(None, validate_default=True, description="the folder of JSON lines files, in segments")

    @field_validator("stdout")
    @classmethod
    def _check_stdout(cls, value: bool | None) -> bool | None:
        if value is False:
            raise ValueError("leave the sink out in place of `false`")
        return value

    @field_validator("file")
    @classmethod
    def _check_any(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and len(info.data) == len(KINDS) - 1 and not any(info.data.values()):
            raise ValueError(f"a sink has one of {', '.join(f'`{kind}`' for kind in KINDS)}")
        return value

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        given = [kind for kind in KINDS if getattr(self, kind)]
        if len(given) > 1:
            raise ValueError(f"`{given[0]}` and `{given[1]}` are two sinks: write two entries")
        return self

    @property
    def push(self) -> HttpSinkSettings | OtlpSinkSettings | None:
        """Return the keys of a push; None for a file and for stdout."""
        return self.http or self.otlp

    @property
    def kind(self) -> str:
        """Return the key of the sink."""
        return next(kind for kind in KINDS if getattr(self, kind))


def check_sinks(sinks: tuple[SinkSettings, ...]) -> tuple[SinkSettings, ...]:
    """Return the sinks; raise ValueError for two files, two times stdout, or two sinks with one spool."""
    for kind in ("file", "stdout"):
        if sum(sink.kind == kind for sink in sinks) > 1:
            raise ValueError(f"at most one sink has `{kind}`")
    spools = [sink.push.spool.rstrip("/") for sink in sinks if sink.push]
    if len(set(spools)) < len(spools):
        raise ValueError("each sink needs a `spool` of its own")
    return sinks


def _check_address(key: str, address: str, *, insecure: bool) -> None:
    """Raise ValueError for an address that is no URL, holds credentials, or lets others read records."""
    try:
        url = urlsplit(address)
        host, _ = url.hostname or "", url.port
    except ValueError:
        raise ValueError(f"`{key}` is no URL") from None
    if url.scheme not in ("http", "https") or not host or url.fragment or not address.isprintable() or " " in address:
        raise ValueError(f"`{key}` is no URL of http or https")
    if "@" in url.netloc:
        raise ValueError(f"`{key}` must not hold credentials: they belong into `headers_file`")
    if url.scheme == "http" and not is_loopback(host) and not insecure:
        raise ValueError(
            f"`{key}` is http beyond loopback: everybody on the way could read records; `insecure` permits it"
        )
