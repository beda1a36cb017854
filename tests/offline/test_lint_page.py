"""Page of lint: it has the codes of every policy model."""

from __future__ import annotations

import re

import pytest
from support.paths import ROOT

PRODUCT = ROOT / "pdp"


@pytest.mark.parametrize("model", ["cedar", "scopes"])
def test_the_page_has_the_codes_of_the_product(model: str) -> None:
    page = (ROOT / "docs" / "lint.md").read_text()
    sources = "".join(path.read_text() for path in PRODUCT.rglob("*.py"))
    documented = re.findall(rf"^\| `({model}-[a-z-]+)` \| (?:error|warning|info) \|", page, re.MULTILINE)
    found = set(re.findall(rf'"({model}-[a-z-]+)"', sources))
    assert len(documented) == len(set(documented)) > 3
    assert set(documented) == found
