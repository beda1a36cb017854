"""`deploy/Dockerfile` and `deploy/sidecar.yaml`, read as Docker and Kubernetes read them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from support.paths import ROOT

DEPLOY: Final = ROOT / "deploy"
UNITS: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
Document = dict[str, Any]


@dataclass(frozen=True)
class Image:
    """Settings of the last stage of a Dockerfile."""

    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    healthcheck: tuple[str, ...]
    environment: Mapping[str, str]
    user: int
    home: str
    folder: str


def read_image(file: Path = DEPLOY / "Dockerfile") -> Image:
    """Return the settings of the service's image."""
    stage = file.read_text().replace("\\\n", "").rpartition("\nFROM ")[2]

    def words(instruction: str) -> str:
        found = re.search(rf"^{instruction} (.*)$", stage, re.MULTILINE)
        assert found, f"the Dockerfile has no {instruction}"
        return found[1]

    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    pairs = (pair.partition("=") for pair in words("ENV").split())
    added = re.search(r"useradd .*--uid (\d+) .*--home-dir (\S+)", stage)
    assert added, "the Dockerfile adds no user"
    return Image(
        entrypoint=tuple(json.loads(words("ENTRYPOINT"))),
        command=tuple(json.loads(words("CMD"))),
        healthcheck=tuple(json.loads(words("HEALTHCHECK").partition("CMD ")[2])),
        environment={"PATH": path, **{name: value.replace("$PATH", path) for name, _, value in pairs}},
        user=int(words("USER")),
        home=added[2],
        folder=words("WORKDIR"),
    )


@dataclass(frozen=True)
class Manifest:
    """Documents of a manifest with one Deployment."""

    documents: tuple[Document, ...]

    def of_kind(self, kind: str) -> dict[str, Document]:
        """Return the documents of a kind by name."""
        return {each["metadata"]["name"]: each for each in self.documents if each["kind"] == kind}

    @property
    def pod(self) -> Document:
        """Return the specification of the Deployment's pod."""
        (deployment,) = self.of_kind("Deployment").values()
        pod: Document = deployment["spec"]["template"]["spec"]
        return pod

    def container(self, name: str) -> Document:
        """Return a container of the pod."""
        container: Document = next(each for each in self.pod["containers"] if each["name"] == name)
        return container

    def volume_files(self, name: str) -> Mapping[str, str] | None:
        """Return the files of a volume from a ConfigMap; None for a volume that is written."""
        (volume,) = (each for each in self.pod["volumes"] if each["name"] == name)
        if "configMap" in volume:
            files: Mapping[str, str] = self.of_kind("ConfigMap")[volume["configMap"]["name"]]["data"]
            return files
        claim = volume.get("persistentVolumeClaim")
        assert "emptyDir" in volume or claim["claimName"] in self.of_kind("PersistentVolumeClaim"), volume
        return None

    def mounted_files(self, container: str, below: str) -> dict[str, str]:
        """Return the files that mounts bring below a folder of a container, by path from the folder."""
        found: dict[str, str] = {}
        for mount in self.container(container).get("volumeMounts", ()):
            files = self.volume_files(mount["name"]) or {}
            if "subPath" in mount:
                found[mount["mountPath"]] = files[mount["subPath"]]
            else:
                found.update({f"{mount['mountPath']}/{name}": text for name, text in files.items()})
        return {path.removeprefix(f"{below}/"): text for path, text in found.items() if path.startswith(f"{below}/")}


def read_manifest(text: str | None = None) -> Manifest:
    """Return a manifest; without a text, that of the sidecar."""
    return Manifest(tuple(yaml.safe_load_all(text or (DEPLOY / "sidecar.yaml").read_text())))


def memory_bytes(quantity: str) -> int:
    """Return a quantity such as `512Mi` in bytes."""
    return int(quantity[:-2]) * UNITS[quantity[-2:]]


def probe_url(container: Document, probe: str, host: str) -> str:
    """Return the address that a probe of a container asks."""
    get = container[probe]["httpGet"]
    named = {port["name"]: port["containerPort"] for port in container["ports"] if "name" in port}
    return f"http://{host}:{named.get(get['port'], get['port'])}{get['path']}"
