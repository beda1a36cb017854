"""The folders that tests read from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent.parent
ROOT: Final = TESTS.parent
RECORDED: Final = TESTS / "recorded"
