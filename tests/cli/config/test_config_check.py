"""`pdp config check`: every error with its place, each value with its origin, and nothing written."""

from __future__ import annotations

import json
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.service.commands import run_pdp

from pdp.cli.config.command import masked, shown

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


def test_a_provider_of_bare_subjects_that_nobody_has_is_named(tmp_path: Path) -> None:
    """A forbid `role == 'alice'` binds no user of another provider."""
    providers = "identity: {providers: {keycloak: {issuer: 'https://k.example', audiences: [a], jwks: jwks.json}}}\n"
    (tmp_path / "jwks.json").write_text('{"keys": []}')
    (tmp_path / "pdp.yaml").write_text(providers)
    said = run_pdp("config", "check", cwd=tmp_path).stdout
    assert "warning" in said
    assert "`role` of a user is `keycloak~<subject>`; write `cel_provider: keycloak`" in said
    (tmp_path / "pdp.yaml").write_text(providers.replace("{providers", "{cel_provider: keycloak, providers"))
    assert "cel_provider" not in run_pdp("config", "check", cwd=tmp_path).stdout


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
    oidc: {issuer: x, jwks: keys.json}
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
        ("pdp.yaml:10:23", "`identity.providers.oidc.jwks`"),
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
    lines, file = ended.stdout.splitlines(), "store.url_file"
    for line in (
        'policies.rules: ["a.properties"]  # pdp.yaml:2:3',
        "limits.max_checks: 7  # --set limits.max_checks",
        "server.drain_seconds: 3.0  # PDP__SERVER__DRAIN_SECONDS",
        "server.lame_duck_seconds: 2.0  # default",
        f'store.url: "postgresql://***@127.0.0.1:1/db?{"connect_timeout=1&password=***"}"  # {file}',
    ):
        assert line in lines, ended.stdout
    assert "canary" not in ended.stdout + ended.stderr
    assert "bird" not in ended.stdout + ended.stderr


def test_passwords_are_masked_wherever_an_address_has_them() -> None:
    assert masked("postgresql://u:p@ss@h/db") == "postgresql://***@h/db"
    assert masked("postgresql://h/db?user=u&password=p&x=1") == "postgresql://h/db?user=u&password=***&x=1"
    assert masked("https://h/a#p?x") == "https://h/a#***"
    assert masked("sqlite:///a:b@c") == "sqlite:///a:b@c"
    assert masked(["x"]) == ["x"]


SPELLINGS = (
    *("{}", "foo_{}", "foo.{}", "foo-{}", "{}.foo", "{}_value", "foo.{}.value", "spark.hadoop.fs.{}", "s3.{}-id"),
    *("foo{}", "FOO_{}", "my-{}-2"),
)
NAMES_OF_SECRETS = (
    *("secret", "pwd", "passwd", "password", "passphrase", "pass", "token", "credential", "credentials", "key"),
    *("apikey", "access-key", "secretKey", "sasl.jaas.config", "auth", "basic.auth.user.info", "authorization"),
    *("sas", "sig", "cookie", "private", "connection-string", "connectionString", "bearer", "dsn", "pat", "psk"),
)
CANARY = "canary-9"


def spelt(name: str, form: str, style: str) -> str:
    """Return a name of a secret in one of the spellings."""
    name = {"lower": name, "upper": name.upper(), "title": name[:1].upper() + name[1:]}[style]
    camel = form == "foo{}" and style == "lower"
    return form.format(name[:1].upper() + name[1:] if camel else name)


@given(
    name=st.sampled_from(NAMES_OF_SECRETS),
    form=st.sampled_from(SPELLINGS),
    style=st.sampled_from(("lower", "upper", "title")),
    map=st.sampled_from(
        (("lakes", "l", "properties"), ("lakes", "l", "spark"), ("policies", "engines", "e", "options"))
    ),
    depth=st.integers(0, 2),
)
def test_free_names_of_secrets_are_hidden(name: str, form: str, style: str, map: tuple[str, ...], depth: int) -> None:
    if form == "foo{}" and style == "upper":
        return
    written = spelt(name, form, style)
    value: object = CANARY
    for _ in range(depth if map[0] == "policies" else 0):
        value = [{"inner": value}]
    assert CANARY not in json.dumps(shown(map, {"name": "seen", written: value}))
    assert "seen" in json.dumps(shown(map, {"name": "seen", written: value}))


@given(
    name=st.sampled_from(NAMES_OF_SECRETS),
    form=st.sampled_from(SPELLINGS[:9]),
    text=st.sampled_from((
        "https://h/x?a=1&{}={}&b=2", "host=h;{}={};port=1", 'Module required user="u" {}="{}";', '{{"a": 1, "{}": "{}"}}',
        "a=b {}={}", "--conf {}={}", "--set=x={}={}", "{}: {}",
    )),
)  # fmt: skip
def test_secrets_inside_texts_are_hidden(name: str, form: str, text: str) -> None:
    if name == "sasl.jaas.config" or ("." in form and "{{" in text):
        return
    given = text.format(form.format(name), CANARY)
    assert CANARY not in json.dumps(shown(("audit", "sinks"), [{"http": {"url": given}}])), given


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{CANARY}@h/x", f"https://{CANARY}@h/x", f"redis://:{CANARY}@h:1/0", f"postgresql://u:a#{CANARY}@h/d",
        f"postgresql://u:a/{CANARY}@h/d", f"Bearer {CANARY}", f"Authorization: Basic {CANARY}", f"a, https://u:{CANARY}@h",
        f"password: two {CANARY}", f"password=two {CANARY}", f"HTTPS://U:{CANARY}@h", f"jdbc:postgresql://u:{CANARY}@h/d",
    ],
)  # fmt: skip
def test_addresses_show_no_password(text: str) -> None:
    for key in (("lakes", "l", "properties"), ("lakes", "l", "spark"), ("policies", "engines", "e", "options"), ("x",)):
        assert CANARY not in json.dumps(shown(key, {"name": text, "list": [text, {"deep": [text]}]}))


@pytest.mark.parametrize(
    "name",
    ["oauth2-server-uri", "scope", "s3.endpoint", "spark.jars.packages", "spark.hadoop.fs.s3a.endpoint", "s3.region"],
)
def test_plain_names_are_shown(name: str) -> None:
    value = "https://h:9000/a/b?x=1,org.apache:spark_2.13:4.0"
    assert shown(("lakes", "l", "properties"), {name: value}) == {name: value}


def test_properties_of_a_lake_are_printed_without_secrets(tmp_path: Path) -> None:
    lakes = {
        "l": {
            "uri": "https://h",
            "properties": {"foo_pwd": "canary", "s3.endpoint": "https://u:canary@h", "scope": "seen"},
            "spark": {"spark.hadoop.fs.azure.sas.c": "canary"},
        }
    }
    folder_with(tmp_path, GOOD + f"lakes: {json.dumps(lakes)}\n")
    for form in ("text", "json"):
        ended = run_pdp("config", "check", "--effective", "--format", form, cwd=tmp_path)
        assert (ended.returncode, "canary" in ended.stdout + ended.stderr) == (0, False)
        assert "seen" in ended.stdout


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


C: Final = CANARY
HOSTILE: Final = (
    f"--password {C}", f"-password {C}", f"--password '{C} two'", f'--password "{C} two"', f"--password={C}", f"--token {C}",
    f"run --user u --pass {C} --port 1", f"--client-secret {C}", f"--api-key\t{C}", f"--apiKey  {C}", f"curl -u user:{C} http://h",
    f"mysql -p{C} -h h", f"psql -p {C}", f"redis-cli -a {C}", f"-P '{C}'", f"password {C}", f"the password is {C}",
    f"token {C} of ci", f"-Djavax.net.ssl.keyStorePassword={C} -Dx=1", f"-Dx=1 -Da.b.token={C}", f"PGPASSWORD={C} psql",
    f"export AWS_SECRET_ACCESS_KEY={C}", f"-----BEGIN PRIVATE KEY-----{C}", f"-----BEGIN RSA PRIVATE KEY-----\n{C}\n-----END RSA PRIVATE KEY-----",
    f"x\n-----BEGIN OPENSSH PRIVATE KEY-----\n{C}\n-----END OPENSSH PRIVATE KEY-----\ny", f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{C}",
    f"-----BEGIN ENCRYPTED PRIVATE KEY-----\r\n{C}\r\n", f"eyJhbGciOiJIUzI1NiJ9.{C}.sig", f"eyJhbGciOiJub25lIn0.{C}.", f"jwt eyJ{C}", f"a eyJ{C}.{C}.{C}.{C}.{C} b",
    f"AKIA{C}", f"id ASIA{C}", f"ghp_{C}", f"github_pat_{C}", f"glpat-{C}", f"xoxb-1-{C}", f"sk-{C}", f"sk_live_{C}", f"hvs.{C}", f"dckr_pat_{C}",
    f"npm_{C}", f"AIza{C}", f"ya29.{C}", f"https://hooks.slack.com/services/T0/B0/{C}", f"https://discord.com/api/webhooks/1/{C}",
    f"Authorization: Bearer {C}", f"Basic {C}", f"Digest {C}", f"Authorization: ApiKey {C}", f"u/{C}@//h:1521/x", f"jdbc:oracle:thin:u/{C}@h:1521:x",
    f"https://u:{C}@h/x", f"amqp://u:{C}@h", f"mongodb+srv://u:{C}@h/?a=b", f"Server=x;Uid=u;Pwd={C};", f"a=1&sig={C}&b=2",
    f'{{"a": {{"password": "{C}"}}}}', f"password: {C}", f"user=u, pass: {C}", f'org.x.Login required password="{C}";',
    f"AccountName=a;AccountKey={C}==;EndpointSuffix=x", f"[{{'secret': '{C}'}}]", f"<password>{C}</password>", f"sftp://u:{C}@h",
)  # fmt: skip
"""Texts with a secret, as commands, files and services write secrets."""
FREE: Final = (("lakes", "l", "properties"), ("lakes", "l", "spark"), ("policies", "engines", "e", "options"))


def test_free_values_show_no_secret() -> None:
    """In every free key, below lists and maps, whatever the name."""
    assert len(HOSTILE) >= 60
    for text in HOSTILE:
        for key in FREE:
            given: dict[str, Any] = {"name": text}
            if key[-1] == "options":
                given |= {"list": [text, {"deep": [text]}], "map": {"a": {"b": text}}}
            written = json.dumps(shown(key, given))
            assert CANARY not in written, (key, text)


@pytest.mark.parametrize(
    "value",
    [
        "Xk9fQ2mT7vRb4LzN8cWd1PsH", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "aGVsbG8gd29ybGQhISEhMTIzNDU2Nzg5MA==",
        f"x {'Ab3' * 12} y",
    ],
)  # fmt: skip
def test_a_random_text_of_a_free_key_is_hidden(value: str) -> None:
    for key in FREE:
        assert shown(key, {"name": value})["name"].strip("xy ") == "***"
    assert shown(("trino", "admin_users"), [value]) == [value]


@pytest.mark.parametrize(
    "value",
    [
        "org.apache.spark:spark-sql_2.13:4.0.0,org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0", "-Xmx4g -XX:+UseG1GC -Dfile.encoding=UTF-8",
        "s3://bucket/warehouse/path", "local[2]", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions", "read committed", "5 minutes",
        "https://h:9000/a/b?x=1", "/opt/spark/jars/some-long-name-of-a-jar-1.2.3.jar", "00000000-0000-0000-0000-000000000000",
    ],
)  # fmt: skip
def test_plain_values_of_free_keys_are_shown(value: str) -> None:
    for key in FREE:
        assert shown(key, {"name": value}) == {"name": value}


PASSWORDS: Final = (
    *(f"{C}{sign}456" for sign in " \t\n\r\v\f\u00a0\u2003\u200b\u2028\x85\x1f\"'`;,&=?#/:@\\|<>[]{}()!$%^*+~é😀"),
    *(f"{sign}{C}" for sign in " \t@:/?#;&"), f"a@b {C}", f"a://b@{C}", f"x?password=y@{C}", f"x;password=y {C} z", f"Bearer x@{C}",
    f"{C} Bearer x", f"{C} -----BEGIN PRIVATE KEY-----", f"p%40 {C}", f"{C}?x=1&password=2", f"{C} password='a'", f"{C}&key=1&b",
)  # fmt: skip
"""Passwords with characters that an address should have encoded."""
ADDRESSES: Final = (
    "postgresql://u:{}@127.0.0.1:1/x", "redis://u:{}@127.0.0.1:1/0", "rediss://:{}@h:1,h2:2/0", "https://{}@h/x", "sqlite://u:{}@h",
    "postgresql://{}:x@h/x?connect_timeout=1", "postgresql://u:p@h/x?a=1&password={}", "postgresql://u:p@h/x?p%61ssword={}&a=1",
)  # fmt: skip
QUERIES: Final = (
    "code={}",
    "a=1&x={}",
    "{}",
    "{}=",
    "a={}&b",
    "a=b@{}",
    "a?b={}",
    "a;b={}",
    "a=1&a={}",
    "%63ode={}",
    "x=@{}@",
    "&{}&",
)


def test_no_character_of_a_password_ends_the_mask() -> None:
    assert len(PASSWORDS) >= 60
    keys = (("store", "url"), ("cache", "redis"), *((*key, "name") for key in FREE))
    for password in PASSWORDS:
        for address in ADDRESSES:
            if "{}" in address.partition("?")[2] and "&" in password:  # the end of the parameter
                continue
            for key in keys:
                written = shown(key, address.format(password))
                assert C not in written, (key, address, password)
                assert not any(sign in written for sign in ("456", "u:p")), (key, address, password)


def test_no_query_of_a_receiver_is_shown() -> None:
    keys = (
        ("audit", "sinks", 0, "http", "url"),
        ("audit", "sinks", 1, "otlp", "endpoint"),
        ("policies", "source", "http"),
    )
    for query in QUERIES:
        for start in ("https://h/hook", "HTTP://127.0.0.1:1", "https://h/a@b"):
            for key in keys:
                written = shown(key, f"{start}?{query.format(C)}")
                assert C not in written, (key, query)
    assert shown(keys[0], "https://h/hook?code=1&a=2") == "https://h/hook?***"
    assert shown(keys[0], "https://h/hook") == "https://h/hook"


def test_effective_values_show_no_path_of_a_secret(tmp_path: Path) -> None:
    for name, text in {"url": "sqlite:///x.db", "key": "k" * 40, "header": "A: b"}.items():
        (tmp_path / f"canary-{name}").write_text(text)
    (tmp_path / "pdp.yaml").write_text(
        "store: {url_file: canary-url}\ncache: {password_file: canary-key, mac_key_file: canary-key}\n"
        "audit:\n  hmac_key_file: canary-key\n"
        "  sinks: [{file: a}, {http: {url: 'http://127.0.0.1:1/', headers_file: canary-header}}]\n"
        "server: {tls: {cert: seen, key: canary-key}}\n"
        "warehouses: {lake: {catalog: {uri: 'http://127.0.0.1:1', token_file: canary-key, ca_file: seen}}}\n"
    )
    for form in ("text", "json"):
        ended = run_pdp("config", "check", "--effective", "--format", form, cwd=tmp_path)
        values = [line for line in ended.stdout.splitlines() if ": error: " not in line and ": warning: " not in line]
        assert "hmac_key_file" in ended.stdout
        assert "canary" not in "".join(values), values
        assert "".join(values).count("seen") == 2


def test_effective_values_show_no_password_with_a_blank(tmp_path: Path) -> None:
    folder_with(tmp_path, GOOD + "audit: {sinks: [{http: {url: 'http://127.0.0.1:1/x?code=canary'}}]}\n")
    env = {
        "PDP__STORE__URL": "postgresql://u:canary 456@127.0.0.1:1/x",
        "PDP__CACHE__REDIS": "redis://u:canary\tx@127.0.0.1:1/0",
    }
    ended = run_pdp("config", "check", "--effective", cwd=tmp_path, env=env)
    assert 'store.url: "postgresql://***@127.0.0.1:1/x"' in ended.stdout
    assert 'cache.redis: "redis://***@127.0.0.1:1/0"' in ended.stdout
    assert "canary" not in ended.stdout + ended.stderr
