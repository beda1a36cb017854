"""Settings of the audit: the key of the hash chain, as a text or from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdp.config.load import make_settings
from pdp.errors import ConfigError

KEY = "sixteen letters!"


def test_the_key_of_the_chain_is_a_text_or_the_first_line_of_a_file(tmp_path: Path) -> None:
    assert make_settings({}, tmp_path).chain_keys() == ()
    assert make_settings({"audit": {"hmac_key": KEY}}, tmp_path).chain_keys() == (KEY.encode(),)
    (tmp_path / "chain.key").write_text(f"\n{KEY}\n\n  the key before this one\n")
    settings = make_settings({"audit": {"hmac_key_file": "chain.key"}}, tmp_path)
    assert settings.chain_keys() == (KEY.encode(), b"the key before this one")


@pytest.mark.parametrize(
    ("audit", "words"),
    [
        ({"hmac_key": KEY, "hmac_key_file": "chain.key"}, "cannot both be set"),
        ({"hmac_key": "short"}, "at least 16 characters"),
        ({"segment_mib": 0}, "audit.segment_mib"),
        ({"segment_seconds": 0}, "audit.segment_seconds"),
        ({"durability": "always"}, "audit.durability"),
        ({"compress": "lz4"}, "audit.compress"),
    ],
)
def test_an_unusable_value_stops_the_start(tmp_path: Path, audit: dict[str, str | int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_settings({"audit": audit}, tmp_path)


@pytest.mark.parametrize(
    ("content", "words"), [(None, "cannot read"), ("\n", "is empty"), (f"{KEY}\nshort\n", "fewer than 16")]
)
def test_an_unusable_file_of_keys_is_named(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "chain.key").write_text(content)
    settings = make_settings({"audit": {"hmac_key_file": "chain.key"}}, tmp_path)
    with pytest.raises(ConfigError, match=words) as raised:
        settings.chain_keys()
    assert "`audit.hmac_key_file`" in str(raised.value)
    assert "short" not in str(raised.value)
