"""A process without the rights of root that carries out orders on an audit folder, one line each."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pdp.audit.files.folder import AuditFolder, SegmentForm

NOBODY = 65534


def answer(text: str) -> None:
    """Write a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(place: Path) -> None:
    """Write a record for each line `write`, and rotate for each other line; write the outcome of each."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setuid(NOBODY)
    folder, seq = AuditFolder(place, "i", SegmentForm(size=1000)), 0
    for order in sys.stdin:
        try:
            if order == "write\n":
                folder.append([b'{"event":"decision","seq":%d}\n' % seq])
                seq += 1
            else:
                folder.rotate()
        except OSError as error:
            answer(error.strerror or repr(error))
        else:
            answer("done")
    folder.rotate()
    folder.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
