"""Bundles in a registry: a server with the endpoints of the distribution specification, and its lies."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import fetch
from support.generators.bundles import (
    ROOT,
    TAG,
    Answer,
    BundleServer,
    bundle_server,
    digest_of,
    layer_of,
    private_key,
    push,
    write_keys,
)
from support.oracles.converging import until
from support.service.serving import Process, serve_process, settings_of

from pdp.app.sources.client import FetchedBundle, SourceUnreachable
from pdp.app.sources.http import HttpFetcher, OciSource
from pdp.config.bundles.archive import build
from pdp.config.bundles.manifest import BundleRefused

CHECK = {"principal": "user:oidc~alice", "action": "READ_ENTITY_VALUE", "resource": "table:lake/s/t@main"}


def source_of(server: BundleServer, folder: Path, reference: str = ":prod", **more: Any) -> OciSource:
    place = server.url(f"/team/policies{reference}")
    settings = settings_of({"policies": {"source": {"oci": place, "keys": ["one.pub"], **more}}}, folder)
    source = settings.policies.source
    assert source
    return OciSource(HttpFetcher(settings, source), place, 1 << 20)


def test_the_layer_of_a_tag_or_digest_is_fetched_once(tmp_path: Path) -> None:
    with bundle_server() as server:
        first = push(server, b"one", {"mediaType": "text/plain", "digest": digest_of(b"x"), "size": 1})
        source = source_of(server, tmp_path)
        assert source.fetch("") == FetchedBundle(first, b"one")
        assert source.fetch(first) is None
        second = push(server, b"two", media="application/gzip")
        assert source.fetch(first) == FetchedBundle(second, b"two")
        assert source_of(server, tmp_path, f"@{first}").fetch("") == FetchedBundle(first, b"one")


def test_lies_of_a_registry_are_refused(tmp_path: Path) -> None:
    with bundle_server() as server:
        first = push(server, b"one")
        server.bodies[f"{ROOT}/blobs/{digest_of(b'one')}"] = b"two"
        with pytest.raises(BundleRefused, match="another layer"):
            source_of(server, tmp_path).fetch("")
        server.bodies[f"{ROOT}/manifests/{first}"] = b"{}"
        with pytest.raises(BundleRefused, match="another artefact"):
            source_of(server, tmp_path, f"@{first}").fetch("")
        push(server, b"one", layer_of(b"two"))
        with pytest.raises(BundleRefused, match="not one layer"):
            source_of(server, tmp_path).fetch("")
        large, missing = {**layer_of(b"x"), "size": 1 << 40}, {**layer_of(b"x"), "digest": "sha256:../../x"}
        for layer in (large, missing, {"digest": 1}):
            server.bodies[TAG] = json.dumps({"layers": [layer]}).encode()
            with pytest.raises(BundleRefused):
                source_of(server, tmp_path).fetch("")
        server.bodies[TAG] = b"[" * 100_000
        with pytest.raises(BundleRefused):
            source_of(server, tmp_path).fetch("")
        del server.bodies[TAG]
        with pytest.raises(SourceUnreachable, match="404"):
            source_of(server, tmp_path).fetch("")


def test_the_server_of_tokens_gets_the_password_and_no_other_host_does(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("canary\n")
    basic = "Basic " + base64.b64encode(b"bot:canary").decode()

    def guard(path: str, headers: dict[str, str]) -> Answer | None:
        if path.startswith("/token"):
            right = headers.get("authorization") == basic and "scope=repository%3Ateam%2Fpolicies%3Apull" in path
            return (200, {}, b'{"token": "abc"}') if right else (401, {}, b"")
        if headers.get("authorization") == "Bearer abc":
            return None
        challenge = f'Bearer realm="{realm}",service="r",scope="repository:team/policies:pull"'
        return 401, {"WWW-Authenticate": challenge}, b""

    with bundle_server() as server, bundle_server() as other:
        push(server, b"one")
        server.guard = guard
        options = {"username": "bot", "token_file": "password"}
        realm = server.url("/token?account=x")
        fetched = source_of(server, tmp_path, **options).fetch("")
        assert fetched is not None
        assert fetched.archive == b"one"
        realm = other.url("/token")
        with pytest.raises(BundleRefused, match="another host"):
            source_of(server, tmp_path, **options).fetch("")
        assert other.requests == []
        blob = f"{ROOT}/blobs/{digest_of(b'one')}"
        server.guard = lambda path, _: (307, {"Location": other.url()}, b"") if path == blob else None
        with pytest.raises(BundleRefused, match="another host"):
            source_of(server, tmp_path, **options).fetch("")
        assert other.requests == []


def allowed(process: Process) -> bool:
    answer = fetch(process.url("/v1/check"), json.dumps({"checks": [CHECK]}).encode()).json()
    return bool(answer["decisions"][0]["allowed"])


@pytest.mark.process
def test_a_service_follows_a_tag(tmp_path: Path) -> None:
    def bundle_of(user: str, number: int) -> bytes:
        return build({"a.yaml": f"rules: {{a: role=='{user}'}}".encode()}, number, "", private_key())

    write_keys(tmp_path)
    with bundle_server() as server:
        source = {"oci": server.url("/team/policies:prod"), "keys": ["one.pub"], "poll_seconds": 0.1}
        policies = {"rules": ["*.yaml"], "source": source, "refresh_seconds": 0.1}
        (tmp_path / "pdp.yaml").write_text(json.dumps({"policies": policies, "store": {"url": "sqlite:///pdp.db"}}))
        push(server, bundle_of("alice", 1))
        with serve_process(tmp_path) as process:
            assert allowed(process)
            push(server, bundle_of("bob", 2))
            until(lambda: not allowed(process))
            push(server, bundle_of("alice", 1))
            until(lambda: "has number 1, and 2 was in use" in fetch(process.url("/health/ready", "diagnostics")).text)
            assert not allowed(process)
            assert process.terminate() == 0
