"""Starts a command as another account: `python launch.py <user id> <group id> <command>`.

With `user=` or `preexec_fn=`, `subprocess` forks this process, and a fork of a process that runs gRPC's threads may
abort. Without them `subprocess` uses vfork, which is safe.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def as_account(command: Sequence[str], account: tuple[int, int] | None) -> list[str]:
    """Return the command line that starts a command as a user and a group; without an account, the command."""
    if account is None:
        return [*command]
    return [sys.executable, "-S", "-E", __file__, *map(str, account), *command]


def main(user: str, group: str, *command: str) -> None:
    """Become the command."""
    os.setgroups([])
    os.setgid(int(group))
    os.setuid(int(user))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
