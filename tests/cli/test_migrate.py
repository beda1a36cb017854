"""`pdp migrate`: files, report, exit codes, and the policy tests that it writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.paths import RECORDED
from support.service.commands import run_pdp

from pdp.cli.migrate import report_line, shown_part
from pdp.offline.migration.lakekeeper import migrate_lakekeeper
from pdp.offline.migration.nessie import migrate_nessie

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


NAME = "NESSIE_SERVER_AUTHORIZATION_RULES_A"
RULES = {NAME: "op=='READ_ENTITY_VALUE'", "LAKEKEEPER__BASE_URI": "http://x"}
SECRET = "hunter2"
WITH_SECRETS = {
    "address": "https://u:hunter2@h/more.{}",
    "address with a mark": "https://u:a`hunter2@h/more.{}",
    "query": "https://h/more.{}?sig=hunter2",
    "parameter": "s3://h/more.{}?x=1&token=hunter2",
    "without a scheme": "u:hunter2@h/more.{}",
    "fragment": "https://h/more.{}#hunter2",
    "query and fragment": "https://tok@h/x.git?hunter2#hunter2:more.{}",
    "user alone": "https://hunter2@h/more.{}",
    "user alone, without a scheme": "hunter2@github.com/x/more.{}",
    "fragment without a scheme": "github.com/x/y.git#hunter2/more.{}",
    "of ssh": "hunter2@github.com:x/y.git#hunter2:more.{}",
}
"""Spellings of a secret in the place of a part. `{}` stands for a suffix."""
PLACES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "include": ("compose.yaml", lambda text: {"include": [text], "services": {"a": {"environment": RULES}}}),
    "env file": ("compose.yaml", lambda text: compose(env_file=text)),
    "image": ("compose.yaml", lambda text: compose(image=text)),
    "build": ("compose.yaml", lambda text: compose(build=text)),
    "listed": ("compose.yaml", lambda text: compose(environment=[
        *(f"{name}={value}" for name, value in RULES.items()), f"LAKEKEEPER__PG_PASSWORD: {text}"])),
    "copied": ("Dockerfile", lambda text: f"FROM projectnessie/nessie\nENV {NAME}='true'\nADD {text} /deployments/x\n"),
    "podman": ("a.container", lambda text: f'[Container]\nEnvironment="{NAME}=true"\nPodmanArgs=--env DB_PASSWORD={text}\n'),
    "credential": ("a.service", lambda text: f'[Service]\nEnvironment="{NAME}=true"\nSetCredential=pg:{text}\n'),
    "kustomize": ("kustomization.yaml", lambda text: {
        "kind": "Kustomization", "resources": [text], "helmCharts": [{"name": "x", "valuesFile": text}],
        "configMapGenerator": [{"name": "x", "envs": [text], "literals": [f"{NAME}=true"]}]}),
    "argo": ("argo.yaml", lambda text: {"kind": "Application", "spec": {"source": {"helm": {
        "valueFiles": [text], "valuesObject": {"extraEnv": [{"name": NAME, "value": "true"}]}}}}}),
    "locations": ("compose.yaml", lambda text: compose(environment={**RULES, "QUARKUS_CONFIG_LOCATIONS": text})),
}  # fmt: skip


def compose(**service: Any) -> dict[str, Any]:
    return {"services": {"server": {"environment": RULES, **service}}}


@pytest.mark.parametrize("place", PLACES)
def test_reports_show_no_secret_of_the_old_files(tmp_path: Path, place: str) -> None:
    name, make = PLACES[place]
    for number, (spelling, text) in enumerate(WITH_SECRETS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        given = make(text.format("env" if place in ("env file", "kustomize") else "yaml"))
        (folder / name).write_text(given if isinstance(given, str) else json.dumps(given))
        for program in (migrate_nessie, migrate_lakekeeper):
            parts = program([folder / name]).parts
            report = [*map(report_line, parts), str(list(map(shown_part, parts)))]
            assert len(report) > 1
            assert SECRET not in "\n".join(report).lower(), (spelling, report)


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_printed_report_masks_secrets_and_names_the_parts(tmp_path: Path, form: str) -> None:
    given = compose(env_file="https://u:hunter2@h/more.env", build="https://h/x.git?token=hunter2")
    (tmp_path / "compose.yaml").write_text(json.dumps(given))
    ended = run_pdp("migrate", "nessie", "compose.yaml", "--format", form, "--out", "new", cwd=tmp_path)
    texts = [ended.stdout, ended.stderr, *(file.read_text() for file in (tmp_path / "new").iterdir())]
    assert ended.returncode == 1
    assert all(SECRET not in text for text in texts)
    assert "`https://***@h/more.env`" in ended.stdout


@pytest.mark.parametrize("uri", [
    "https://kc.example/realms/x?hunter2#hunter2", "http://kc.example/realms/x?token=hunter2", "https://kc.example/x#hunter2",
    "http://hunter2@kc.example/realms/x", "http://kc.example/realms/x#hunter2",
])  # fmt: skip
def test_a_report_shows_an_issuer_without_the_rest_of_the_address(tmp_path: Path, uri: str) -> None:
    text = f"LAKEKEEPER__OPENID_PROVIDER_URI={uri}\nLAKEKEEPER__OPENID_AUDIENCE=lake\n"
    (tmp_path / "a.env").write_text(text)
    lines = list(map(report_line, migrate_lakekeeper([tmp_path / "a.env"]).parts))
    assert lines
    assert SECRET not in "\n".join(lines)
