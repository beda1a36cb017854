"""Keys of the MAC over cached verdicts: who has a key may write verdicts that count."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from pdp.config.cache import SHORTEST_KEY, key_lines
from pdp.config.files import FILE_MODE, FOLDER_MODE


class MacKeys(NamedTuple):
    """Keys by the order of their use: the first one signs, and each of them verifies."""

    signing: bytes
    accepted: tuple[bytes, ...]

    @classmethod
    def parse(cls, text: str) -> MacKeys:
        """Return the keys of a text of one or two lines; raise ValueError for any other text."""
        derived = tuple(sha256(b"pdp decision cache\0" + line.encode()).digest() for line in key_lines(text))
        return cls(derived[0], derived)


def machine_keys() -> MacKeys | None:
    """Return the key that all services of this user on this machine share; create the key if it is missing.

    None if the key cannot be kept where no other user can read or replace it.
    """
    folder = Path(tempfile.gettempdir()) / f"pdp-{os.getuid()}"
    try:
        folder.mkdir(FOLDER_MODE, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            return None
        return MacKeys.parse(_shared_text(folder / "cache-mac-key"))
    except (OSError, ValueError):
        return None


def random_keys() -> MacKeys:
    """Return a key that nobody shares: the verdicts of other services are then misses."""
    return MacKeys.parse(secrets.token_hex(SHORTEST_KEY))


def _shared_text(file: Path) -> str:
    """Return the text of a file. The first of several processes that lack the file writes it, as a whole."""
    if not file.exists():
        draft = file.with_name(f".{file.name}-{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(descriptor, "w") as out:
            out.write(secrets.token_hex(SHORTEST_KEY))
        try:
            os.link(draft, file)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return file.read_text()
