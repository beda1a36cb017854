"""Binding of addresses: alone, and shared by the processes of one service."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.service.serving import settings_of

from pdp.errors import ConfigError
from pdp.surfaces.listeners import Sockets, bind, bound_address, close, listen, open_listeners, reserve


@contextmanager
def bound(address: str, *, shared: bool = False) -> Iterator[Sockets]:
    sockets = bind(address, "server.http", shared=True) if shared else listen(address, "server.http")
    try:
        yield sockets
    finally:
        close(*sockets)


def connect(address: str) -> None:
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=5).close()


def test_port_0_takes_a_free_port_and_listens() -> None:
    with bound("127.0.0.1:0") as sockets:
        address = bound_address("127.0.0.1:0", sockets)
        assert not address.endswith(":0")
        connect(address)


def test_a_port_in_use_is_named_with_its_key() -> None:
    with (
        bound("127.0.0.1:0") as sockets,
        pytest.raises(ConfigError, match=r"cannot listen on `127.*` \(server\.http\): address already in use"),
    ):
        listen(bound_address("127.0.0.1:0", sockets), "server.http")


def test_a_port_of_grpc_in_use_is_named_and_no_other_address_taken(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        wanted = rf"cannot listen on `{address}` \(server\.grpc\): address already in use; --set server\.grpc=HOST:PORT"
        with pytest.raises(ConfigError, match=wanted):
            open_listeners(settings_of({"server": {"grpc": address}}, tmp_path))


def test_an_address_of_another_machine_is_named_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on `192\.0\.2\.1:1` \(server\.grpc\): cannot assign"):
        listen("192.0.2.1:1", "server.grpc")


def test_every_address_of_a_host_has_the_same_port() -> None:
    with bound("localhost:0") as sockets:
        assert len({each.getsockname()[1] for each in sockets}) == 1


def test_shared_sockets_have_one_port_and_serve_nothing_before_they_listen() -> None:
    with bound("127.0.0.1:0", shared=True) as first:
        address = bound_address("127.0.0.1:0", first)
        with bound(address, shared=True) as second:
            with pytest.raises(ConnectionRefusedError):
                connect(address)
            second[0].listen()
            connect(address)
            with pytest.raises(ConfigError, match="address already in use"):
                reserve(address, "server.http")


def test_a_failed_start_leaves_no_address_in_use(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        free = listen("127.0.0.1:0", "server.http")
        http = bound_address("127.0.0.1:0", free)
        close(*free)
        unix = str(tmp_path / "socket")
        server = {"http": http, "unix": unix, "diagnostics": f"127.0.0.1:{taken.getsockname()[1]}"}
        with pytest.raises(ConfigError, match=r"server\.diagnostics"):
            open_listeners(settings_of({"server": server}, tmp_path))
    with bound(http):
        assert not Path(unix).exists()
