"""Unix socket of the HTTP service. File permissions control access; the peer's user id names the caller."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pdp.errors import ConfigError

MODES: Final[Mapping[str, int]] = {"owner": 0o600, "group": 0o660}
"""`server.unix_access` -> file permissions."""


def bind_unix(path: Path, access: str) -> socket.socket:
    """Bind a socket at `path`; raise ConfigError if another service listens there or another file exists."""
    try:
        _remove_stale(path)
        return _bind(path, MODES[access])
    except OSError as error:
        cause = os.strerror(error.errno).lower() if error.errno else str(error)
        raise ConfigError(f"cannot listen on `{path}` (server.unix): {cause}") from None


def remove_socket(path: Path) -> None:
    """Delete the socket file of a service that stops."""
    path.unlink(missing_ok=True)


def _bind(path: Path, mode: int) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o777)  # no process can connect before `chmod` sets the final permissions
    try:
        listening.bind(str(path))
        path.chmod(mode)
    except OSError:
        listening.close()
        raise
    finally:
        os.umask(umask)
    return listening


def _remove_stale(path: Path) -> None:
    """Delete the socket file of a service that no longer runs; raise ConfigError for any other file."""
    if not path.is_socket():
        if path.exists():
            raise ConfigError(f"cannot listen on `{path}` (server.unix): the file exists and is not a socket")
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise ConfigError(f"cannot listen on `{path}` (server.unix): another service listens there")
