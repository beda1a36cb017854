"""`pdp bundle`: what is built and signed is verified, unpacked and tested; bad input ends with one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.generators.bundles import write_keys
from support.service.commands import run_pdp

pytestmark = pytest.mark.process


def write_policies(folder: Path) -> None:
    (folder / "rules").mkdir(parents=True)
    (folder / "rules" / "a.yaml").write_text("rules: {a: role=='alice'}")


def test_a_bundle_is_built_signed_verified_and_unpacked(tmp_path: Path) -> None:
    write_policies(tmp_path / "policies")
    for name, kind in (("one", "ed25519"), ("two", "ecdsa")):
        write_keys(tmp_path, name, kind)
    built = run_pdp("bundle", "build", "policies", "-o", "b.tar.gz", "--sequence", "7", "--revision", "r", cwd=tmp_path)
    assert (built.returncode, built.stdout) == (0, "b.tar.gz: 1 file, number 7, not signed\n")
    assert run_pdp("bundle", "verify", "b.tar.gz", "--key", "one.pub", cwd=tmp_path).returncode == 2
    for name in ("one", "two"):
        assert run_pdp("bundle", "sign", "b.tar.gz", "--key", f"{name}.key", cwd=tmp_path).returncode == 0
    for name in ("one", "two"):
        options = ("--key", f"{name}.pub", "--unpack", f"out-{name}", "--format", "json")
        verified = run_pdp("bundle", "verify", "b.tar.gz", *options, cwd=tmp_path)
        found = json.loads(verified.stdout)
        assert (found["sequence"], found["revision"], found["files"]) == (7, "r", ["rules/a.yaml"])
        assert (tmp_path / f"out-{name}" / "rules" / "a.yaml").read_text() == "rules: {a: role=='alice'}"
    again = run_pdp("bundle", "verify", "b.tar.gz", "--key", "one.pub", "--unpack", "out-one", cwd=tmp_path)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)


def test_commands_name_the_way_to_policies_of_a_source(tmp_path: Path) -> None:
    write_policies(tmp_path / "policies")
    source = {"http": "https://bundles.example/b.tar.gz", "keys": ["one.pub"]}
    config = {"policies": {"rules": ["rules/*.yaml"], "source": source}}
    (tmp_path / "pdp.yaml").write_text(json.dumps(config))
    refused = run_pdp("lint", cwd=tmp_path)
    assert refused.returncode == 1
    assert "pdp bundle verify --unpack" in refused.stderr + refused.stdout
    missing = run_pdp("config", "check", cwd=tmp_path)
    assert (missing.returncode, "cannot read the key" in missing.stdout) == (1, True)
    write_keys(tmp_path)
    checked = run_pdp("config", "check", cwd=tmp_path)
    assert (checked.returncode, "are not checked here" in checked.stdout) == (0, True)
    local = ("--set", "policies.source=null", "--set", "policies.folder=policies")
    assert run_pdp("config", "check", *local, cwd=tmp_path).returncode == 0
    variables = {"PDP__POLICIES__SOURCE": "null", "PDP__POLICIES__FOLDER": "policies"}
    assert run_pdp("lint", cwd=tmp_path, env=variables).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("build", "missing", "-o", "b"), "has no files"),
        (("build", "policies", "-o", "b", "--key", "missing.key"), "cannot read the key"),
        (("build", "policies", "-o", "b", "--key", "policies/rules/a.yaml"), "no usable key"),
        (("build", "policies", "-o", "missing/b"), "cannot write"),
        (("verify", "missing", "--unsigned"), "cannot read"),
        (("verify", "policies/rules/a.yaml", "--unsigned"), "the archive is damaged"),
        (("verify", "policies/rules/a.yaml"), "give --key, or --unsigned"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple[str, ...], cause: str) -> None:
    write_policies(tmp_path / "policies")
    done = run_pdp("bundle", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n"), cause in done.stderr) == (2, 1, True), done.stderr
