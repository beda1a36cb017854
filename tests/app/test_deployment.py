"""The image's command with the manifest's user, mounts, rights and limits, as processes on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.clients.http_client import fetch
from support.oracles.audit_files import all_records
from support.oracles.containers import ADDRESS, Pod, pod_of
from support.service.deployment import DEPLOY, memory_bytes, probe_url, read_image, read_manifest
from support.untested import not_tested

pytestmark = [pytest.mark.process, pytest.mark.waits]

ORDERS = {"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:tpch/tiny/orders"}
PATIENCE = 60


def status(url: str) -> int:
    """Return the status of an answer; 0 without one."""
    try:
        return fetch(url, timeout=5).status
    except OSError:
        return 0


def is_allowed(**changed: str) -> bool:
    answer = fetch("http://127.0.0.1:8181/v1/check", {"checks": [{**ORDERS, **changed}]}, timeout=10)
    allowed: bool = answer.json()["decisions"][0]["allowed"]
    return allowed


def await_ready(pod: Pod, process: subprocess.Popen[bytes]) -> None:
    """Ask the readiness probe from outside of the pod until it is green."""
    url = probe_url(pod.manifest.container("pdp"), "readinessProbe", ADDRESS)
    deadline = time.monotonic() + PATIENCE
    while status(url) != 200:
        assert process.poll() is None, pod.log("pdp")
        assert time.monotonic() < deadline, pod.log("pdp")
        time.sleep(0.1)


def resident_bytes(process: subprocess.Popen[bytes]) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def written_command() -> list[str]:
    """Return the command after `kubectl exec ... --` in the manifest's comment."""
    found = re.search(
        r"kubectl exec deploy/trino-coordinator -c pdp -- \\\n#\s+(.*)", (DEPLOY / "sidecar.yaml").read_text()
    )
    assert found
    return found[1].split()


def stop(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(read_manifest().pod["terminationGracePeriodSeconds"])


def test_the_pod_gets_ready_within_its_limits_and_keeps_its_state(tmp_path: Path) -> None:
    with pod_of(read_manifest(), read_image(), tmp_path) as pod:
        container = pod.manifest.container("pdp")
        with pod.running("pdp") as process:
            await_ready(pod, process)
            assert status(probe_url(container, "livenessProbe", ADDRESS)) == 200
            assert status(f"http://{ADDRESS}:8181/v1/check") == 0, "decisions leave the pod"
            assert is_allowed()
            assert not is_allowed(principal="user:oidc~Bob")
            changed = pod.execute("pdp", *written_command())
            assert changed.returncode == 0, changed.stderr
            assert _in_time(lambda: is_allowed(principal="user:oidc~Bob"))
            assert resident_bytes(process) < memory_bytes(container["resources"]["requests"]["memory"])
            assert stop(process) == 0, pod.log("pdp")
        with pod.running("pdp") as process:
            await_ready(pod, process)
            assert is_allowed(principal="user:oidc~Bob"), "a grant was lost by a restart"
        records = all_records(tmp_path / "volumes" / "state")
        assert {"started", "stopped"} <= {record.get("what") for record in records}


def _in_time(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def test_the_image_alone_serves_a_mounted_configuration_and_its_health_check_costs_nothing(tmp_path: Path) -> None:
    image = read_image()
    with pod_of(read_manifest(), image, tmp_path) as pod:
        assert pod.execute("pdp", *image.healthcheck).returncode != 0
        with pod.running("pdp", image.command) as process:
            await_ready(pod, process)
            assert pod.execute("pdp", *image.healthcheck).returncode == 0
            before = os.times()
            subprocess.run(image.healthcheck, check=True, timeout=10)
            after = os.times()
            seconds = sum(after[2:4]) - sum(before[2:4])
            assert seconds < 0.1, "a start of Python costs more"
            process.send_signal(signal.SIGTERM)
            assert _in_time(lambda: pod.execute("pdp", *image.healthcheck).returncode != 0), "ready while it stops"


@pytest.mark.parametrize(
    ("written", "wrong", "said"),
    [
        ("sqlite:////var/lib/pdp/pdp.db", "sqlite:///pdp.db", "pdp.db` cannot be opened"),
        ("{name: state, mountPath: /var/lib/pdp}", "{name: state, mountPath: /mnt}", "read-only"),
        ("memory: 512Mi", "memory: 24Mi", ""),
        ("mountPath: /etc/pdp", "mountPath: /etc/pdb", "/etc/pdp/pdp.yaml"),
    ],
)
def test_a_wrong_manifest_does_not_start(tmp_path: Path, written: str, wrong: str, said: str) -> None:
    text = (DEPLOY / "sidecar.yaml").read_text()
    assert written in text
    with (
        pod_of(read_manifest(text.replace(written, wrong)), read_image(), tmp_path) as pod,
        pod.running("pdp") as process,
    ):
        if wrong.startswith("memory") and not any(Path("/sys/fs/cgroup").rglob(f"pdp-tests-{os.getpid()}-*")):
            not_tested("with a limit of memory", "no memory cgroup can be made", "")
        assert process.wait(PATIENCE) != 0
        assert said in pod.log("pdp").lower(), pod.log("pdp")


def test_the_access_control_of_trino_is_what_the_service_prints(tmp_path: Path) -> None:
    manifest = read_manifest()
    with pod_of(manifest, read_image(), tmp_path) as pod, pod.running("pdp") as process:
        await_ready(pod, process)
        printed = pod.execute("pdp", "pdp", "trino-config", "-c", "/etc/pdp/pdp.yaml")
        assert printed.returncode == 0, printed.stderr
        lines = [line for line in printed.stdout.splitlines() if line and not line.startswith("#")]
        assert manifest.mounted_files("trino", "/etc/trino")["access-control.properties"].splitlines() == lines
