"""Keys of `audit`: the destinations of audit records, and how safe a record is when the answer leaves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from pdp.config.sampling import SampleSettings
from pdp.config.section import Section
from pdp.config.sinks import SinkSettings, check_sinks
from pdp.errors import ConfigError

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
        (SinkSettings(file="audit/"),),
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
    hmac_key: str | None = Field(
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
        raise ConfigError(f"`audit.hmac_key_file`: cannot read `{file}`: {error.strerror}") from None
    keys = tuple(line.strip() for line in lines if line.strip())
    if not keys:
        raise ConfigError(f"`audit.hmac_key_file`: `{file}` is empty")
    if any(len(key) < SHORTEST_KEY for key in keys):
        raise ConfigError(f"`audit.hmac_key_file`: `{file}` has a key of fewer than {SHORTEST_KEY} characters")
    return keys
