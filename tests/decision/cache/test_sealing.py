"""Sealed verdicts: nobody without a key makes one, and one counts only where and while it was written for."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdp.decision.cache.cache import CachedVerdict
from pdp.decision.cache.mac_keys import MacKeys, machine_keys, random_keys
from pdp.decision.cache.redis_client import LONGEST_VALUE, ForgedVerdict, VerdictSeal
from pdp.engines.engine import ABSTAIN, FORBID, PERMIT

OLD, NEW = "old key " * 5, "new key " * 5
KEY, FIELD, NOW = b"k" * 32, b"f" * 24, 1_000_000
SEAL = VerdictSeal(MacKeys.parse(OLD))
verdicts = st.builds(CachedVerdict, st.sampled_from([ABSTAIN, PERMIT, FORBID]), st.none() | st.text(max_size=50))


def sealed(
    verdict: CachedVerdict, seal: VerdictSeal = SEAL, key: bytes = KEY, field: bytes = FIELD, expiry: int = NOW + 1
) -> bytes:
    value = seal.close(key, field, verdict, expiry)
    assert value is not None
    return value


def is_refused(value: bytes, seal: VerdictSeal = SEAL, key: bytes = KEY, field: bytes = FIELD, now: int = NOW) -> bool:
    try:
        seal.open(key, field, value, now)
    except ForgedVerdict:
        return True
    return False


@given(verdicts)
def test_a_sealed_verdict_opens(verdict: CachedVerdict) -> None:
    assert SEAL.open(KEY, FIELD, sealed(verdict), NOW) == verdict


@given(verdicts, st.data())
def test_a_changed_value_is_refused(verdict: CachedVerdict, data: st.DataObject) -> None:
    value = bytearray(sealed(verdict))
    at = data.draw(st.integers(0, len(value) - 1))
    value[at] ^= data.draw(st.integers(1, 255))
    assert is_refused(bytes(value))


@given(verdicts, st.integers(0, 80), st.binary(max_size=3))
def test_a_shorter_or_longer_value_is_refused(verdict: CachedVerdict, length: int, more: bytes) -> None:
    value = sealed(verdict)
    assert is_refused(value[:length]) or length >= len(value)
    assert is_refused(value + more) or not more


@given(st.binary(max_size=200))
def test_garbage_is_refused(value: bytes) -> None:
    assert is_refused(value)


@given(verdicts, st.binary(min_size=1, max_size=40), st.binary(min_size=1, max_size=40))
def test_a_value_counts_only_under_its_own_key_and_field(verdict: CachedVerdict, key: bytes, field: bytes) -> None:
    value = sealed(verdict, key=key, field=field)
    assert not is_refused(value, key=key, field=field)
    assert is_refused(value, key=key + b"x", field=field)
    assert is_refused(value, key=key, field=field + b"x")
    assert is_refused(value, key=key + field[:1], field=field[1:]), "a byte moved from the field to the key"


@given(verdicts, st.integers(0, 2**40), st.integers(-5, 5))
def test_a_value_ends(verdict: CachedVerdict, expiry: int, after: int) -> None:
    value = sealed(verdict, expiry=expiry)
    assert is_refused(value, now=max(0, expiry + after)) == (max(0, expiry + after) >= expiry)


def test_another_key_refuses_and_two_keys_accept_both() -> None:
    other, both = VerdictSeal(MacKeys.parse(NEW)), VerdictSeal(MacKeys.parse(f"{NEW}\n{OLD}\n"))
    permit = CachedVerdict(PERMIT, "cel:r")
    assert is_refused(sealed(permit), seal=other)
    assert not is_refused(sealed(permit), seal=both)
    assert not is_refused(sealed(permit, seal=both), seal=other), "the first key signs"
    assert is_refused(sealed(permit, seal=both), seal=SEAL)


def test_a_failure_is_no_verdict_even_under_a_valid_seal() -> None:
    assert is_refused(sealed(CachedVerdict(3, "cel:failed")))
    assert is_refused(sealed(CachedVerdict(200, None)))


def test_a_long_reason_is_not_sealed() -> None:
    assert SEAL.close(KEY, FIELD, CachedVerdict(PERMIT, "x" * LONGEST_VALUE), NOW) is None


@pytest.mark.parametrize("text", ["", "short", f"{OLD}\nshort", f"{OLD}\n{NEW}\n{OLD}", "\n \n"])
def test_wrong_keys_are_errors_without_the_key(text: str) -> None:
    with pytest.raises(ValueError, match="key") as error:
        MacKeys.parse(text)
    assert OLD.strip() not in str(error.value)
    assert "short\n" not in str(error.value)


def test_no_two_random_keys_are_the_same() -> None:
    assert random_keys().signing != random_keys().signing


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_services_of_one_user_share_the_key_of_the_machine(temporary: Path) -> None:
    first, second = machine_keys(), machine_keys()
    assert first is not None
    assert first == second
    (folder,) = temporary.iterdir()
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("spoil", ["open", "link", "file", "short"])
def test_a_place_that_others_may_control_gives_no_key(temporary: Path, spoil: str) -> None:
    assert machine_keys() is not None
    (folder,) = temporary.iterdir()
    if spoil == "open":
        folder.chmod(0o777)
    elif spoil == "short":
        (folder / "cache-mac-key").write_text("known")
    else:
        moved: Any = folder.rename(temporary / "moved")
        if spoil == "link":
            folder.symlink_to(moved)
        else:
            folder.write_text("")
    assert machine_keys() is None
