"""Services with policies from a server of bundles: new bundles, refused ones, a silent server, restarts."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.clients.http_client import fetch
from support.generators.bundles import PATH, BundleServer, bundle_of, bundle_server, write_keys
from support.oracles.converging import until
from support.service.commands import run_pdp
from support.service.serving import Process, serve_process

pytestmark = [pytest.mark.process, pytest.mark.waits]

CHECK = {"principal": "user:oidc~alice", "action": "READ_ENTITY_VALUE", "resource": "table:lake/s/t@main"}


def configure(folder: Path, server: BundleServer, **source: Any) -> None:
    write_keys(folder)
    place = {"http": server.url(), "keys": ["one.pub"], "poll_seconds": 0.1, "timeout_seconds": 2, **source}
    config = {
        "policies": {"rules": ["rules/*.yaml"], "refresh_seconds": 0.1, "source": place},
        "store": {"url": "sqlite:///pdp.db"},
    }
    (folder / "pdp.yaml").write_text(json.dumps(config))


@contextmanager
def serving(folder: Path, workers: int = 1) -> Iterator[Process]:
    with serve_process(folder, "--workers", str(workers)) as process:
        yield process
        assert process.terminate() == 0
        assert "Traceback" not in process.stderr()


def forbid(folder: Path, user: str) -> None:
    new = folder / "forbid.new"
    new.write_text(json.dumps({"rules": {"f": f"role=='{user}'"}}))
    new.replace(folder / "forbid.yaml")


def test_local_files_count_beside_a_silent_server(tmp_path: Path) -> None:
    with bundle_server() as server:
        server.bodies[PATH] = bundle_of("alice", 1)
        configure(tmp_path, server)
        config = json.loads((tmp_path / "pdp.yaml").read_text())
        config["policies"]["forbid"] = [str(tmp_path / "forbid.yaml")]
        (tmp_path / "pdp.yaml").write_text(json.dumps(config))
        forbid(tmp_path, "nobody")
        with serving(tmp_path) as process:
            assert allowed(process)
            silence = threading.Event()

            def wait(path: str, headers: dict[str, str]) -> None:
                silence.wait(60)

            server.guard = wait
            until(lambda: "does not answer" in fetch(process.url("/health/ready", "diagnostics")).text)
            forbid(tmp_path, "alice")
            until(lambda: not allowed(process))
            forbid(tmp_path, "nobody")
            until(lambda: allowed(process))
            server.bodies[PATH] = bundle_of("bob", 2)
            silence.set()
            until(lambda: not allowed(process))


def allowed(process: Process) -> bool:
    answers = [fetch(process.url("/v1/check"), json.dumps({"checks": [CHECK]}).encode()) for _ in range(4)]
    found = {answer.json()["decisions"][0]["allowed"] for answer in answers}
    return found == {True}


def readiness(process: Process) -> tuple[int, str, str]:
    answer = fetch(process.url("/health/ready", "diagnostics"))
    body = answer.json()
    return answer.status, "".join(body.get("reasons", ())), body.get("details", {}).get("policies", "")


def metric(process: Process, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", fetch(process.url("/metrics", "diagnostics")).text, re.MULTILINE)
    assert found
    return float(found[1])


@pytest.mark.parametrize("workers", [1, 2])
def test_new_bundles_serve_and_refused_ones_change_nothing(tmp_path: Path, workers: int) -> None:
    with bundle_server() as server:
        server.bodies[PATH] = bundle_of("alice", 5)
        configure(tmp_path, server)
        with serving(tmp_path, workers) as process:
            assert allowed(process)
            server.bodies[PATH] = bundle_of("bob", 6)
            until(lambda: not allowed(process))
            server.bodies[PATH] = bundle_of("alice", 7)
            until(lambda: allowed(process))
            bad = {
                "has number 6, and 7 was in use already": bundle_of("bob", 6),
                "another bundle with number 7": bundle_of("bob", 7),
                "no signature of the bundle belongs to a configured key": bundle_of("bob", 8, "other"),
                "has no signature": bundle_of("bob", 8, None),
                "the archive is damaged": bundle_of("bob", 8)[:-20],
                "rules/b.yaml:": bundle_of("bob", 8, more=b'{"rules": {"b": "role in ["}}'),
                "the archive is damaged: BadGzipFile": b"<html>",
            }
            for cause, content in bad.items():
                server.bodies[PATH] = content
                until(lambda cause=cause: cause in readiness(process)[1])  # type: ignore[misc]
                assert readiness(process)[0] == 503
                assert allowed(process)
            count = len([each for each in server.requests if each[2] == 200])
            until(lambda: len(server.requests) > count + 12)
            assert len([each for each in server.requests if each[2] == 200]) == count, "refused bundles come once"
            server.bodies[PATH] = bundle_of("bob", 8)
            until(lambda: not allowed(process) and readiness(process)[0] == 200)
            assert str(tmp_path) not in readiness(process)[1]


def test_a_restart_works_without_the_server_and_knows_the_newest_number(tmp_path: Path) -> None:
    with bundle_server() as server:
        server.bodies[PATH] = bundle_of("alice", 5)
        configure(tmp_path, server)
        with serving(tmp_path) as process:
            assert allowed(process)
            assert metric(process, "pdp_policies_source_silent") == 0
            server.answers[PATH] = (500, {}, b"")
            until(lambda: "status 500" in readiness(process)[2])
            assert readiness(process)[0] == 200
            assert metric(process, "pdp_policies_source_silent") == 1
        with serving(tmp_path, 2) as process:  # the server fails still
            assert allowed(process)
            assert (readiness(process)[0], "status 500" in readiness(process)[2]) == (200, True)
            assert metric(process, "pdp_policies_source_age_seconds") > 0
            del server.answers[PATH]
            until(lambda: not readiness(process)[2])
        server.bodies[PATH] = bundle_of("bob", 4)
        with serving(tmp_path) as process:  # an older bundle at the start: the last good one serves, and degraded
            assert allowed(process)
            assert "has number 4, and 5 was in use already" in readiness(process)[1]
            server.bodies[PATH] = bundle_of("bob", 6)
            until(lambda: not allowed(process) and readiness(process)[0] == 200)
    kept = [file.name for file in (tmp_path / "policy-bundles").iterdir()]
    assert sorted(name[:7] for name in kept if not name.startswith("tree-")) == ["bundle-", "kept.js"]


def refused_start(folder: Path) -> str:
    done = run_pdp("serve", "--set", "server.http=127.0.0.1:0", "--set", "server.grpc=127.0.0.1:0",
                   "--set", "server.diagnostics=127.0.0.1:0", cwd=folder)  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_start_needs_a_good_bundle(tmp_path: Path) -> None:
    with bundle_server() as server:
        configure(tmp_path, server)
        assert "the server answers with status 404" in refused_start(tmp_path)
        server.bodies[PATH] = bundle_of("alice", 1, "other")
        assert "no signature of the bundle" in refused_start(tmp_path)
        server.bodies[PATH] = bundle_of("alice", 1)
        with serving(tmp_path):
            pass
        server.bodies.clear()
        [kept] = (tmp_path / "policy-bundles").glob("bundle-*")
        kept.write_bytes(bundle_of("mallory", 9, "other"))
        assert "no signature of the bundle" in refused_start(tmp_path)
        kept.write_bytes(bundle_of("mallory", 9))
        assert "the bundle on disk is not the one that was accepted" in refused_start(tmp_path)


def test_tokens_go_to_the_server_alone_and_redirects_to_known_hosts(tmp_path: Path) -> None:
    secret = "canary-of-a-token"
    (tmp_path / "token").write_text(secret + "\n")
    with bundle_server() as server, bundle_server() as other:
        other.bodies[PATH] = bundle_of("bob", 9)
        server.bodies["/new.tar.gz"] = bundle_of("alice", 1)
        server.answers[PATH] = (302, {"Location": "/new.tar.gz"}, b"")
        configure(tmp_path, server, token_file="token")
        with serving(tmp_path) as process:
            assert allowed(process)
            server.answers[PATH] = (307, {"Location": other.url()}, b"")
            until(lambda: "another host" in readiness(process)[1])
            server.answers[PATH] = (302, {"Location": PATH}, b"")
            until(lambda: "redirects more than" in readiness(process)[1])
            (tmp_path / "token").write_text("second-canary")
            until(lambda: any("second-canary" in headers["authorization"] for _, headers, _ in server.requests))
            assert allowed(process)
            page = fetch(process.url("/health/ready", "diagnostics")).text + process.stderr()
            assert "canary" not in page + fetch(process.url("/metrics", "diagnostics")).text
        assert other.requests == []
        assert all(headers["authorization"].startswith("Bearer ") for _, headers, _ in server.requests)


def test_large_answers_and_other_keys(tmp_path: Path) -> None:
    with bundle_server() as server:
        server.tags = False
        server.bodies[PATH] = bundle_of("alice", 1)
        configure(tmp_path, server, max_mib=1)
        write_keys(tmp_path, "two")
        with serving(tmp_path) as process:
            server.bodies[PATH] = os.urandom(2 << 20)
            until(lambda: "more than 1048576 bytes" in readiness(process)[1])
            server.bodies[PATH] = bundle_of("bob", 2, "two")
            until(lambda: "no signature of the bundle" in readiness(process)[1])
            (tmp_path / "one.pub").write_bytes((tmp_path / "two.pub").read_bytes())  # a new key counts at once
            until(lambda: not allowed(process) and readiness(process)[0] == 200)
            process.process.send_signal(signal.SIGHUP)
            until(lambda: metric(process, 'pdp_policies_reloads_total{outcome="unchanged"}') >= 1)
            assert readiness(process)[0] == 200
