"""Stamps of files: every way of a change is seen, and reading alone changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.service.serving import settings_of

from pdp.app.reload.watched_files import (
    SETTLED_SECONDS,
    OpenedFiles,
    changed_files,
    take_stamps,
    unsettled_seconds,
)
from pdp.config.settings import Settings


def settings_for(folder: Path, **tls: str) -> Settings:
    policies = {"rules": ["rules/*.yaml"], "forbid": [{"path": "forbid.yaml", "allow_empty": True}]}
    return settings_of({"policies": policies, "server": {"tls": tls} if tls else {}}, folder)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "rules").mkdir()
    file = tmp_path / "rules" / "a.yaml"
    file.write_text("rules: {a: 'true'}")
    os.utime(file, (1, 1))
    return file


def replaced_with_the_same_size_and_time(file: Path) -> None:
    other = file.with_suffix(".new")
    other.write_text(file.read_text())
    os.utime(other, (1, 1))
    other.replace(file)


def edited_with_the_time_put_back(file: Path) -> None:
    file.write_text(file.read_text().replace("true", "TRUE"))
    os.utime(file, (1, 1))


EDITS: list[Callable[[Path], object]] = [
    replaced_with_the_same_size_and_time,
    edited_with_the_time_put_back,
    lambda file: file.write_text("rules: {}"),
    lambda file: file.unlink(),
    lambda file: (file.parent / "b.yaml").write_text("rules: {}"),
    lambda file: file.rename(file.with_name("c.yaml")),
    lambda file: (file.parent.parent / "forbid.yaml").write_text("rules: {}"),
    lambda file: shutil.rmtree(file.parent),
    lambda file: os.mkfifo(file.parent / "b.yaml"),
    lambda file: (file.parent / "b.yaml").mkdir(),
    lambda file: (file.parent / "b.yaml").symlink_to("/dev/zero"),
    lambda file: (file.parent / "b.yaml").symlink_to("b.yaml"),
    lambda file: (file.parent / "b.yaml").symlink_to("nowhere"),
]


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_changes_the_stamps(rules: Path, edit: Callable[[Path], object]) -> None:
    settings = settings_for(rules.parent.parent)
    before = take_stamps(settings)
    rules.read_text()
    assert take_stamps(settings) == before
    edit(rules)
    assert changed_files(before, take_stamps(settings))


def test_a_swap_of_a_mounted_config_map_changes_every_stamp(tmp_path: Path) -> None:
    """A kubelet writes a new folder, and renames a link to it onto `..data`."""
    mount = tmp_path / "rules"
    for version in ("..1", "..2"):
        (mount / version).mkdir(parents=True)
        for name in ("a.yaml", "b.yaml"):
            (mount / version / name).write_text("rules: {}")
            os.utime(mount / version / name, (1, 1))
    (mount / "..data").symlink_to("..1")
    for name in ("a.yaml", "b.yaml"):
        (mount / name).symlink_to(f"..data/{name}")
    settings = settings_for(tmp_path)
    before = take_stamps(settings)
    (mount / "..data_tmp").symlink_to("..2")
    (mount / "..data_tmp").rename(mount / "..data")
    assert changed_files(before, take_stamps(settings)) == [str(mount / "a.yaml"), str(mount / "b.yaml")]


def test_certificates_are_watched(tmp_path: Path) -> None:
    for name in ("cert", "key", "ca"):
        (tmp_path / name).write_text("x")
    settings = settings_for(tmp_path, cert="cert", key="key", client_ca="ca")
    assert {Path(file).name for file in take_stamps(settings)} == {"cert", "key", "ca"}


def test_a_change_of_this_moment_is_not_settled(rules: Path) -> None:
    settings = settings_for(rules.parent.parent)
    rules.write_text("rules: {}")
    assert 0 <= unsettled_seconds(take_stamps(settings)) <= SETTLED_SECONDS
    assert unsettled_seconds({"file": (0, 0, 0, 1, 1)}) == 0
    assert unsettled_seconds({}) == 0


def test_every_file_that_the_section_names_is_watched(tmp_path: Path) -> None:
    """Also a schema, which is in no list of patterns. A folder with the name of another text is no file."""
    (tmp_path / "more.cedarschema").write_text("x")
    (tmp_path / "prod").mkdir()
    cedar = {"cedar": {"schema": {"extend": "more.cedarschema"}}}
    assert [*take_stamps(settings_of({"policies": {"rules": [], **cedar}}, tmp_path))] == [
        str(tmp_path / "more.cedarschema")
    ]


def test_opened_files_are_those_that_were_read_and_that_no_list_names(rules: Path) -> None:
    opened = OpenedFiles()
    other, written = rules.with_name("other"), rules.with_name("written")
    other.write_text("x")
    rules.read_text()
    assert opened.take() == ()
    opened.recording = True
    opened.known = {str(rules)}
    rules.read_text()
    other.read_bytes()
    written.write_text("x")
    with Path("/proc/self/stat").open(), Path(os.__file__).open():
        pass
    opened.recording = False
    assert opened.take() == (str(other),)
    assert opened.take() == ()
