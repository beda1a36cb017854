"""Keys of `audit`, its sinks and its sampling.

The destinations of audit records, and how safe a record is when the answer leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from pdp.config.section import SecretText, Section, defaults, is_loopback
from pdp.errors import ConfigError


class SampleSettings(Section):
    """Rule for records of permitted requests. A pattern matches whole texts; `*` stands for any characters."""

    rate: float = Field(
        gt=0,
        le=1,
        description="the share of the requests that get a record; of several matching rules the highest rate",
    )
    surfaces: tuple[str, ...] = Field(("*",), min_length=1, description="surfaces as in records, such as `trino`")
    actions: tuple[str, ...] = Field(("*",), min_length=1, description="actions, such as `trino:FilterTables`")
    principals: tuple[str, ...] = Field(("*",), min_length=1, description="principals, such as `user:oidc~etl-*`")


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


SHORTEST_KEY: Final = 16
"""Fewest characters of a key of the chain."""
DEFAULT_SEGMENT_MIB: Final = 64
DEFAULT_SEGMENT_SECONDS: Final = 3600.0
Durability: TypeAlias = Literal["none", "batch", "request"]
OnFull: TypeAlias = Literal["block", "drop", "deny"]
Compression: TypeAlias = Literal["none", "gzip", "zstd"]


class AuditSettings(Section):
    """Destinations of the record of every request."""

    sinks: Annotated[tuple[SinkSettings, ...], AfterValidator(check_sinks)] = Field(
        (defaults(SinkSettings, file="audit/"),),
        description="destinations of all records, each an entry with one of the keys below; none writes no audit",
    )
    sample_allows: Mapping[str, SampleSettings] = Field(
        {}, description="rules by name that leave out records of permitted requests; without any, all have a record"
    )
    durability: Durability = Field(
        "batch",
        description="`none` leaves it to the operating system when records reach the disk, `batch` syncs every 50 ms, "
        "and with `request` an answer leaves after its record is on disk",
    )
    on_full: OnFull = Field(
        "block",
        description="while too many records wait for the disk: requests wait up to their deadline (`block`), get 503 "
        "at once (`deny`), or are answered without a record, and the audit says how many (`drop`)",
    )
    segment_mib: int = Field(DEFAULT_SEGMENT_MIB, ge=1, le=4096, description="MiB after which the next file begins")
    segment_seconds: float = Field(
        DEFAULT_SEGMENT_SECONDS, ge=1, le=86_400 * 31, description="seconds after which the next file begins"
    )
    compress: Compression = Field("none", description="compression of complete files")
    hmac_key: SecretText | None = Field(
        None, min_length=SHORTEST_KEY, description="key of the hash chain; without one, anybody can compute the chain"
    )
    hmac_key_file: str | None = Field(
        None,
        description="file with the key in its first line; `pdp audit verify` also takes the keys of the next lines, "
        "for files of the time before a change of the key",
    )
    mask: tuple[str, ...] = Field(
        (),
        description="words; a value of properties, attributes or arguments is masked if its key contains one, as with "
        "`password`, `secret`, `token`, `key` and `credential`; SQL is masked, too",
    )
    max_waiting_bytes: int = Field(
        268_435_456, ge=1 << 20, description="bytes of records that may wait for the disk; beyond it `on_full` applies"
    )

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        if self.hmac_key is not None and self.hmac_key_file is not None:
            raise ValueError("`hmac_key` and `hmac_key_file` cannot both be set")
        return self

    @model_validator(mode="after")
    def _check_durability(self) -> Self:
        if self.durability == "request" and self.sinks and not any(sink.file or sink.push for sink in self.sinks):
            raise ValueError("`durability: request` needs a sink with files or a spool: nobody knows what stdout keeps")
        return self

    @property
    def folder(self) -> str | None:
        """Return the folder of the sink with files; None without one."""
        return next((sink.file for sink in self.sinks if sink.file), None)

    def chain_keys(self, base: Path) -> tuple[bytes, ...]:
        """Return the keys of the chain: the first one signs, all verify. Empty without a key.

        A relative path starts at `base`. Raise ConfigError if the file has no usable key.
        """
        if self.hmac_key is not None:
            return (self.hmac_key.encode(),)
        return () if self.hmac_key_file is None else read_chain_keys(base / self.hmac_key_file)


def read_chain_keys(file: Path) -> tuple[bytes, ...]:
    """Return the keys of a file, one per line; raise ConfigError if there is none, or a key is short."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"`audit.hmac_key_file`: cannot read the file: {error.strerror}") from None
    keys = tuple(line.strip() for line in lines if line.strip())
    if not keys:
        raise ConfigError(f"`audit.hmac_key_file`: `{file}` is empty")
    if any(len(key) < SHORTEST_KEY for key in keys):
        raise ConfigError(f"`audit.hmac_key_file`: `{file}` has a key of fewer than {SHORTEST_KEY} characters")
    return keys
