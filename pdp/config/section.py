"""Base of all sections of settings, and the parsing of addresses. Knows no key."""

from __future__ import annotations

import ipaddress
import os
import re
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from pdp.model.strict import PLAIN_NUMBERS, is_plain_number

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
"""pydantic looks for plugins in the metadata of all installed packages. A plugin would see the secrets of settings."""


class Secret(NamedTuple):
    """Mark of a type of secrets. `address`: the secret is the password in an address."""

    address: bool = False


_PART_OF_SECRET: Final = re.compile(
    r"secret|pass|pwd|token|cred|key|jaas|authorization|basic.?auth|cookie|private|connection.?string"
    r"|webhook|header\.|executorEnv|appMasterEnv",
    re.IGNORECASE,
)
_WORDS_OF_SECRET: Final = frozenset(
    {"auth", "bearer", "dsn", "jwt", "otp", "pat", "pem", "pin", "psk", "sas", "session", "sig", "signature"}
)
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""Word of a name such as `sasToken`, `SAS_TOKEN` and `sas-token`."""


def names_secret(name: str) -> bool:
    """Tell whether a name unknown to all sections may be the name of a secret. In doubt, yes."""
    words = (word.lower() for word in _WORD.findall(name))
    return _PART_OF_SECRET.search(name) is not None or not _WORDS_OF_SECRET.isdisjoint(words)


SecretText: TypeAlias = Annotated[str, Secret()]
SecretAddress: TypeAlias = Annotated[str, Secret(address=True)]

AnySection = TypeVar("AnySection", bound="Section")


class Section(BaseModel):
    """Group of keys: frozen, without unknown keys and empty texts."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_min_length=1, defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _require_plain_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Raise ValueError for true and false in place of a number, and for a text that is no plain number.

        YAML reads `yes` and `on` as true, and `1e3` and `0o10` as texts, which other readers take for numbers.
        """
        field = cls.model_fields[info.field_name or ""]
        if field.annotation not in (int, float):
            return value
        if isinstance(value, bool):
            raise ValueError("input should be a valid number")  # noqa: TRY004  pydantic takes no TypeError
        if isinstance(value, str) and not is_plain_number(value):
            raise ValueError(f"input should be a valid number: {PLAIN_NUMBERS}, or a unit")
        return value


def defaults(section: type[AnySection], **given: Any) -> AnySection:
    """Return a section with `given` values and defaults, none of them checked.

    A check needs the validator of the section. Its making takes milliseconds, and the settings as a whole do without.
    """
    return section.model_construct(**given)  # type: ignore[return-value]  # pydantic names no type of its own


_PORT: Final = re.compile("0|[1-9][0-9]{0,4}")


def split_address(address: str) -> tuple[str, int]:
    """Return the host and port of `host:port`; raise ValueError for any other text."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not _PORT.fullmatch(port) or int(port) > 65535:
        raise ValueError(f"`{address}` is not `host:port`, with a port in plain digits from 0 to 65535")
    return host.strip("[]"), int(port)


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Tell whether a listening address or a peer is on the loopback interface."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
