"""Folder of an audit: the file of one instance, and the bundles by digest.

Knows bytes and the disk, and nothing of records. Use in one thread at a time.
"""

from __future__ import annotations

import os
from pathlib import Path

from pdp.config.private_files import make_private_folder, open_private_file, restrict_files, warn_of_open_folder
from pdp.errors import ConfigError


class AuditFolder:
    """Lines in `<folder>/decisions-<instance>.jsonl`, bundles in `<folder>/bundles/<digest>`."""

    def __init__(self, folder: Path, instance: str) -> None:
        self.path = folder
        self._instance = instance
        self._bundles = folder / "bundles"
        self._archived: set[str] = set()
        """Digests of bundles that are in the folder."""
        try:
            make_private_folder(folder)
            make_private_folder(self._bundles)
            restrict_files(*folder.glob("decisions-*.jsonl"), *self._bundles.iterdir())
            lines = open_private_file(folder / f"decisions-{instance}.jsonl", os.O_WRONLY | os.O_APPEND)
            self._file = os.fdopen(lines, "ab", buffering=0)
            warn_of_open_folder(folder)
        except OSError as error:
            raise ConfigError(f"cannot write the audit to `{folder}` (audit.sinks): {error.strerror}") from None

    def archive(self, digest: str, text: bytes) -> None:
        """Put a bundle into the folder, unless it is there."""
        if digest in self._archived:
            return
        path = self._bundles / digest
        if not path.exists():
            draft = path.with_suffix(f".{self._instance}")  # another process may write the same bundle
            with os.fdopen(open_private_file(draft, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                file.write(text)
            draft.rename(path)
        self._archived.add(digest)

    def append(self, lines: bytes) -> None:
        """Append all of the lines or nothing: cut a part off again if the rest cannot be written."""
        written = 0
        try:
            while written < len(lines):
                written += self._file.write(lines[written:])
        except OSError:
            if written:
                self._file.truncate(self._file.seek(0, 2) - written)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()
