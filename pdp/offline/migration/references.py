"""Parts of a deployment outside of a manifest: volumes, objects, files of docker compose, kustomize, Argo CD and Flux.

Finds references by their keys, at every depth. Reads no text behind a reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from pdp.config.quarkus.properties import ConfigEntry
from pdp.config.quarkus.yaml_text import items_of, pairs_of, position_of, scalar
from pdp.offline.migration.dockerfiles import READ_FOLDERS, Mount, collect_mounts, covers, is_bridge
from pdp.offline.migration.variables import (
    BUILT,
    IMAGE,
    NOT_GIVEN,
    OF_COMPOSE,
    OF_OTHERS,
    REPLACED,
    ManifestContent,
    Reference,
    StoredObject,
    Use,
    entry_of,
    is_other_image,
    is_stock_image,
)

_EMPTY: Final = frozenset({"emptyDir", "ephemeral", "persistentVolumeClaim", "downwardAPI", "tmpfs", "volume"})
"""Kinds of volumes that hold data."""
_VOLUMES: Final = re.compile(r"(?:volumes|\w+Volumes)")
_POD: Final = re.compile(r"containers|volumes|\w+Volumes|\w+VolumeMounts")
"""Key of a pod, or of values of a chart about one."""
_ENV_FROM: Final = re.compile(r"(?:envFrom|\w+EnvFrom|env_file|\w+[eE]nvFiles?|environmentFiles)")
_EXISTING: Final = re.compile(
    r"existing\w*(?:Secret|ConfigMap)\w*|\w*[eE]nv\w*(?:Secret|ConfigMap|CM)(?:Name)?|\w*[cC]onfigMapName"
)
"""Key of a chart whose value names an object."""
_SETTING: Final = re.compile(
    r"auth|image\.re|advancedConfig|extra|env|volume|config|secret|java|jvm|command|args|opa|values|catalog",
    re.IGNORECASE,
)
"""Word in the name of a parameter of a chart, or in a patch, that is about settings."""
_PATCHED: Final = re.compile(
    r"\b(?:\$patch|env|envFrom|volumes?|volumeMounts|command|args|data|stringData|values\w*|initContainers|containers"
    r"|authorization|advancedConfig|rules|configMap\w*|secret\w*)\b"
)
_FILES: Final = frozenset({"valueFiles", "valuesFiles", "valuesFile", "additionalValuesFiles"})
_OF_KUSTOMIZE: Final = frozenset({"resources", "components", "bases", "generators", "transformers", "configurations"})
_PATCHES: Final = frozenset({"patches", "patchesJson6902", "patchesStrategicMerge", "postRenderers", "replacements"})
_PATH: Final = re.compile(r"[^\s{]+")
_GENERATORS: Final[Mapping[str, str]] = {"configMapGenerator": "ConfigMap", "secretGenerator": "Secret"}
_COMPOSE_KEYS: Final = frozenset({"include", "configs", "secrets", "volumes"})
_BIND: Final = re.compile(r"(?P<source>(?:[A-Za-z]:)?[^:]*|\$\{[^}]*\}[^:]*):(?P<target>[^:]+)(?::[\w,]+)?")
_AGENT: Final = re.compile(r"vault\.hashicorp\.com/agent-inject-(?:secret|template)-")
_HARMLESS_NOTE: Final = re.compile(
    r"[^/]*|checksum/.*|vault\.hashicorp\.com/.*"
    r"|(?:[\w-]+\.)*(?:kubernetes\.io|k8s\.io|prometheus\.io|istio\.io|linkerd\.io|helm\.sh|argoproj\.io|stakater\.com"
    r"|fluxcd\.io|elastic\.co|grafana\.com|eks\.amazonaws\.com)/.*"
)
"""Annotation of a pod for programs that bring the container no settings."""
_INJECTED: Final = "is for a program that may add variables or files to the pod: write them into the manifest"
_CANNOT: Final = "may hold settings, and its content is not in these files: write them into a file"
_WRITTEN: Final = "is filled while the server runs or before it starts, and may hold settings: write them into a file"
_CHART_TEXT: Final = "holds values of a chart, which are not read there: migrate the output of `helm template`"
_DATA: Final = "holds data, where the server reads no settings"
_WATCHED: Final = "is copied into the container while it runs, and may hold settings: write them into a file"
_PATCH: Final = "changes settings, and is not read: migrate the output of `kustomize build`"
_INIT: Final = "runs before the server, and may write settings: write them into a file"


class ReferenceFinder:
    """Finder of references in the mappings of a file."""

    def __init__(self, file: Path, content: ManifestContent, *, is_compose: bool) -> None:
        self._file = file
        self._to = content
        self._is_compose = is_compose
        self.workload: tuple[str, ...] = ()

    def find(self, pairs: Mapping[str, Any], above: str, *, is_other: bool) -> frozenset[str]:
        """Add the references of a mapping; return the keys without further content."""
        done = set()
        if self._is_compose and above.count(".") <= 2:  # the root, all services, or a service
            done |= self._find_of_compose(pairs, above, is_other=is_other)
        if any(map(_POD.fullmatch, pairs)):
            self._find_volumes(pairs, is_other=is_other)
        kind = scalar(pairs.get("kind"))
        spec = pairs_of(pairs.get("spec"))
        if kind in ("Kustomization", "Component") or (self._file.stem.lower() == "kustomization" and not above):
            done |= self._find_of_kustomize(pairs)
        if "path" in pairs and "repoURL" in pairs:
            self._add(pairs["path"], "file", NOT_GIVEN)
        if "path" in spec and "sourceRef" in spec:
            self._add(spec["path"], "file", NOT_GIVEN)
        self._find_notes(pairs, above)
        for key, value in pairs.items():
            if self._find_by_key(key, value, is_other=is_other):
                done.add(key)
        return frozenset(done)

    def _find_by_key(self, key: str, value: Any, *, is_other: bool) -> bool:
        """Add the references of a key; tell whether there is no further content."""
        if _ENV_FROM.fullmatch(key):
            for node in items_of(value):
                self._add_env_from(node, is_other=is_other)
            return True
        if _EXISTING.fullmatch(key) and scalar(value):
            self._add(value, "Secret" if "ecret" in key else "ConfigMap", NOT_GIVEN)
        elif _AGENT.match(key):
            self._add_part(key, value, _CANNOT, is_volume=True, target="/")
        elif key == "extraInitContainers" and items_of(value) and not isinstance(value, yaml.MappingNode):
            self._add_part(key, value, _INIT, is_volume=True)
        elif key in _PATCHES:
            self._find_patches(value)
        else:
            self._find_of_tools(key, value, is_other=is_other)
            self._find_values(key, value)
            self._find_registry(pairs_of(value) if key == "global" else {})
        return False

    def _find_of_tools(self, key: str, value: Any, *, is_other: bool) -> None:
        """Add patches, images and volumes of kustomize, Argo CD and Amazon ECS, and a moved folder of a chart."""
        if key == "templatePatch" and scalar(value):
            self._add_part(key, value, _PATCH)
        elif key == "images":
            self._find_images(value)
        elif key in ("mountPoints", "volumesFrom") and not is_other:
            self._find_volumes_of_task(value)
        elif key == "configDir" and scalar(value).rstrip("/") not in ("", str(READ_FOLDERS[0])):
            self._add_part(key, value, "moves the file of the chart to where Nessie does not read it by itself")
        elif key == "$patch" or (key == "op" and scalar(value) in ("remove", "replace", "move")):
            self._add_part("a patch", value, _PATCH)

    def _find_images(self, value: Any) -> None:
        """Add the images of other makers that kustomize puts in place of a server's."""
        for node in items_of(value):
            name = scalar(pairs_of(node).get("newName")) or scalar(node).rpartition("=")[2]
            is_other = is_other_image(name) or is_other_image(scalar(pairs_of(node).get("name")))
            if name and not is_stock_image(name) and not is_other:
                self._add_part(name, node, IMAGE)

    def _find_volumes_of_task(self, value: Any) -> None:
        """Add volumes over settings in a container of Amazon ECS."""
        for one in map(pairs_of, items_of(value)):
            target = scalar(one.get("containerPath")) or "/"
            name = one.get("sourceVolume", one.get("sourceContainer", value))
            if covers(target, is_bridge=False):
                self._add_part(scalar(name), name, _CANNOT, is_volume=True, target=target)

    def _find_notes(self, pairs: Mapping[str, Any], above: str) -> None:
        """Add the annotations of a pod for programs that may change the pod."""
        is_pod = above.endswith(("template.metadata.annotations", "odAnnotations")) or self.workload[1:2] == ("Pod",)
        for key, value in pairs.items() if is_pod and above.endswith("nnotations") else ():
            if not _HARMLESS_NOTE.fullmatch(key) and not _AGENT.match(key):
                self._add_part(key, value, _INJECTED)

    def _find_values(self, key: str, value: Any) -> None:
        """Add files, texts and parameters with values of a chart."""
        if key in _FILES:
            for node in items_of(value):
                self._add(node, "file", NOT_GIVEN)
        elif key in ("valuesFrom", "substituteFrom"):
            for one in map(pairs_of, items_of(value)):
                name = one.get("name", value)
                self._add_part(scalar(name), name, _CHART_TEXT)
                self._to.uses.append(Use(scalar(one.get("kind")), scalar(name), path=f"/{key}"))
        elif key in ("values", "valuesInline") and scalar(value).strip():
            self._add_part(key, value, _CHART_TEXT)
        elif key in ("parameters", "fileParameters"):
            for one in map(pairs_of, items_of(value)):
                name = one.get("name")
                if name is not None and ("path" in one or _SETTING.search(scalar(name))):
                    self._add_part(scalar(name), name, _CHART_TEXT)

    def _find_patches(self, value: Any) -> None:
        """Add patches: files, and texts about settings."""
        for node in items_of(value):
            pairs = pairs_of(node)
            path = pairs.get("path", node)
            if _PATH.fullmatch(scalar(path)):
                self._add(path, "file", NOT_GIVEN)
                continue
            text = pairs.get("patch", node)
            if not scalar(text) or _PATCHED.search(scalar(text)):
                self._add_part("a patch", text, _PATCH)

    def _add_env_from(self, node: Any, *, is_other: bool) -> None:
        """Add an object or a file of variables."""
        pairs = pairs_of(node)
        for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if key in pairs:
                name = pairs_of(pairs[key]).get("name")
                self._add(name if name is not None else pairs[key], kind, NOT_GIVEN, is_ignored=is_other)
                if not is_other:
                    self._to.uses.append(Use(kind, scalar(name), prefix=scalar(pairs.get("prefix"))))
                return
        path = pairs.get("path", pairs.get("value", node))
        form = "docker" if scalar(pairs.get("format")) == "raw" or "value" in pairs else "compose"
        message = OF_OTHERS if is_other else NOT_GIVEN
        self._to.references.append(Reference(self._entry(scalar(path), path), "file", message, form, False, is_other))

    def _find_volumes(self, pairs: Mapping[str, Any], *, is_other: bool) -> None:
        """Add the volumes of a pod, or of a chart's values, with their places in containers."""
        mounts: dict[str, list[Mount]] = {}
        collect_mounts(pairs, mounts, is_other=is_other)
        named = set()
        for key in pairs:
            for node in items_of(pairs[key]) if _VOLUMES.fullmatch(key) else ():
                volume = pairs_of(node)
                if "name" in volume and len(volume) > 1:
                    named.add(scalar(volume["name"]))
                    self._add_volume(volume, mounts.get(scalar(volume["name"]), []))
        for name in sorted(mounts.keys() - named):
            over = [mount.path for mount in mounts[name] if mount.covers() and not mount.is_other]
            if over:
                entry = self._entry(name, next(iter(pairs.values())))
                self._to.references.append(Reference(entry, "", _CANNOT, "", True, False, over[0]))

    def _add_volume(self, volume: Mapping[str, Any], mounts: Sequence[Mount]) -> None:
        is_other = bool(mounts) and all(mount.is_other for mount in mounts)
        own = [mount for mount in mounts if not mount.is_other] or [Mount("", "", False)]
        sources = {key: value for key, value in volume.items() if key != "name"}
        projected = pairs_of(sources.pop("projected", None)).get("sources")
        parts = [*sources.items(), *(pair for one in items_of(projected) for pair in pairs_of(one).items())]
        for key, value in parts:
            below = pairs_of(value)
            if key in ("configMap", "secret"):
                kind = "ConfigMap" if key == "configMap" else "Secret"
                name = below.get("secretName" if key == "secret" and "secretName" in below else "name", value)
                self._add(name, kind, NOT_GIVEN, is_volume=True, is_ignored=is_other)
                listed = [one for one in map(pairs_of, items_of(below.get("items"))) if "key" in one]
                items = {scalar(one["key"]): scalar(one.get("path")) for one in listed}
                for mount in () if is_other else own:
                    use = Use(kind, scalar(name), None, mount.path, items or None, mount.sub_path)
                    self._to.uses.append(use._replace(container=(*self.workload, mount.container)))
            elif key not in ("serviceAccountToken", "clusterTrustBundle", "podCertificate"):
                over = [mount.path for mount in own if mount.covers()]
                holds_data = key in _EMPTY and not over
                self._add_unknown(volume["name"], key, "".join(over[:1]), is_other=is_other, holds_data=holds_data)

    def _add_unknown(self, name: Any, kind: str, target: str, *, is_other: bool, holds_data: bool) -> None:
        message = OF_OTHERS if is_other else _DATA if holds_data else _WRITTEN if kind in _EMPTY else _CANNOT
        entry = self._entry(f"{scalar(name)}` of `{kind}", name)
        self._to.references.append(Reference(entry, "", message, "", True, is_other or holds_data, target))

    def _find_of_kustomize(self, pairs: Mapping[str, Any]) -> set[str]:
        for key in _OF_KUSTOMIZE & pairs.keys():
            for node in items_of(pairs[key]):
                self._add(node, "file", NOT_GIVEN)
        for key in _GENERATORS.keys() & pairs.keys():
            for one in map(pairs_of, items_of(pairs[key])):
                self._add_generated(_GENERATORS[key], one)
        return {*_OF_KUSTOMIZE, *_GENERATORS} & pairs.keys()

    def _add_generated(self, kind: str, pairs: Mapping[str, Any]) -> None:
        """Add an object made by kustomize of texts and files."""
        entries = []
        for node in items_of(pairs.get("literals")):
            key, _, text = scalar(node).partition("=")
            if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
                text = text[1:-1]
            entries.append(self._entry(key, node)._replace(text=text))
        for node in (*items_of(pairs.get("envs")), *items_of(pairs.get("env"))):
            held = (kind, scalar(pairs.get("name")), "")
            self._to.references.append(Reference(self._entry(scalar(node), node), "file", form="docker", held=held))
        for node in items_of(pairs.get("files")):
            key, _, path = scalar(node).rpartition("=")
            held = (kind, scalar(pairs.get("name")), key or PurePosixPath(path).name)
            self._to.references.append(Reference(self._entry(path, node), "file", held=held))
        self._to.objects.append(StoredObject(kind, scalar(pairs.get("name")), entries))

    def _find_of_compose(self, pairs: Mapping[str, Any], above: str, *, is_other: bool) -> set[str]:
        if not above:
            self._find_at_root(pairs)
            texts = any(isinstance(node, yaml.ScalarNode) for node in pairs_of(pairs.get("configs")).values())
            return set(_COMPOSE_KEYS & pairs.keys()) - ({"configs"} if texts else set())
        if not re.fullmatch(r"\.services\.[^.]+", above):
            return set()
        for node in items_of(pairs_of(pairs.get("extends")).get("file")):
            self._add(node, "file", NOT_GIVEN)
        self._find_build(pairs.get("build"))
        if not is_other:
            self._find_of_service(pairs, above)
        for node in items_of(pairs.get("volumes")):
            self._add_compose_volume(node, is_other=is_other, of_bridge=is_bridge(pairs))
        for node in items_of(pairs.get("tmpfs")):
            place = scalar(node).partition(":")[0]
            holds_data = not covers(place, is_bridge=is_bridge(pairs)) and "$" not in place
            self._add_unknown(node, "tmpfs", place, is_other=is_other, holds_data=holds_data)
        for key in ("configs", "secrets"):
            for node in items_of(pairs.get(key)):
                self._add_compose_use(key, node, is_other=is_other)
        return {"extends", "build", "profiles", "volumes", "tmpfs", "configs", "secrets"} & pairs.keys()

    def _find_of_service(self, pairs: Mapping[str, Any], above: str) -> None:
        """Add what decides whether a service runs, and what brings files to it."""
        if "profiles" in pairs:
            message = "decides whether the service runs: remove `profiles`, or the service, as it is"
            self._add_part(above.rpartition(".")[2], pairs["profiles"], message, is_volume=True)
        for node in items_of(pairs.get("volumes_from")):
            self._add_part(scalar(node), node, _CANNOT, is_volume=True, target="/")
        for one in map(pairs_of, items_of(pairs_of(pairs.get("develop")).get("watch"))):
            if covers(scalar(one.get("target")) or "/", is_bridge=is_bridge(pairs)):
                self._add_part(scalar(one.get("path")), one.get("path", pairs["develop"]), _WATCHED, is_volume=True)

    def _find_at_root(self, pairs: Mapping[str, Any]) -> None:
        for node in items_of(pairs.get("include")):
            for key in ("path", "env_file"):
                for path in items_of(pairs_of(node).get(key)) if pairs_of(node) else [node] if key == "path" else ():
                    self._add(path, "file", NOT_GIVEN)
        for key in ("configs", "secrets"):
            for name, node in pairs_of(pairs.get(key)).items():
                self._add_compose_object(key, name, pairs_of(node), node)
        for name, node in pairs_of(pairs.get("volumes")).items():
            if "driver_opts" in pairs_of(node):
                self._add_part(name, node, _CANNOT, is_volume=True)

    def _add_compose_object(self, key: str, name: str, pairs: Mapping[str, Any], node: Any) -> None:
        text = pairs.get("content")
        if OF_COMPOSE.search(scalar(text)):
            self._add_part(name, text, REPLACED, is_volume=True)
            self._to.objects.append(StoredObject(key, name, []))
        elif text is not None:
            entry = self._entry("", text)._replace(text=scalar(text).replace("$$", "$"))
            self._to.objects.append(StoredObject(key, name, [entry]))
        elif "file" in pairs:
            entry = self._entry(scalar(pairs["file"]), pairs["file"])
            self._to.references.append(Reference(entry, "file", is_volume=True, held=(key, name, "")))
            self._to.objects.append(StoredObject(key, name, []))
        elif pairs:
            self._add_part(name, node, _CANNOT, is_volume=True)
            self._to.objects.append(StoredObject(key, name, []))

    def _add_compose_use(self, key: str, node: Any, *, is_other: bool) -> None:
        pairs = pairs_of(node)
        source = pairs.get("source", node)
        default = f"/{scalar(source)}" if key == "configs" else f"/run/secrets/{scalar(source)}"
        self._add(source, key, NOT_GIVEN, is_volume=True, is_ignored=is_other)
        if not is_other:
            self._to.uses.append(Use(key, scalar(source), path=scalar(pairs.get("target")) or default))

    def _add_compose_volume(self, node: Any, *, is_other: bool, of_bridge: bool) -> None:
        pairs = pairs_of(node)
        match = _BIND.fullmatch(scalar(node))
        source = scalar(pairs.get("source")) if pairs else match["source"] if match else ""
        target = scalar(pairs.get("target")) if pairs else match["target"] if match else scalar(node)
        is_bind = scalar(pairs.get("type")) == "bind" or bool(re.match(r"[./~$\\]|[A-Za-z]:", source))
        if is_bind:
            one = Reference(self._entry(source, node), "file", NOT_GIVEN, "", True, is_other, target)
            self._to.references.append(one._replace(message=OF_OTHERS) if is_other else one)
        else:
            holds_data = scalar(pairs.get("type")) in ("", *_EMPTY) and not covers(target, is_bridge=of_bridge)
            name = yaml.ScalarNode("", source or target, node.start_mark)
            self._add_unknown(name, "volume", target, is_other=is_other, holds_data=holds_data)

    def _find_build(self, node: Any) -> None:
        """Add the Dockerfile of an image built by docker compose."""
        pairs = pairs_of(node)
        if node is None or "dockerfile_inline" in pairs:
            self._to.references += [Reference(self._entry("dockerfile_inline", node), "", _CANNOT)] if pairs else []
            return
        context = scalar(pairs.get("context", node))
        name = scalar(pairs.get("dockerfile")) or "Dockerfile"
        path = f"{context}/{name}" if "://" in context else str(Path(context or ".", name))
        self._to.references.append(Reference(self._entry(path, node), "file", BUILT, scalar(pairs.get("target"))))

    def _add(self, node: Any, kind: str, message: str, *, is_volume: bool = False, is_ignored: bool = False) -> None:
        message = OF_OTHERS if is_ignored else message
        entry = self._entry(scalar(node), node)
        reference = Reference(entry, kind, message, "", is_volume, is_ignored)
        self._to.references.append(reference if kind == "file" else reference._replace(container=self.workload))

    def _add_part(self, name: str, node: Any, message: str, *, is_volume: bool = False, target: str = "") -> None:
        self._to.references.append(Reference(self._entry(name, node), "", message, "", is_volume, target=target))

    def add_image(self, node: Any) -> None:
        """Add an image with possible settings of its own."""
        self._add_part(scalar(node), node, IMAGE)

    def add_chart_image(self, node: Any) -> None:
        """Add the image in the values of a chart, unless it is of the makers of the server."""
        pairs = pairs_of(node)
        name = "/".join(filter(None, (scalar(pairs.get("registry")), scalar(pairs.get("repository")))))
        if name and not is_stock_image(name) and not is_other_image(name):
            self._add_part(name, pairs.get("repository", node), IMAGE)

    def _find_registry(self, pairs: Mapping[str, Any]) -> None:
        """Add a registry of a chart's images in place of that of the makers."""
        node = pairs.get("imageRegistry", pairs_of(pairs.get("image")).get("registry"))
        if scalar(node) and not is_stock_image(f"{scalar(node)}/lakekeeper/"):
            self._add_part(scalar(node), node, IMAGE)

    def _entry(self, name: str, node: Any) -> ConfigEntry:
        return entry_of(name, scalar(node), self._file, position_of(node))
