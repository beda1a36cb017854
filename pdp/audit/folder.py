"""Folder of an audit: the file of one instance, and the bundles by digest.

Knows bytes and the disk, and nothing of records. Use in one thread at a time.
"""

from __future__ import annotations

from pathlib import Path

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
            self._bundles.mkdir(parents=True, exist_ok=True)
            self._file = (folder / f"decisions-{instance}.jsonl").open("ab", buffering=0)
        except OSError as error:
            raise ConfigError(f"cannot write the audit to `{folder}`: {error.strerror}") from None

    def archive(self, digest: str, text: bytes) -> None:
        """Put a bundle into the folder, unless it is there."""
        if digest in self._archived:
            return
        path = self._bundles / digest
        if not path.exists():
            draft = path.with_suffix(f".{self._instance}")  # another process may write the same bundle
            draft.write_bytes(text)
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
