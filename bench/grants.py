"""Speed of grants, beside a real OpenFGA on PostgreSQL. Prints a table and asserts no time.

python bench/grants.py [engine] [tables] [fanout] [million]
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from grants_engine import engine, million
from grants_http import fanout, tables

PARTS: Final = {"engine": engine, "tables": tables, "fanout": fanout, "million": million}

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # the exit stops the servers
    print(f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f} before\n")
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
