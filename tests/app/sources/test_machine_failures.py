"""Every failure of the machine at every step between two polls: once the machine is well, the newest bundle serves.

Steps are the calls to the system below the folder of the service, the sockets and the processes. One test fails each
of them in turn; others use a full file system, files in place of folders, and removed folders.
"""

from __future__ import annotations

import errno
import io
import os
import resource
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.generators.bundles import (
    PATH,
    BundleServer,
    bundle_of,
    bundle_server,
    commit,
    git,
    push,
    write_keys,
    write_policies,
)
from support.service.serving import settings_of
from support.untested import not_tested

from pdp.app.reload.load_messages import LoadedPolicies
from pdp.app.reload.loader_process import BundleLoader, SourceLoader
from pdp.app.reload.watched_files import OpenedFiles

pytestmark = pytest.mark.process

ERRORS = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EMFILE, errno.ENOMEM, errno.EIO, errno.ENOENT)
FILE_STEPS = ("open", "mkdir", "rename", "unlink", "rmdir", "scandir", "listdir", "chmod")
"""Functions of `os` that get a path first."""


class Machine:
    """Machine whose calls fail as it is told: `first` is the number of the first step that fails, from 1."""

    def __init__(self) -> None:
        self.folder = ""
        self.first = self.last = self.steps = 0
        self.is_ill = False
        self.error = errno.EIO

    def step(self, name: str, path: object = None) -> None:
        """Fail a call if its turn has come. Only calls of the loader count, below its folder or without a path."""
        if not self.is_ill or threading.current_thread().name not in ("MainThread", "source"):
            return
        if path is not None and not str(path).startswith(self.folder):
            return
        self.steps += 1
        if self.first <= self.steps <= self.last:
            if name == "thread":
                raise RuntimeError("can't start new thread")
            # pathlib takes a folder that it may not list for an empty one: a service has the rights on its own folder
            error = errno.EIO if name == "scandir" and self.error == errno.EACCES else self.error
            raise OSError(error, os.strerror(error))

    @contextmanager
    def ill(self, folder: Path, first: int, last: int, error: int) -> Iterator[None]:
        self.folder, self.first, self.last, self.steps, self.error = str(folder), first, last, 0, error
        self.is_ill = True
        try:
            yield
        finally:
            self.is_ill = False


MACHINE = Machine()
OPENED: list[OpenedFiles] = []


def opened_files() -> OpenedFiles:
    """Return one recorder for all loaders: the hook of each would stay in this process."""
    if not OPENED:
        OPENED.append(OpenedFiles())
    return OPENED[0]


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(owner: object, attribute: str, name: str, *, has_path: bool) -> None:
        call = getattr(owner, attribute)

        def counted(*arguments: Any, **more: Any) -> Any:
            MACHINE.step(name, arguments[0] if has_path else None)
            return call(*arguments, **more)

        monkeypatch.setattr(owner, attribute, counted)

    for name in FILE_STEPS:
        count(os, name, name, has_path=True)
    count(io, "open", "open", has_path=True)
    count(os, "fsync", "fsync", has_path=False)
    count(socket.socket, "connect", "connect", has_path=False)
    count(subprocess, "run", "process", has_path=False)
    count(threading, "_start_new_thread", "thread", has_path=False)
    monkeypatch.setattr("pdp.app.reload.loader_process.OpenedFiles", opened_files)


class Place:
    """Source whose newest content a test publishes: rules that permit one user."""

    def __init__(self, folder: Path, source: dict[str, Any], publish: Callable[[str, int], object]) -> None:
        self.folder, self.publish = folder, publish
        rules = ["*.yaml"] if "git" in source else ["rules/*.yaml"]
        config = {"policies": {"rules": rules, "source": {**source, "timeout_seconds": 5}}, "audit": {"sinks": []}}
        self.settings = settings_of(config, folder)
        self.bundles = self.settings.path("policy-bundles")

    def loader(self) -> SourceLoader:
        return SourceLoader(self.settings, BundleLoader(self.settings))


@contextmanager
def http_place(folder: Path) -> Iterator[Place]:
    with bundle_server() as server:

        def publish(user: str, number: int) -> None:
            server.bodies[PATH] = bundle_of(user, number)

        write_keys(folder)
        yield Place(folder, {"http": server.url(), "keys": ["one.pub"]}, publish)


@contextmanager
def oci_place(folder: Path) -> Iterator[Place]:
    with bundle_server() as server:

        def publish(user: str, number: int) -> None:
            push(server, bundle_of(user, number))

        write_keys(folder)
        yield Place(folder, {"oci": server.url("/team/policies:prod"), "keys": ["one.pub"]}, publish)


@contextmanager
def git_place(folder: Path) -> Iterator[Place]:
    repository = folder.parent / "repository"
    repository.mkdir()
    git(repository, "init", "-q")

    def publish(user: str, number: int) -> None:
        write_policies(repository, f"{user}{number}")
        commit(repository)

    yield Place(folder, {"git": str(repository), "path": "policies"}, publish)


PLACES = {"http": http_place, "oci": oci_place, "git": git_place}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    folder = tmp_path / "service"
    folder.mkdir()
    with PLACES[request.param](folder) as made:
        yield made


def serves(result: LoadedPolicies, user: str) -> bool:
    return not result.failure and user.encode() in result.published.text


def trees(place: Place) -> int:
    return len([path for path in place.bundles.iterdir() if path.name.startswith("tree-")])


def leftovers(place: Place) -> list[str]:
    return [path.name for path in place.bundles.iterdir() if path.name.startswith(".")]


def test_each_step_may_fail_once_or_from_there_on(place: Place) -> None:
    number, users = 1, ("alice", "bob")
    place.publish(users[1], number)
    loader = place.loader()
    assert serves(loader.load(poll=False), users[1])
    for from_there_on in (False, True):
        step = 0
        while True:
            step, number = step + (3 if from_there_on else 1), number + 1
            user = users[number % 2] + str(number)
            place.publish(user, number)
            with MACHINE.ill(place.folder, step, 1 << 30 if from_there_on else step, ERRORS[step % len(ERRORS)]):
                met = loader.load(poll=True)
            if not serves(met, user):
                well = loader.load(poll=True)
                assert serves(well, user), (step, met.failure, well.failure, well.unchanged)
            assert loader.load(poll=True).unchanged
            assert trees(place) <= 2  # an old one that could not be removed is removed with the next
            if MACHINE.steps < step:
                break
        assert (trees(place), leftovers(place)) == (1, [])
        assert step > 10


def test_each_step_of_a_start_may_fail(place: Place) -> None:
    place.publish("alice", 1)
    step = 0
    while True:
        step += 1
        shutil.rmtree(place.bundles, ignore_errors=True)
        loader = place.loader()
        with MACHINE.ill(place.folder, step, step, ERRORS[step % len(ERRORS)]):
            loader.load(poll=False)
        result = loader.load(poll=True)
        assert result.unchanged or serves(result, "alice"), (step, result.failure)
        if MACHINE.steps < step:
            break
    assert step > 10


def test_a_bundle_that_is_bad_itself_is_tried_once(tmp_path: Path) -> None:
    with bundle_server() as server:
        write_keys(tmp_path)
        place = Place(tmp_path, {"http": server.url(), "keys": ["one.pub"]}, lambda user, number: None)
        server.bodies[PATH] = bundle_of("alice", 1)
        loader = place.loader()
        assert serves(loader.load(poll=False), "alice")
        bad = bundle_of("bob", 2, more=b"rules: {b: 'role in ['}"), bundle_of("bob", 2, "other"), bundle_of("bob", 0)
        for content in bad:
            server.bodies[PATH] = content
            assert loader.load(poll=True).failure
            before = downloads(server)
            assert all(loader.load(poll=True).unchanged for _ in range(3))
            assert downloads(server) == before
            assert trees(place) == 1


def downloads(server: BundleServer) -> int:
    return len([status for _, _, status in server.requests if status == 200])


def test_content_at_hand_is_taken_while_the_source_is_silent(tmp_path: Path) -> None:
    with bundle_server() as server:
        write_keys(tmp_path)
        place = Place(tmp_path, {"http": server.url(), "keys": ["one.pub"]}, lambda user, number: None)
        server.bodies[PATH] = bundle_of("alice", 1)
        loader = place.loader()
        assert serves(loader.load(poll=False), "alice")
        server.bodies[PATH] = bundle_of("bob", 2)
        shutil.rmtree(place.bundles)
        place.bundles.write_text("in the way")
        assert loader.load(poll=True).failure
        place.bundles.unlink()
        server.answers[PATH] = (500, {}, b"")
        result = loader.load(poll=True)
        assert serves(result, "bob")
        assert "status 500" in result.source.trouble


def test_a_removed_folder_or_a_file_in_its_place_ends(place: Place) -> None:
    place.publish("alice", 1)
    loader = place.loader()
    assert serves(loader.load(poll=False), "alice")
    shutil.rmtree(place.bundles)
    place.publish("bob", 2)
    assert serves(loader.load(poll=True), "bob")
    shutil.rmtree(place.bundles)
    place.bundles.write_text("in the way")
    place.publish("carol", 3)
    for _ in range(3):
        assert "`policies.source`" in loader.load(poll=True).failure
    place.bundles.unlink()
    assert serves(loader.load(poll=True), "carol")
    shutil.rmtree(place.bundles)
    assert serves(loader.load(poll=True), "carol")  # the tree is made again
    assert loader.load(poll=True).unchanged


def test_a_removed_note_brings_no_older_bundle_back(tmp_path: Path) -> None:
    with http_place(tmp_path) as place:
        place.publish("alice", 5)
        loader = place.loader()
        assert serves(loader.load(poll=False), "alice")
        shutil.rmtree(place.bundles)
        place.publish("bob", 4)
        assert "has number 4, and 5 was in use already" in loader.load(poll=True).failure


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file grow beyond a size. The system ends a write there, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_writes_may_end_after_any_byte(tmp_path: Path) -> None:
    with http_place(tmp_path) as place:
        number = 1
        place.publish("alice1", number)
        loader = place.loader()
        assert serves(loader.load(poll=False), "alice1")
        largest = max(path.stat().st_size for path in place.bundles.glob("bundle-*"))
        for size in range(0, largest + 32, 37):
            number += 1
            place.publish(f"alice{number}", number)
            with largest_file(size):
                met = loader.load(poll=True)
            assert serves(met, f"alice{number}") or serves(loader.load(poll=True), f"alice{number}"), size
            assert (trees(place), leftovers(place)) == (1, [])


def test_a_full_file_system_that_gets_room_again(place: Place) -> None:
    place.bundles.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "pdp-test", str(place.bundles)]
    if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True, check=False).returncode:
        not_tested("a full file system", "this user mounts nothing", mend="")
    try:
        place.publish("alice", 1)
        loader = place.loader()
        assert serves(loader.load(poll=False), "alice")
        filler = place.bundles / "filler"
        fill(filler)
        place.publish("bob", 2)
        for _ in range(2):
            assert "No space left" in loader.load(poll=True).failure
        assert trees(place) == 1
        filler.unlink()
        assert serves(loader.load(poll=True), "bob")
        assert trees(place) == 1
    finally:
        subprocess.run(["umount", str(place.bundles)], check=True)


def fill(file: Path) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(descriptor, b"x" * 4096):
            pass
    except OSError:
        pass
    finally:
        os.close(descriptor)
