"""`pdp config check`: every error with its place, each value with its origin, and nothing written."""

from __future__ import annotations

import json
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.service.commands import run_pdp

from pdp.cli.config.command import masked

pytestmark = pytest.mark.process

GOOD = """\
warehouses: {lake: {project: p}}
policies:
  rules: [a.properties]
store: {seed: world.yaml}
"""


def folder_with(folder: Path, config: str = GOOD, **texts: str) -> None:
    (folder / "pdp.yaml").write_text(config)
    (folder / "a.properties").write_text("nessie.server.authorization.rules.a=true\n")
    (folder / "world.yaml").write_text("objects: [warehouse:lake]\n")
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text)


def test_a_configuration_without_errors(tmp_path: Path) -> None:
    folder_with(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    ended = run_pdp("config", "check", cwd=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0 errors, 0 warnings\n", "")
    assert ended.notes.startswith(f"pdp: configuration: `{tmp_path / 'pdp.yaml'}`\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_every_error_has_its_place(tmp_path: Path) -> None:
    config = """\
warehouses: {lake: {}}
policies:
  rules: [a.properties, none/*.yaml]
  forbid: [f.yaml]
  row_access: [r.yaml, s.yaml]
server: {tls: {cert: c.pem, key: k.pem}}
store: {seed: world.yaml}
identity:
  providers:
    kc: {issuer: x, jwks: keys.json}
row_access:
  protected: [namespace:laek/s]
audit: {sinks: [{file: a.properties}]}
"""
    folder_with(
        tmp_path,
        config,
        f_yaml="rules:\n  a: op == 1 +\n  b: roel == 'x'\n",
        r_yaml="policies:\n- {id: p, table: laek.s.t, grantees: [allUsers], filter: x = 1}\n",
        s_yaml="masks: {}\n",
        world_yaml="objects:\n- warehouse:laek\n",
    )
    ended = run_pdp("config", "check", "--format", "json", cwd=tmp_path)
    assert ended.returncode == 1
    problems = json.loads(ended.stdout)
    assert {problem["severity"] for problem in problems} == {"error"}
    assert [
        (problem["place"].removeprefix(f"{tmp_path}/"), problem["message"].split(":")[0]) for problem in problems
    ] == [
        ("pdp.yaml:6:16", "`server.tls.cert`"),
        ("pdp.yaml:3:25", "`policies.rules`"),
        ("f.yaml:2:15", "rule `a`"),
        ("f.yaml:3:6", "rule `b`"),
        ("r.yaml:2:18", "policy `p`"),
        ("s.yaml:1:8", "expected `array`, got `object` - at `$.masks` (`policies.row_access`)"),
        ("pdp.yaml:12:15", "`row_access.protected.0`"),
        ("world.yaml:2:3", "objects[0]"),
        ("pdp.yaml:10:21", "`identity.providers.kc.jwks`"),
        ("pdp.yaml:13:18", "`audit.sinks.0.file`"),
    ]
    text = run_pdp("config", "check", cwd=tmp_path).stdout
    assert text.endswith("\n10 errors, 0 warnings\n")
    assert text.count("\n") == 11


@pytest.mark.parametrize(
    ("config", "place", "words"),
    [
        ("limts: {}\nlimits: {max_checks: 0}\n", "pdp.yaml:1:1", "unknown key `limts`, the nearest known is `limits`"),
        ("limts: {}\nlimits: {max_checks: 0}\n", "pdp.yaml:2:10", "`limits.max_checks`"),
        ("limits: [\n", "pdp.yaml:2:1", "not YAML"),
        ("server: {http: '0.0.0.0:1'}", "pdp.yaml:1:10", "not a loopback address"),
        ("audit: {hmac_key: x}", "pdp.yaml:1:9", "`audit.hmac_key`: string should have at least 16 characters"),
    ],
)
def test_settings_that_do_not_load(tmp_path: Path, config: str, place: str, words: str) -> None:
    folder_with(tmp_path, config)
    ended = run_pdp("config", "check", cwd=tmp_path)
    assert ended.returncode == 1
    assert any(place in line and words in line for line in ended.stdout.splitlines()), ended.stdout


def test_each_value_has_its_origin_and_no_password(tmp_path: Path) -> None:
    folder_with(tmp_path, url_txt="postgresql://pdp:canary@127.0.0.1:1/db?connect_timeout=1&password=bird\n")
    (tmp_path / "pdp.yaml").write_text("policies:\n  rules: [a.properties]\nstore: {url_file: url.txt}\n")
    with (tmp_path / "pdp.yaml").open("a") as config:
        config.write("audit: {hmac_key: canary-canary-canary}\n")
    ended = run_pdp(
        "config", "check", "--effective", "--set", "limits.max_checks=7", cwd=tmp_path,
        env={"PDP__SERVER__DRAIN_SECONDS": "3"},
    )  # fmt: skip
    assert ended.returncode == 1  # there is no database
    lines, file = ended.stdout.splitlines(), f"store.url_file {tmp_path}/url.txt"
    for line in (
        'policies.rules: ["a.properties"]  # pdp.yaml:2:3',
        "limits.max_checks: 7  # --set limits.max_checks",
        "server.drain_seconds: 3.0  # PDP__SERVER__DRAIN_SECONDS",
        "server.lame_duck_seconds: 2.0  # default",
        f'store.url: "postgresql://pdp:***@127.0.0.1:1/db?{"connect_timeout=1&password=***"}"  # {file}',
    ):
        assert line in lines, ended.stdout
    assert "canary" not in ended.stdout + ended.stderr
    assert "bird" not in ended.stdout + ended.stderr


def test_passwords_are_masked_wherever_an_address_has_them() -> None:
    assert masked("postgresql://u:p@ss@h/db") == "postgresql://u:***@h/db"
    assert masked("postgresql://h/db?user=u&password=p&x=1") == "postgresql://h/db?user=u&password=***&x=1"
    assert masked("sqlite:///a:b@c") == "sqlite:///a:b@c"
    assert masked(["x"]) == ["x"]


def test_a_database_is_read_and_not_changed(tmp_path: Path) -> None:
    folder_with(tmp_path)
    assert run_pdp("grants", "add", "user:a~b", "select", "table:lake/s/t", cwd=tmp_path).returncode == 0
    files = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.glob("pdp.db*")}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"server.http=127.0.0.1:{taken.getsockname()[1]}"
        ended = run_pdp("config", "check", "--set", address, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.glob("pdp.db*")} == files
    (tmp_path / "pdp.db").write_bytes(b"no database at all")
    ended = run_pdp("config", "check", cwd=tmp_path)
    assert (ended.returncode, "is no sound SQLite file" in ended.stdout) == (1, True)
    assert "pdp.yaml" not in ended.stdout or "(store.url)" in ended.stdout


def test_a_database_without_tables_is_a_new_one_and_that_of_another_program_is_none(tmp_path: Path) -> None:
    folder_with(tmp_path)
    (tmp_path / "pdp.db").write_bytes(b"")
    ended = run_pdp("config", "check", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "0 errors, 0 warnings\n")
    assert (tmp_path / "pdp.db").read_bytes() == b""
    with closing(sqlite3.connect(tmp_path / "pdp.db")) as link:
        link.execute("CREATE TABLE other (x)")
        link.commit()
    ended = run_pdp("config", "check", cwd=tmp_path)
    assert (ended.returncode, "belongs to another program" in ended.stdout) == (1, True)
