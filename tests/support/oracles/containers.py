"""Containers of a pod as processes: a root of its own, the manifest's mounts, user, rights and limit of memory.

The image is that of `deploy/Dockerfile`, with the Python environment of the tests in the place of its own. Needs root
on Linux; elsewhere, tests are skipped. Without a memory cgroup that can be written, the limit is not applied.
"""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from support.paths import ROOT
from support.servers.private_network import private_network
from support.service.deployment import Document, Image, Manifest, memory_bytes

ADDRESS: Final = "10.99.0.2"
"""Address of the pod, at which others reach it."""
UNTESTED: Final = "with the manifest of the sidecar"
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/ssl", "/dev", "/proc")
_GROUP: Final = 999
"""Group of the image's user."""
_NUMBERS = itertools.count()


@dataclass
class Pod:
    """Pod of a manifest: its volumes are folders in `folder`."""

    manifest: Manifest
    image: Image
    folder: Path

    def __post_init__(self) -> None:
        self._sandbox = self.folder / "root"
        self._sandbox.mkdir()
        for volume in self.manifest.pod["volumes"]:
            self._make_volume(self.folder / "volumes" / volume["name"], self.manifest.volume_files(volume["name"]))

    @contextmanager
    def running(self, name: str, arguments: Sequence[str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """Run a container; `arguments` replace those of the manifest."""
        with ExitStack() as held, (self.folder / f"{name}.log").open("ab") as log:
            group = held.enter_context(_memory_group(self._limit(name)))
            started = [*self.image.entrypoint, *(arguments or self._arguments(name))]
            process = self._start(name, started, stdout=log, stderr=log, group=group)
            try:
                yield process
            finally:
                process.kill()
                process.wait(20)

    def execute(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end beside a container, as `kubectl exec` does."""
        process = self._start(name, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(command, process.returncode, out.decode(), err.decode())

    def log(self, name: str) -> str:
        """Return what a container has written."""
        return (self.folder / f"{name}.log").read_text()

    def _arguments(self, name: str) -> Sequence[str]:
        arguments: Sequence[str] = self.manifest.container(name).get("args", self.image.command)
        return arguments

    def _limit(self, name: str) -> int:
        return memory_bytes(self.manifest.container(name)["resources"]["limits"]["memory"])

    def _start(
        self, name: str, command: Sequence[str], stdout: int | IO[bytes], stderr: int | IO[bytes],
        group: Path | None = None,
    ) -> subprocess.Popen[bytes]:  # fmt: skip
        join = [f"echo $$ > {group}/cgroup.procs"] if group else []
        script = "\n".join(["set -e", *join, *self._root(name), self._become(name, command)])
        return subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd="/", env=dict(self.image.environment),
        )  # fmt: skip

    def _root(self, name: str) -> Iterator[str]:
        """Yield the commands that make the container's root."""
        root = self._sandbox
        container = self.manifest.container(name)
        yield f"mount -t tmpfs -o mode=755 image {root}"
        yield f"mkdir -m 1777 {root}/tmp"
        yield f"mkdir -p {root}/etc {root}/opt/pdp/bin {root}/{self.image.home}"
        user, fs_group = self.image.user, self._fs_group()
        yield f"chown {user}:{_GROUP} {root}/{self.image.home}; chmod 700 {root}/{self.image.home}"
        yield f"echo 'pdp:x:{user}:{_GROUP}::{self.image.home}:/bin/sh' > {root}/etc/passwd"
        yield f"echo 'pdp:x:{_GROUP}:\nshared:x:{fs_group}:' > {root}/etc/group"
        yield f"echo '127.0.0.1 localhost' > {root}/etc/hosts"
        shim = f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m pdp "$@"\n'
        yield f"printf %s {shlex.quote(shim)} > {root}/opt/pdp/bin/pdp; chmod 755 {root}/opt/pdp/bin/pdp"
        for path in (*_SYSTEM, str(ROOT / "pdp"), str(ROOT / "rules"), sys.prefix, sys.base_prefix):
            yield from _bind(Path(path), root)
        for mount in container.get("volumeMounts", ()):
            source = self.folder / "volumes" / mount["name"] / mount.get("subPath", "")
            yield from _bind(source, root, mount["mountPath"], read_only=self._is_read_only(mount))
        if container["securityContext"].get("readOnlyRootFilesystem"):
            yield f"mount -o remount,ro {root}"

    def _become(self, name: str, command: Sequence[str]) -> str:
        """Return the command that drops all rights and becomes the container's command."""
        context = self.manifest.container(name)["securityContext"]
        user = context.get("runAsUser", self.image.user)
        assert user or not context.get("runAsNonRoot"), "the container would run as root"
        rights = [f"--reuid={user}", f"--regid={_GROUP}", f"--groups={self._fs_group()}"]
        if context.get("capabilities") == {"drop": ["ALL"]}:
            rights += ["--bounding-set=-all", "--inh-caps=-all"]
        if context.get("allowPrivilegeEscalation") is False:
            rights.append("--no-new-privs")
        inner = f"cd {self.image.folder} && exec {shlex.join(command)}"
        return f"exec chroot {self._sandbox} setpriv {' '.join(rights)} sh -c {shlex.quote(inner)}"

    def _is_read_only(self, mount: Document) -> bool:
        return bool(mount.get("readOnly")) or self.manifest.volume_files(mount["name"]) is not None

    def _fs_group(self) -> int:
        group: int = self.manifest.pod["securityContext"]["fsGroup"]
        return group

    def _make_volume(self, folder: Path, files: Any) -> None:
        """Make a folder that the pod's group may write, or the files of a ConfigMap with the links of Kubernetes."""
        folder.mkdir(parents=True)
        if files is None:
            os.chown(folder, 0, self._fs_group())
            folder.chmod(0o2775)
            return
        (folder / "..data").symlink_to("..2026")
        (folder / "..2026").mkdir()
        for name, text in files.items():
            (folder / "..2026" / name).write_text(text)
            (folder / name).symlink_to(f"..data/{name}")


@contextmanager
def pod_of(manifest: Manifest, image: Image, folder: Path) -> Iterator[Pod]:
    """Make a pod, and move this thread into its network; skip without root."""
    with private_network(UNTESTED, ADDRESS):
        yield Pod(manifest, image, folder)


def _bind(source: Path, root: Path, target: str = "", *, read_only: bool = True) -> Iterator[str]:
    """Yield the commands that make a file or folder visible in the new root."""
    place = f"{root}{target or source}"
    if source.is_symlink() and not target:
        yield f"ln -s {source.readlink()} {place}"
        return
    if not source.exists():
        return
    yield f"mkdir -p {place}" if source.is_dir() else f"mkdir -p $(dirname {place}); touch {place}"
    yield f"mount --rbind {source} {place}"
    if read_only and str(source) not in {"/dev", "/proc"}:
        yield f"mount -o remount,bind,ro {place}"


@contextmanager
def _memory_group(limit: int) -> Iterator[Path | None]:
    """Yield a cgroup with a limit of memory; None where none can be made."""
    mounted = Path("/sys/fs/cgroup")
    first = (mounted / "memory").is_dir()
    group = (mounted / "memory" if first else mounted) / f"pdp-tests-{os.getpid()}-{next(_NUMBERS)}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(limit))
    except OSError:
        _remove(group, attempts=1)
        yield None
        return
    try:
        yield group
    finally:
        _remove(group)


def _remove(group: Path, attempts: int = 100) -> None:
    """Remove a cgroup, whose processes may need a moment to be gone."""
    for _ in range(attempts):
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return
