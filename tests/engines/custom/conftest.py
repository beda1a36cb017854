"""The separate package on the path of imports."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers.acme import install_acme


@pytest.fixture(scope="session")
def acme_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the installed package."""
    return install_acme(tmp_path_factory.mktemp("acme"))


@pytest.fixture
def acme(acme_site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put the package on the path for one test."""
    monkeypatch.syspath_prepend(str(acme_site))
    yield acme_site
    sys.modules.pop("acme_engines", None)
