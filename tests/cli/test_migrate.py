"""`pdp migrate`: files, report, exit codes, and the policy tests that it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.paths import RECORDED
from support.service.commands import run_pdp

pytestmark = pytest.mark.process

MANUAL = RECORDED / "nessie" / "manual-as-printed.properties"
RULE = "nessie.server.authorization.rules.a=op=='VIEW_REFERENCE' && ref=='main'\n"


def test_the_written_files_work(tmp_path: Path) -> None:
    ended = run_pdp("migrate", "nessie", str(MANUAL), "--out", "new", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "7 translated, 4 look at, 3 left, 0 ignored\n9 policy tests passed\nwrote new/rules.yaml" in ended.stdout
    assert run_pdp("test", "new/tests.yaml", cwd=tmp_path).returncode == 0
    assert run_pdp("lint", "-c", "new/pdp.yaml", cwd=tmp_path).returncode == 0
    check = {"principal": "user:oidc~Alice", "action": "READ_ENTITY_VALUE", "resource": "content:nessie/Foo@prod"}
    decided = run_pdp("check", "-c", "new/pdp.yaml", stdin=json.dumps(check) + "\n", cwd=tmp_path)
    assert json.loads(decided.stdout)["allowed"] is True


def test_nothing_left_exits_with_0(tmp_path: Path) -> None:
    (tmp_path / "application.properties").write_text(RULE)
    ended = run_pdp("migrate", "nessie", "application.properties", "--output", "json", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    report = json.loads(ended.stdout)
    assert (report["counts"], report["files"]) == ({"done": 1, "note": 0, "left": 0, "ignored": 0}, [])
    assert report["parts"][0]["subject"] == "rule `a`"
    assert [path.name for path in tmp_path.iterdir()] == ["application.properties"]


def test_a_part_that_is_not_given_exits_with_1(tmp_path: Path) -> None:
    rules = {"NESSIE_SERVER_AUTHORIZATION_RULES_READ": "op=='READ_ENTITY_VALUE'"}
    service = {"environment": rules, "volumes": ["./conf:/deployments/config"]}
    (tmp_path / "compose.yaml").write_text(json.dumps({"services": {"nessie": service}}))
    ended = run_pdp("migrate", "nessie", "compose.yaml", "--out", "new", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert (
        "left        compose.yaml:1:124  `./conf`: may hold settings, and was not given: give it, too" in ended.stdout
    )
    assert "left-parts: 'false // VIEW_REFERENCE" in (tmp_path / "new" / "rules.yaml").read_text()


def test_files_are_overwritten_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text(RULE)
    arguments = ("migrate", "nessie", "a.properties", "--out", "new")
    assert run_pdp(*arguments, cwd=tmp_path).returncode == 0
    again = run_pdp(*arguments, cwd=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == "pdp: `new/rules.yaml` exists: give `--force` to overwrite, or another folder\n"
    assert run_pdp(*arguments, "--force", cwd=tmp_path).returncode == 0


def test_a_trusted_engine_of_lakekeeper_is_trusted_here(tmp_path: Path) -> None:
    """Pasted from the manual: afterwards an untrusted commit of the owner property is refused."""
    prefix = "LAKEKEEPER__TRUSTED_ENGINES__TRINO__"
    variables = ["TYPE=trino", "OWNER_PROPERTY=trino.run-as-owner", "IDENTITIES__OIDC__AUDIENCES=[trino]"]
    (tmp_path / "lakekeeper.env").write_text("".join(f"{prefix}{variable}\n" for variable in variables))
    ended = run_pdp("migrate", "lakekeeper", "lakekeeper.env", "--out", "new", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "5 policy tests passed" in ended.stdout
    tests = (tmp_path / "new" / "tests.yaml").read_text()
    assert tests.count("ProtectedPropertyModification") == 2
    assert run_pdp("test", "new/tests.yaml", cwd=tmp_path).returncode == 0


def test_tuples_of_openfga_become_grants(tmp_path: Path) -> None:
    store = Path(__file__).parents[1] / "offline" / "migration" / "lakekeeper-4.9" / "store.fga.yaml"
    arguments = ("migrate", "openfga", str(store), "--tests", "20", "--out", "new")
    refused = run_pdp(*arguments, cwd=tmp_path)
    assert (refused.returncode, refused.stderr, list(tmp_path.iterdir())) == (1, "", [])
    assert "`can_accept_moved_namespace` on `warehouse`: OpenFGA says no, pdp yes" in refused.stdout
    assert refused.stdout.endswith(
        "nothing written: the new files would allow more than the old ones, unless you give "
        "`--accept-wider can_accept_moved_namespace --accept-wider newer-actions`\n"
    )
    report = json.loads(run_pdp(*arguments, "--format", "json", cwd=tmp_path).stdout)
    assert (report["files"], list(tmp_path.iterdir())) == ([], [])
    ended = run_pdp(
        *arguments, "--accept-wider", "can_accept_moved_namespace", "--accept-wider", "newer-actions", cwd=tmp_path
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "look at     `can_accept_moved_namespace` on `warehouse`: OpenFGA says no, pdp yes" in ended.stdout
    assert run_pdp("test", "new/tests.jsonl", cwd=tmp_path).returncode == 0
    check = {
        "principal": "user:oidc~warehouse_1_owner",
        "action": "create_namespace",
        "resource": "warehouse:warehouse_1",
    }
    decided = run_pdp("check", "-c", "new/pdp.yaml", stdin=json.dumps(check) + "\n", cwd=tmp_path)
    assert json.loads(decided.stdout)["allowed"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nessie"], "nothing to migrate: give files, or `--env-file`"),
        (["nessie", "none.properties"], "cannot read"),
        (["nessie", "a.properties", "--env-file", "none.env"], "cannot read `none.env`"),
        (["nessie", "a.properties", "--out", "a.properties/x"], "cannot write"),
    ],
)
def test_bad_input_exits_with_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "a.properties").write_text(RULE)
    ended = run_pdp("migrate", *arguments, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1
