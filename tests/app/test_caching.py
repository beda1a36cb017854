"""The cache of a service: built from settings, secrets in files, and nothing of them in logs or errors."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.generators.generated_pdps import make_pdp
from support.service.serving import settings_of

from pdp.app.facts import build_pdp
from pdp.app.wiring import build_cache, seal_keys
from pdp.decision.active_policies import ActivePolicies, Authority
from pdp.decision.cache.local import InProcessCache, TieredCache
from pdp.decision.cache.mac_keys import MacKeys, machine_keys
from pdp.decision.cache.redis import RedisCache
from pdp.decision.verdict_cache import served_engines
from pdp.engines.engine import READS_POLICIES, Cost
from pdp.errors import ConfigError
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp
from pdp.telemetry import Telemetry

KEY = "canary-key-" * 4
LOCAL = "redis://127.0.0.1:1"


@pytest.fixture(autouse=True)
def own_machine_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


class CostlyEngine:
    """An engine whose verdicts are worth a round trip."""

    name = digest = "costly"
    forbids, counts_stored_roles = True, False
    cost = Cost.MILLISECONDS
    reads = READS_POLICIES
    applies: Any = None
    decide: Any = None
    explain: Any = None


TODAY = make_pdp({}, {"r": "true"}).bundle
COSTLY = msgspec.structs.replace(TODAY, default=Authority("default", (CostlyEngine(),), "any"))


def built(folder: Path, bundle: ActivePolicies = COSTLY, **cache: Any) -> Any:
    found = build_cache(settings_of({"cache": cache}, folder), Telemetry(), bundle)
    return found.cache if found else None


async def test_settings_choose_the_cache(tmp_path: Path) -> None:
    assert isinstance(built(tmp_path), InProcessCache)
    assert built(tmp_path, local_entries=0) is None
    assert isinstance(built(tmp_path, redis=LOCAL, redis_for="none"), InProcessCache)
    assert built(tmp_path, redis=LOCAL, redis_for="none", local_entries=0) is None
    assert isinstance(built(tmp_path, redis=LOCAL), TieredCache)
    assert isinstance(built(tmp_path, redis=LOCAL, local_entries=0), RedisCache)


async def test_by_default_this_process_keeps_the_verdicts_of_cedar(tmp_path: Path) -> None:
    assert built(tmp_path, TODAY) is None
    data = {
        "config": {"authorities": {"default": {"engines": ["cedar", "grants"]}}},
        "cedar": {"policies": "permit(principal, action, resource);"},
    }
    bundle = build_case_pdp(Case("cached", tmp_path, data), build_pdp, MemoryAudit())[0].bundle
    assert [each.name for each in served_engines(bundle, every_engine=False)] == ["cedar"]
    assert isinstance(built(tmp_path, bundle), InProcessCache)


async def test_only_all_takes_the_engines_of_today(tmp_path: Path) -> None:
    for given, every in ((None, False), ("auto", False), ("all", True), ("none", False)):
        cache = {"redis": LOCAL} | ({"redis_for": given} if given else {})
        found = build_cache(settings_of({"cache": cache}, tmp_path), Telemetry(), COSTLY)
        assert found
        assert found._every_engine is every


async def test_patience_with_costly_engines_ends_before_the_request(tmp_path: Path) -> None:
    settings = settings_of({"cache": {"timeout_ms": 5}, "limits": {"request_timeout_seconds": 8}}, tmp_path)
    found = build_cache(settings, Telemetry(), COSTLY)
    assert found
    assert (found.timeout, found.longest_wait(CostlyEngine())) == (0.005, 4)
    assert {found.longest_wait(engine) for engine in TODAY.default.engines} == {0.005}


async def test_nothing_is_built_without_an_engine_to_serve(tmp_path: Path) -> None:
    assert built(tmp_path, TODAY) is None
    for redis_for, is_served in (("none", False), ("auto", False), ("all", True)):
        found = built(tmp_path, TODAY, redis=LOCAL, redis_for=redis_for)
        assert (found is not None) is is_served


def test_wrong_authorities_are_an_error_without_an_engine_to_serve(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cache\.tls_ca"):
        built(tmp_path, TODAY, redis="rediss://127.0.0.1:1", tls_ca="missing.pem")


@pytest.mark.parametrize(
    "address", ["redis://10.0.0.1", "rediss://redis.example", "redis+sentinel://127.0.0.1:1,r2:1/m"]
)
def test_a_redis_elsewhere_needs_a_key(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match=r"`cache\.mac_key` is not set"):
        built(tmp_path, redis=address)
    assert built(tmp_path, redis=address, mac_key=KEY) is not None


def test_a_short_key_is_an_error_that_does_not_show_it(tmp_path: Path) -> None:
    for keys, words in (("canary", "shorter"), (f"{KEY}\ncanary", "shorter"), (f"{KEY}\n" * 3, "3 keys")):
        with pytest.raises(ConfigError, match=rf"cache\.mac_key.*{words}") as error:
            built(tmp_path, redis=LOCAL, mac_key=keys)
        assert "canary" not in str(error.value)


def test_without_a_key_services_of_this_user_share_one(tmp_path: Path) -> None:
    settings = settings_of({"cache": {"redis": LOCAL}}, tmp_path)
    assert seal_keys(settings) == seal_keys(settings) == machine_keys()
    (folder,) = [each for each in tmp_path.iterdir() if each.name.startswith("pdp-")]
    folder.chmod(0o777)
    assert seal_keys(settings) != seal_keys(settings), "a key of this process alone"


def test_secrets_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "address").write_text("redis://canary-user:canary-password@127.0.0.1:7000/2\n")
    (tmp_path / "password").write_text("other-canary\n")
    (tmp_path / "keys").write_text(f"{KEY}\n{KEY}2\n")
    cache = {"redis_file": "address", "password_file": "password", "mac_key_file": "keys"}
    settings = settings_of({"cache": cache}, tmp_path)
    assert settings.cache.redis == "redis://canary-user:canary-password@127.0.0.1:7000/2"
    assert settings.cache.password == "other-canary"
    assert seal_keys(settings) == MacKeys.parse(f"{KEY}\n{KEY}2")
    assert len(seal_keys(settings).accepted) == 2


@pytest.mark.parametrize("name", ["redis", "password", "mac_key"])
@pytest.mark.parametrize("fault", ["both", "missing", "empty", "number"])
def test_wrong_files_of_secrets(tmp_path: Path, name: str, fault: str) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "canary").write_text("canary" * 10)
    cache: dict[str, Any] = {f"{name}_file": {"missing": "none", "empty": "empty", "number": 1}.get(fault, "canary")}
    if fault == "both":
        cache[name] = "canary"
    with pytest.raises(ConfigError, match=rf"cache\.{name}_file") as error:
        settings_of({"cache": cache}, tmp_path)
    assert "canary" not in str(error.value).replace("`cache", "")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("redis", "http://h"), ("redis", ""), ("redis_for", "some"), ("ttl_seconds", 0), ("timeout_ms", 0),
        ("timeout_ms", 5000), ("local_entries", -1), ("unknown", 1), ("mac_key", ""), ("redis", 6379),
    ],
)  # fmt: skip
def test_wrong_values_are_errors(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match="cache"):
        settings_of({"cache": {key: value}}, tmp_path)
