"""Secret keys: each hostile text through variables, options and files, and no message that quotes one."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.generators.setting_keys import NAME, setting_keys
from support.service.commands import run_pdp

from pdp.cli.serve import require_seen
from pdp.config.load import load_settings
from pdp.config.settings import Settings, secret_keys, secret_of
from pdp.errors import ConfigError
from pdp.model.strict import load_yaml

HOSTILE: Final = (
    "#Zk3kdW8sQe91LmPq0RtYvBn", "!Zk3kdW8sQe91LmPq0Rt", "!!str Zk3kdW8sQe91", "!!python/name:os.system", "&Zk3kdW8s x",
    "*Zk3kdW8s", "ab #cd", "ab#cd", "- x", "-x", "-", "---", "--- x", "...", "? x", "?x", ": x", ":x", "a: b", "a:b", "{",
    "}", "{a: b}", "{}", "[", "]", "[abc", "[a, b]", "[]", ",", "%Zk3", "%YAML 1.1", "@Zk3", "`Zk3", "| x", ">", ">- x",
    "null", "Null", "NULL", "~", "~x", "true", "yes", "off", "y", "1e3", "0x10", "0b_", "017", "1_000", "12:30:45", ".5",
    ".inf", ".nan", "2001-99-99", "2001-01-01", "'", "'abc", "'abc'", '"abc', '"abc"', "it''s", " abc ", "abc\t", "\tabc",
    "abc\n", "a\nb", "a\n\nb", "a\\nb", "\\", "<<", "=", "a=b", "a,b", "$HOME", "${x}", "%41", "é", "e\u0301", "\u202e",
    "\u2028", "\ufeffx", "\x07", "😀", "x" * 5000, "9" * 5000, "[" * 300, "{a: " * 150, "\x85",
)  # fmt: skip
"""Texts that YAML cuts, turns into something else, or refuses."""
CANARY: Final = "Zk3kdW8sQe91LmPq0RtYvBn7Hj5Gf2Dx"
"""Characters that make a text a valid key, and that no message may show."""


def wrapped(path: tuple[str, ...], text: str) -> str:
    """Return a hostile text as a valid value of a secret key: long enough, or in the place of a password."""
    match path:
        case ("store", "url"):
            return f"postgresql://u:{text}@127.0.0.1/x"
        case ("cache", "redis"):
            return f"unix:///{text}"
        case ("warehouses", *_):
            return text
        case ("cache", "mac_key"):
            return f"{text}{CANARY}"
        case _:
            return f"{text}{CANARY}" if path[0] == "audit" else text


def value_at(settings: Settings, path: tuple[str, ...]) -> Any:
    found: Any = settings
    for name in path:
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    return found


def named(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("x" if step == "*" else step for step in path)


REST: Final = "warehouses: {x: {catalog: {uri: 'http://h'}}}\nlakes: {x: {uri: 'http://h'}}\n"
PATHS: Final = [secret.path for secret in secret_keys()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "pdp.yaml").write_text(REST)
    return tmp_path / "pdp.yaml"


def dump(value: Any) -> str:
    return str(yaml.dump(value, Dumper=yaml.CSafeDumper))


def by_variable(file: Path, path: tuple[str, ...], text: str) -> Settings:
    return load_settings(file, (), {f"PDP__{'__'.join(path).upper()}": text})


def by_option(file: Path, path: tuple[str, ...], text: str) -> Settings:
    return load_settings(file, [f"{'.'.join(path)}={text}"], {})


def by_file(file: Path, path: tuple[str, ...], text: str) -> Settings:
    data = load_yaml(REST)
    section = data
    for name in path[:-1]:
        section = section.setdefault(name, {})
    section[path[-1]] = text
    written = file.with_name("quoted.yaml")
    written.write_text(dump(data))
    return load_settings(written, (), {})


def attempt(load: Callable[..., Settings]) -> Settings | str:
    """Return the settings, or the text of the error."""
    try:
        return load()
    except ConfigError as error:
        return str(error)


def quotes(message: str, text: str) -> bool:
    """Tell whether a message shows a text, or a long piece of it."""
    pieces = [
        piece for piece in re.split(r"[\s'\"`]+", text) if len(piece) > 3 and piece.lower() not in ("null", "true")
    ]
    return any(piece in message for piece in pieces)


def test_the_schema_marks_every_key_that_sounds_like_a_secret() -> None:
    marked = {".".join(NAME if step == "*" else step for step in path) for path in PATHS}
    sounding = {
        key.text()
        for key in setting_keys()
        if re.search(r"password|secret|token$|credential$|(hmac|mac)_key$", key.text())
    }
    assert sounding <= marked
    assert {"store.url", "cache.redis"} == marked - sounding


@pytest.mark.parametrize("path", PATHS, ids=".".join)
@pytest.mark.parametrize("way", [by_variable, by_option, by_file])
def test_a_secret_is_taken_to_the_letter(file: Path, path: tuple[str, ...], way: Callable[..., Settings]) -> None:
    path = named(path)
    taken = 0
    for hostile in HOSTILE:
        for text in (hostile, wrapped(path, hostile)):
            if way is by_file and text != load_yaml(dump(text)):  # YAML has no form for some characters
                continue
            found = attempt(lambda path=path, text=text: way(file, path, text))
            if isinstance(found, str):
                assert f"`{'.'.join(path)}`" in found
                assert "YAML" not in found
                assert not quotes(found, text.replace("postgresql", "").replace("127.0.0.1", ""))
            else:
                taken += 1
                assert value_at(found, path) == text
    # the token of a catalog has a pattern, which leaves out blanks; an address of Redis has no `#` and no parameters
    fewest = {"warehouses": len(HOSTILE) // 2, "cache.redis": len(HOSTILE) - 24}
    assert taken >= fewest.get("cache.redis" if path == ("cache", "redis") else path[0], len(HOSTILE) - 20)


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=30))
def test_a_generated_secret_is_taken_to_the_letter(text: str) -> None:
    for secret in (text, text + CANARY):
        for settings in (
            load_settings(None, (), {"PDP__CACHE__PASSWORD": secret}),
            load_settings(None, [f"cache.password={secret}"], {}),
        ):
            assert settings.cache.password == secret


@pytest.mark.parametrize("text", HOSTILE)
def test_a_property_of_a_lake_that_sounds_like_a_secret_is_one(file: Path, text: str) -> None:
    settings = load_settings(file, (), {"PDP__LAKES__X__PROPERTIES__CLIENT_SECRET": text})
    assert settings.lakes["x"].properties["client_secret"] == text
    assert secret_of(("lakes", "x", "properties", "client_secret"))
    assert not secret_of(("lakes", "x", "properties", "scope"))


def test_other_optional_texts_keep_null(file: Path) -> None:
    settings = load_settings(file, ["trino.user_prefix=x~", "server.unix=null"], {"PDP__STORE__SEED": "~"})
    assert (settings.store.seed, settings.server.unix) == (None, None)


def broken_files() -> Iterator[tuple[str, str]]:
    """Yield files with a secret that YAML refuses, or that the schema refuses."""
    for path in PATHS:
        *outer, last = named(path)
        for text in (
            f"!{CANARY} x", f"!{CANARY}", f"!!{CANARY} x", f"*{CANARY}", f"&{CANARY} [", f"[{CANARY}", f"{{{CANARY}",
            f"{CANARY}: {CANARY}: x", f"{{{CANARY}: 1, {CANARY}: 2}}", f"[{CANARY}]", f"{{{CANARY}: 1}}", f"'{CANARY}",
            f"{CANARY[0]}\x07{CANARY}", f"%{CANARY}", f"@{CANARY}", f"redis://u:{CANARY}℀@h:1", f"redis://u:{CANARY}/x@h",
            f"redis://u:{CANARY}[@h", f"redis://u:{CANARY}@h:99999", f"mysql://u:{CANARY}@h", f"postgresql://u:{CANARY}",
        ):  # fmt: skip
            lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate(outer)]
            yield "\n".join([*lines, f"{'  ' * len(outer)}{last}: {text}", ""]), text
            yield f"{outer[0]}: {{{''.join(f'{name}: {{' for name in outer[1:])}<<: {{{last}: {text}}}}}", text


def test_no_message_about_a_file_quotes_a_secret(tmp_path: Path) -> None:
    refused = 0
    for text, _ in broken_files():
        (tmp_path / "pdp.yaml").write_text(text)
        found = attempt(lambda: load_settings(tmp_path / "pdp.yaml", (), {}))
        if isinstance(found, str):
            refused += 1
            assert CANARY not in found, text
    assert refused > 200


@pytest.mark.parametrize("text", [f"!{CANARY} x", f"{{{CANARY}: 1, {CANARY}: 2}}", f"*{CANARY}", "0b_", "2001-99-99"])
def test_no_message_about_a_section_quotes_a_secret(text: str) -> None:
    sources: list[tuple[list[str], dict[str, str]]] = [
        ([], {"PDP__CACHE": f"{{password: {text}}}"}),
        ([f"cache={{password: {text}}}"], {}),
    ]
    for options, environ in sources:
        with pytest.raises(ConfigError) as caught:
            load_settings(None, options, environ)
        assert CANARY not in str(caught.value)


@pytest.mark.parametrize("option", [f"cache.password:{CANARY}", f"cache.password {CANARY}", f"'{CANARY}"])
def test_an_option_without_a_value_is_not_quoted(option: str) -> None:
    with pytest.raises(ConfigError, match=r"is not `section\.key=value`") as caught:
        load_settings(None, [option], {})
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("name", ["hmac_key", "hmac_key_file"])
@pytest.mark.parametrize("text", ["", "null", "~", "''", '""'])
def test_a_key_of_the_audit_that_is_set_and_empty_stops_the_start(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "pdp.yaml").write_text(f"audit:\n  {name}: {text}\n")
    with pytest.raises(ConfigError, match=rf"`audit\.{name}` is set and empty.*pdp\.yaml:2:3"):
        load_settings(tmp_path / "pdp.yaml", (), {})
    sources: list[tuple[list[str], dict[str, str]]] = [
        ([], {f"PDP__AUDIT__{name.upper()}": text}),
        ([f"audit.{name}={text}"], {}),
    ]
    for options, environ in sources:
        with pytest.raises(ConfigError, match=rf"`audit\.{name}`"):
            load_settings(None, options, environ)


def test_an_ipv6_address_needs_quotes_in_a_file_alone(tmp_path: Path) -> None:
    assert load_settings(None, ["server.http=[::1]:8181"], {}).server.http == "[::1]:8181"
    (tmp_path / "pdp.yaml").write_text("server:\n  http: [::1]:8181\n")
    with pytest.raises(ConfigError, match="needs quotes"):
        load_settings(tmp_path / "pdp.yaml", (), {})
    assert load_settings(None, ["server.http='[::1]:8181'"], {}).server.http == "[::1]:8181"


# --- a start with another reading ---------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", [f"#{CANARY}", f"'{CANARY}'", f"{CANARY} #x", f" {CANARY} "])
def test_a_secret_that_was_read_as_another_text_stops_one_start(tmp_path: Path, secret: str) -> None:
    (tmp_path / "pdp.yaml").write_text("{}")
    environ = {"PDP__AUDIT__HMAC_KEY": secret, "PDP__CACHE__PASSWORD": CANARY}

    def start(*overrides: str) -> None:
        require_seen(load_settings(tmp_path / "pdp.yaml", overrides, environ))

    with pytest.raises(
        ConfigError, match=r"^`audit\.hmac_key` \(PDP__AUDIT__HMAC_KEY\): taken to the letter"
    ) as caught:
        start()
    assert CANARY not in str(caught.value)
    start()
    with pytest.raises(ConfigError, match=r"^`cache\.password` \(--set cache\.password\): "):
        start("cache.password='x'")
    start("cache.password='x'")
    assert CANARY not in "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("secret", [CANARY, f"!{CANARY}", f"[{CANARY}", "1234567890123456"])
def test_a_secret_with_one_reading_starts_at_once(tmp_path: Path, secret: str) -> None:
    (tmp_path / "pdp.yaml").write_text("{}")
    require_seen(load_settings(tmp_path / "pdp.yaml", (), {"PDP__AUDIT__HMAC_KEY": secret}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pdp.yaml"]


def test_a_service_without_a_folder_asks_for_a_file_at_each_start(tmp_path: Path) -> None:
    (tmp_path / "world.json").write_text("{}")
    options = ["audit.sinks=[]", f"store.url=file:{tmp_path}/world.json", f"cache.password='{CANARY}'"]
    for _ in range(2):
        with pytest.raises(ConfigError, match="give it by its key with `_file`"):
            require_seen(load_settings(None, options, {}))


@pytest.mark.process
def test_the_command_stops_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "pdp.yaml").write_text("policies: {rules: []}\n")
    ended = run_pdp("serve", cwd=tmp_path, env={"PDP__CACHE__PASSWORD": f"{CANARY} #x"}, fresh=True)
    assert ended.returncode == 2
    assert "`cache.password` (PDP__CACHE__PASSWORD): taken to the letter now" in ended.stderr
    assert CANARY not in ended.stderr


@pytest.mark.process
@pytest.mark.parametrize("key", [secret.path for secret in secret_keys() if secret.path[0] != "lakes"], ids=".".join)
@pytest.mark.parametrize("spelling", ["{}", "postgresql://u:{}@127.0.0.1/x"])
def test_no_error_shows_a_secret_in_place_of_the_name_of_a_file(
    tmp_path: Path, key: tuple[str, ...], spelling: str
) -> None:
    *sections, name = named(key)
    data: dict[str, Any] = {f"{name}_file": spelling.format(CANARY)}
    if key[0] == "warehouses":
        data["uri"] = "https://127.0.0.1:1/x"
    for section in reversed(sections):
        data = {section: data}
    if key[0] == "audit":
        data["audit"]["sinks"] = [{"file": "audit"}]
    (tmp_path / "a.properties").write_text("nessie.server.authorization.rules.a=true\n")
    (tmp_path / "pdp.yaml").write_text(yaml.safe_dump({"policies": {"rules": ["a.properties"]}, **data}))
    ended = run_pdp("config", "check", cwd=tmp_path)
    assert ended.returncode == 1
    assert f"`{'.'.join((*sections, name))}_file`" in ended.stdout
    assert CANARY not in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "value", ["http://h/x?hunter2", "ftp://hunter2@h/x", "ftp://h/x#hunter2", "http://h/x?a=hunter2#b"]
)
@pytest.mark.parametrize("key", ["issuer", "jwks"])
def test_no_message_about_a_provider_shows_the_rest_of_an_address(tmp_path: Path, key: str, value: str) -> None:
    provider = {"issuer": "https://i", "jwks": "https://j", "audiences": ["a"], key: value}
    text = yaml.safe_dump({"identity": {"providers": {"kc": provider}}})
    (tmp_path / "pdp.yaml").write_text(text)
    with contextlib.nullcontext() if key == "issuer" else pytest.raises(ConfigError) as error:
        load_settings(tmp_path / "pdp.yaml", environ={})
    assert "hunter2" not in str(error and (error.value, error.value.problems))
