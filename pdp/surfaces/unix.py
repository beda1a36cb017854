"""The unix socket: who may connect is decided by its permissions, and whoever does is named by its user id."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

from aiohttp import web

from pdp.errors import ConfigError

MODE: Final = 0o660
"""The service's own user and group may connect."""


async def listen_on_socket(runner: web.ServerRunner, path: Path) -> str:
    """Serve on a socket at `path`; raises ConfigError where somebody else does, or where something else stands."""
    try:
        _clear(path)
        listening = _bound(path)
    except OSError as error:
        cause = os.strerror(error.errno).lower() if error.errno else str(error)
        raise ConfigError(f"cannot listen on `{path}` (server.unix): {cause}") from None
    await web.SockSite(runner, listening, backlog=1024).start()
    return str(path)


def remove_socket(path: Path) -> None:
    """What a service leaves behind that stops."""
    path.unlink(missing_ok=True)


def _bound(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777)  # nobody connects before the permissions are those that are meant
    try:
        made.bind(str(path))
        path.chmod(MODE)
    except OSError:
        made.close()
        raise
    finally:
        os.umask(before)
    return made


def _clear(path: Path) -> None:
    """Remove the socket of a service that is gone."""
    if not path.is_socket():
        if path.exists():
            raise ConfigError(f"cannot listen on `{path}` (server.unix): something else stands there")
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise ConfigError(f"cannot listen on `{path}` (server.unix): somebody does already")
