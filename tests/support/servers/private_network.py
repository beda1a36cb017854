"""Network of its own for a thread and the processes that it starts: every port is free, as in a pod.

Needs root on Linux. Elsewhere, tests are skipped, and the run says so.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from support.untested import not_tested

_NEW_NETWORK: Final = 0x40000000
_SET_ADDRESS, _SET_FLAGS, _UP_AND_RUNNING = 0x8916, 0x8914, 0x41


@contextmanager
def private_network(untested: str, *addresses: str) -> Iterator[None]:
    """Move this thread into a new network with loopback and further `addresses`; skip, saying what goes untested."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(_NEW_NETWORK):
            not_tested(untested, f"no network of its own, for root on Linux: {os.strerror(ctypes.get_errno())}", "")
        try:
            _add_addresses("127.0.0.1", *addresses)
            yield
        finally:
            if libc.setns(before, _NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "cannot leave the network")
    finally:
        os.close(before)


def _add_addresses(*addresses: str) -> None:
    """Give the loopback device its addresses and switch it on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for number, address in enumerate(addresses):
            name = f"lo:{number}" if number else "lo"
            packed = struct.pack("16sH2s4s8s", name.encode(), socket.AF_INET, b"", socket.inet_aton(address), b"")
            fcntl.ioctl(control, _SET_ADDRESS, packed)
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH14s", b"lo", _UP_AND_RUNNING, b""))
