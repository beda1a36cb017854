"""Heads and JSON bodies of the Connect protocol. Knows no service."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeVar

import msgspec
from google.protobuf.json_format import MessageToDict, Parse, ParseError
from google.protobuf.message import Message
from multidict import CIMultiDictProxy

from pdp.model.strict import sentence

M = TypeVar("M", bound=Message)

JSON: Final = "application/json"
PROTO: Final = "application/proto"
_TIMEOUT: Final = re.compile(r"[0-9]{1,10}", re.ASCII)


class ConnectHead(NamedTuple):
    """Head of a call: whether the bodies are JSON, and the timeout in seconds, None without one."""

    json: bool
    timeout: float | None


class ConnectError(Exception):
    """Answer other than a success, by a code of Connect."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def read_head(headers: CIMultiDictProxy[str], content_type: str) -> ConnectHead | None:
    """Return the head of a call; None for a content type of another protocol. Raise ConnectError if it is refused."""
    if content_type not in (JSON, PROTO):
        return None
    if headers.get("Connect-Protocol-Version", "1") != "1":
        raise ConnectError("invalid_argument", "invalid_argument: the only Connect-Protocol-Version is 1")
    for encoding in headers.getall("Content-Encoding", ()):
        if encoding.lower() != "identity":
            raise ConnectError("unimplemented", "unsupported_media_type: the only supported encoding is identity")
    return ConnectHead(content_type == JSON, _timeout(headers.get("Connect-Timeout-Ms")))


def from_json(body: bytes, kind: type[M]) -> M:
    """Return the message that a body writes in proto3 JSON; raise ConnectError. Unknown fields are refused."""
    try:
        if not body.lstrip().startswith(b"{"):
            raise ParseError("the body is no JSON object")
        return Parse(body, kind())
    except (ParseError, ValueError, RecursionError) as error:
        first_line = str(error).partition("\n")[0]
        message = sentence(first_line.replace(f"{kind.DESCRIPTOR.file.package}.", ""))
        raise ConnectError("invalid_argument", f"invalid_argument: {message}") from None


def to_json(message: Message) -> bytes:
    """Return a message in proto3 JSON, with all fields that have a default."""
    return msgspec.json.encode(MessageToDict(message, always_print_fields_with_no_presence=True))


def _timeout(text: str | None) -> float | None:
    """Return the seconds of a timeout in milliseconds; raise ConnectError unless it is a positive number."""
    if text is None:
        return None
    if not _TIMEOUT.fullmatch(text) or not int(text):
        raise ConnectError("invalid_argument", "invalid_argument: Connect-Timeout-Ms is no number of 1 to 10 digits")
    return int(text) / 1000
