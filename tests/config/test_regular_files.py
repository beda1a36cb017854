"""Readers of policies, keys and certificates: no name holds a reader, and no file is read beyond a size."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.service.serving import settings_of

from pdp.app.assembly import build_bundle, read_rules
from pdp.app.sources.http import HttpFetcher
from pdp.config.bundles.manifest import read_public_key
from pdp.config.regular_files import MAX_FILE_BYTES, read_regular
from pdp.config.settings import Settings
from pdp.errors import ConfigError, PdpError
from pdp.identity.jwks import read_key_file
from pdp.identity.tls import read_certificates


def bind(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the address of a socket has at most 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def fill(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)


def link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


KINDS: dict[str, Callable[[Path], Any]] = {
    "fifo": os.mkfifo,
    "folder": Path.mkdir,
    "socket": bind,
    "zero": link("/dev/zero"),
    "null": link("/dev/null"),
    "loop": link("odd.cedar"),
    "huge": fill,
}
POLICIES: dict[str, dict[str, Any]] = {
    "rules": {"rules": ["odd.yaml"]},
    "forbid": {"forbid": ["odd.yaml"]},
    "row_access": {"row_access": ["odd.yaml"]},
    "scopes.permissions": {"scopes": {"permissions": ["odd.yaml"]}},
    "cedar.policies": {"cedar": {"policies": ["odd.cedar"]}},
    "cedar.entities": {"cedar": {"policies": ["good.cedar"], "entities": ["odd.json"]}},
    "cedar.schema": {"cedar": {"policies": ["good.cedar"], "schema": "odd.cedarschema"}},
}
ENGINES = {"scopes": "scopes", "cedar": "cedar"}


def settings_with(folder: Path, key: str) -> Settings:
    (folder / "good.cedar").write_text("permit(principal, action, resource);")
    engine = ENGINES.get(key.partition(".")[0], "cel")
    return settings_of(
        {"policies": {"rules": [], **POLICIES[key]}, "authorities": {"default": {"engines": [engine]}}}, folder
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", POLICIES)
def test_policies_are_regular_files(tmp_path: Path, key: str, kind: str) -> None:
    settings = settings_with(tmp_path, key)
    name = next(word for word in json.dumps(POLICIES[key]).split('"') if word.startswith("odd"))
    KINDS[kind](tmp_path / name)
    if kind == "loop" and name != "odd.cedar":
        (tmp_path / "odd.cedar").symlink_to(name)
    with pytest.raises(PdpError) as raised:
        build_bundle(settings, *read_rules(settings))
    assert name in str(raised.value)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "loop"])
def test_certificates_keys_and_tokens_are_regular_files(tmp_path: Path, kind: str) -> None:
    odd = tmp_path / "odd.pem"
    KINDS[kind](odd)
    settings = settings_of({"server": {"tls": {"cert": "odd.pem", "key": "odd.pem"}}}, tmp_path)
    source = {"http": "http://127.0.0.1:1/b", "keys": ["odd.pem"], "token_file": "odd.pem"}
    with_source = settings_of({"policies": {"rules": [], "source": source}}, tmp_path).policies.source
    assert with_source
    fetcher = HttpFetcher(settings, with_source)
    for read in (
        lambda: read_certificates(settings),
        lambda: read_public_key(odd),
        lambda: fetcher.get("http://127.0.0.1:1/b", {}, 100),
        lambda: read_key_file("idp", odd),
    ):
        with pytest.raises(ConfigError):
            read()


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"abc")
    assert read_regular(file, 3) == b"abc"
    with pytest.raises(OSError, match="larger than 2 bytes"):
        read_regular(file, 2)
    (tmp_path / "link").symlink_to("a")
    assert read_regular(tmp_path / "link", 3) == b"abc"
