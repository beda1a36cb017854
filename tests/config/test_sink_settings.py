"""Settings of audit sinks: one destination each, safe addresses, and files that can be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.service.commands import run_pdp
from support.service.serving import FREE_PORTS

from pdp.config.load import make_settings
from pdp.errors import ConfigError

URL = "http://127.0.0.1:9/audit"
CANARY = "canary-7f3a"


def sinks_of(tmp_path: Path, *sinks: Any) -> Any:
    return make_settings({"audit": {"sinks": list(sinks)}}, tmp_path).audit.sinks


def test_several_sinks_have_their_defaults(tmp_path: Path) -> None:
    file, stdout, http, otlp, second = sinks_of(
        tmp_path, {"file": "a"}, {"stdout": True}, {"http": {"url": URL}}, {"otlp": {"endpoint": "https://c:4318"}},
        {"http": {"url": URL, "spool": "other"}},
    )  # fmt: skip
    assert [sink.kind for sink in (file, stdout, http, otlp, second)] == ["file", "stdout", "http", "otlp", "http"]
    assert (http.push.spool, otlp.push.spool, second.push.spool) == ("audit-spool/http", "audit-spool/otlp", "other")
    assert (http.push.gzip, http.push.insecure, http.push.spool_mib) == (True, False, 1024)


@pytest.mark.parametrize(
    ("sinks", "key"),
    [
        ([{}], "audit.sinks.0.file"),
        ([{"stdout": False}], "audit.sinks.0.stdout"),
        ([{"stdout": None}], "audit.sinks.0.file"),
        ([{"file": ""}], "audit.sinks.0.file"),
        ([{"file": "a"}, {"file": "b"}], "audit.sinks"),
        ([{"stdout": True}, {"stdout": True}], "audit.sinks"),
        ([{"file": "a", "stdout": True}], "audit.sinks.0"),
        ([{"http": {"url": URL}, "otlp": {"endpoint": URL}}], "audit.sinks.0"),
        ([{"http": {"url": URL}}, {"http": {"url": URL + "2"}}], "audit.sinks"),
        ([{"http": {"url": URL, "spool": "s"}}, {"otlp": {"endpoint": URL, "spool": "s/"}}], "audit.sinks"),
        ([{"http": {}}], "audit.sinks.0.http.url"),
        ([{"http": None}], "audit.sinks.0.file"),
        ([{"otlp": {"url": URL}}], "audit.sinks.0.otlp.url"),
        ([{"http": {"url": URL, "headers": {"a": "b"}}}], "audit.sinks.0.http.headers"),
        ([{"http": {"url": URL, "spool_mib": 1}}], "audit.sinks.0.http.spool_mib"),
        ([{"http": {"url": URL, "batch_records": 0}}], "audit.sinks.0.http.batch_records"),
        ([{"http": {"url": URL, "timeout_seconds": 0}}], "audit.sinks.0.http.timeout_seconds"),
    ],
)
def test_a_wrong_sink_names_its_key(tmp_path: Path, sinks: list[Any], key: str) -> None:
    with pytest.raises(ConfigError, match=rf"`{key}`") as caught:
        sinks_of(tmp_path, *sinks)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sink", [{"file": "a"}, {"http": {"url": URL}}, {"otlp": {"endpoint": URL}}, None])
def test_answers_wait_for_sinks_that_keep_records(tmp_path: Path, sink: Any) -> None:
    others = [sink] if sink else []
    settings = make_settings(
        {"audit": {"sinks": [{"stdout": True}, *others][bool(not sink) :], "durability": "request"}}, tmp_path
    )
    assert settings.audit.durability == "request"
    with pytest.raises(ConfigError, match="durability: request"):
        make_settings({"audit": {"sinks": [{"stdout": True}], "durability": "request"}}, tmp_path)


@pytest.mark.parametrize(
    "url",
    ["", "audit", "ftp://h/x", "http://", "https:///x", "http://h:99999/", "https://h/#a", "https://h/a b", "https://h/\n",
     "http://collector:4318", "http://10.0.0.1/", "http://127.0.0.1.example.org/", "http://[::2]/",
     f"https://user:{CANARY}@h/", f"https://{CANARY}@h/"],
)  # fmt: skip
@pytest.mark.parametrize(("kind", "key"), [("http", "url"), ("otlp", "endpoint")])
def test_an_unsafe_address_is_refused(tmp_path: Path, kind: str, key: str, url: str) -> None:
    with pytest.raises(ConfigError, match=rf"audit\.sinks\.0\.{kind}") as caught:
        sinks_of(tmp_path, {kind: {key: url}})
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://h", "https://h:8443/a?b=c", "http://localhost:1", "http://127.9.9.9/", "http://[::1]:2/"]
)
def test_a_safe_address_is_taken(tmp_path: Path, url: str) -> None:
    assert sinks_of(tmp_path, {"http": {"url": url}})[0].http.url == url


def test_plain_http_to_another_machine_must_be_meant(tmp_path: Path) -> None:
    assert sinks_of(tmp_path, {"otlp": {"endpoint": "http://collector:4318", "insecure": True}})


HEADERS = {
    "missing": None,
    "binary": b"\xff\xfe",
    "no colon": b"Authorization Bearer " + CANARY.encode(),
    "no name": b": " + CANARY.encode(),
    "bad name": b"Authori zation: " + CANARY.encode(),
    "own header": b"Content-Length: 3\n",
    "another own header": b"content-encoding: br\n",
    "control character": b"X-Token: " + CANARY.encode() + b"\x07",
    "not ASCII": "X-Token: é".encode(),
}


@pytest.mark.process
@pytest.mark.parametrize("mistake", [*HEADERS, "no ca", "other ca", "no folder"])
def test_config_check_and_start_judge_the_files_of_a_sink(tmp_path: Path, mistake: str) -> None:
    push: dict[str, Any] = {"url": URL, "headers_file": "headers", "spool": "spool"}
    text = HEADERS.get(mistake, b"X: y")
    if text is not None:
        (tmp_path / "headers").write_bytes(text)
    if mistake in ("no ca", "other ca"):
        push = {**push, "url": "https://127.0.0.1:9/", "ca": "ca.pem"}
        if mistake == "other ca":
            (tmp_path / "ca.pem").write_text("no certificate")
    if mistake == "no folder":
        (tmp_path / "spool").write_text("a file")
    config = {"policies": {"rules": []}, "server": FREE_PORTS, "audit": {"sinks": [{"file": "audit"}, {"http": push}]}}
    (tmp_path / "pdp.yaml").write_text(json.dumps(config))
    checked = run_pdp("config", "check", cwd=tmp_path)
    started = run_pdp("serve", cwd=tmp_path, timeout=60)
    assert (checked.returncode, started.returncode) == (1, 2)
    named = {"no ca": "ca.pem", "other ca": "ca.pem", "no folder": "spool"}.get(mistake, "headers")
    for said in (checked.stdout, started.stderr):
        assert named in said
        assert CANARY not in said
    assert not (tmp_path / "audit-spool").exists()


@pytest.mark.process
def test_effective_settings_show_no_secret(tmp_path: Path) -> None:
    (tmp_path / "headers").write_text(f"Authorization: Bearer {CANARY}\n\n X-Other :  1 \n")
    push = {"url": URL, "headers_file": "headers"}
    (tmp_path / "pdp.yaml").write_text(json.dumps({"policies": {"rules": []}, "audit": {"sinks": [{"http": push}]}}))
    shown = run_pdp("config", "check", "--effective", cwd=tmp_path)
    assert shown.returncode == 0, shown.stdout
    assert "headers" in shown.stdout
    assert CANARY not in shown.stdout + shown.stderr
