"""Files of Docker: Dockerfiles, manifests that docker compose joins, and places of volumes in containers.

Of an image: variables, commands and files, from its stage and the stages below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from pdp.config.quarkus.properties import ConfigEntry
from pdp.config.quarkus.yaml_text import items_of, pairs_of, scalar
from pdp.errors import Place, PolicyError
from pdp.offline.migration.foreign_lines import HEREDOC, DockerStep, docker_steps, is_harmless, is_left_out
from pdp.offline.migration.host_files import split_words
from pdp.offline.migration.java_options import script_commands
from pdp.offline.migration.variables import (
    COMMANDS,
    IMAGE,
    OF_HOOKS,
    ManifestContent,
    Reference,
    entry_of,
    is_stock_image,
    read_text,
    references_to,
    runs_another,
)


def read_image(content: ManifestContent, contents: Sequence[ManifestContent]) -> None:
    """Read a Dockerfile up to the stage that docker compose builds; name it if docker compose builds none of it."""
    file, text = content.file, read_text(content.file)
    builds = [one for one in references_to(file, contents)
              if (Path(one.entry.file).parent / one.entry.key).resolve() == file.resolve()]  # fmt: skip
    stages = sorted({one.form for one in builds})
    if len(stages) > 1:
        raise PolicyError("docker compose builds several stages of it: migrate each service alone", Place(str(file)))
    if not builds and any(one.is_compose for one in contents):
        content.references.append(Reference(entry_of(file.name, text, file, (1, 1)), "", _NOT_BUILT))
    else:
        _read_stages(text, file, content, "".join(stages))
        if any(one.commands for one in contents) and not all(map(_is_own, [_folder_of(content), *_folders(contents)])):
            content.references = [one._replace(target=one.target and "?") for one in content.references]


def _folders(contents: Sequence[ManifestContent]) -> Iterator[PurePosixPath]:
    """Yield the folders in which manifests start a container."""
    texts = (entry for one in contents for entry in one.rest if entry.key.endswith((".working_dir", ".workingDir")))
    yield from (PurePosixPath(entry.text) for entry in texts)


def _is_own(folder: PurePosixPath) -> bool:
    """Tell whether a command that starts in a folder finds the settings of the image."""
    return str(folder) in (".", "/deployments")


_NOT_BUILT: Final = "makes no image of these files of docker compose: give it without them, or write `build`"


def _read_stages(text: str, file: Path, content: ManifestContent, target: str = "") -> None:
    """Read the stage `target`, by default the last one, with the stages below: `ENV` and other sources of settings.

    Raise PolicyError for an unknown stage.
    """
    stages: list[tuple[str, str, ManifestContent]] = []
    for step in docker_steps(text, file):
        if step.word == "FROM":
            words = [one for one in step.rest.split() if not one.startswith("--")]
            name = words[2].lower() if len(words) > 2 else ""
            stages.append((name, words[0] if words else "", ManifestContent(file)))
            stages[-1][2].notes.append((entry_of(stages[-1][1], "", file, step.place), ""))
        else:
            _read_step(step, file, stages[-1][2] if stages else content)
    last = _stage_at(target, [one[0] for one in stages], file)
    content.dropped += [(one, _OTHER_STAGE) for _, _, stage in stages[last + 1 :] for one in stage.variables]
    below = ""
    for at in range(last, -1, -1):
        name, base, stage = stages[at]
        image = stage.notes.pop()[0]
        if at < last and name != below.lower():
            content.dropped += [(one, _OTHER_STAGE) for one in stage.variables]
            continue
        below = base
        if base.lower() not in {one[0] for one in stages[:at]} and not is_stock_image(base):
            content.references.append(Reference(image, "", IMAGE))
        content.variables += stage.variables
        content.elsewhere += stage.elsewhere
        content.references += stage.references
        content.rest += stage.rest
        content.dropped += stage.dropped
        content.commands += _joined_commands(stage.commands)


def _stage_at(target: str, names: Sequence[str], file: Path) -> int:
    """Return the position of a stage: the last one for ""; raise PolicyError for an unknown name."""
    if not target:
        return len(names) - 1
    found = [at for at, name in enumerate(names) if name == target.lower()]
    if not found:
        raise PolicyError(f"no stage `{target}`, which the manifest builds", Place(str(file)))
    return found[-1]


def _joined_commands(commands: Sequence[ConfigEntry]) -> Sequence[ConfigEntry]:
    """Return the commands of a stage, an ENTRYPOINT with its CMD as one. Others stay: which one runs is not known."""
    ordered = sorted(commands, key=lambda one: one.key, reverse=True)
    if [one.key for one in ordered] != ["ENTRYPOINT", "CMD"] or ordered[0].text.startswith("sh\0-c\0"):
        return commands
    return [ordered[0]._replace(text="\0".join(one.text for one in ordered))]


_OTHER_STAGE: Final = "is set in a stage that the image does not come of"
_WRITTEN: Final = "is text inside of the Dockerfile, which is not read: write it into a file, and copy that"


def _read_step(step: DockerStep, file: Path, content: ManifestContent) -> None:
    word, rest, bodies, place = step
    if word == "ENV":
        _read_env(rest, file, place, content)
    elif word in ("CMD", "ENTRYPOINT"):
        content.commands.append(entry_of(word, "\0".join(_command_words(rest)), file, place))
    elif word == "RUN" and not _changes_nothing(rest, bodies):
        entry = entry_of(f".{word}", f"{rest}\n{bodies}" if bodies else rest, file, place)
        content.rest.append(entry)
        reference = Reference(entry._replace(key=word, text=""), "", _RUNS, is_volume=True, target="/")
        content.references.append(reference)
    elif word == "HEALTHCHECK":
        content.dropped.append((entry_of(word, rest, file, place), OF_HOOKS))
    elif word == "SHELL" and not _SHELL.fullmatch(rest):
        content.references.append(Reference(entry_of(word, rest, file, place), "", _UNKNOWN_SHELL))
    elif word in ("COPY", "ADD"):
        _read_copy(rest, file, place, content, unpacks=word == "ADD")
        content.rest += [entry_of(f".{word}", bodies, file, place)] if bodies else []
    else:
        content.rest.append(entry_of(f".{word}", f"{rest}\n{bodies}" if bodies else rest, file, place))


_RUNS: Final = "may change any file of the image: write settings into variables, or remove the step"


def _changes_nothing(text: str, bodies: str) -> bool:
    """Tell whether a step installs packages, or makes and removes files of the system, and does nothing else."""
    words = re.sub(r"^(?:--\S+\s+)*", "", text)
    listed = _command_words(words)
    commands = [listed] if listed[:2] != ["sh", "-c"] else script_commands(words)
    return not bodies and commands is not None and all(map(is_harmless, commands))


def _command_words(text: str) -> Sequence[str]:
    """Return the words of a command: of a list in JSON, else of a shell."""
    try:
        words = json.loads(text)
    except ValueError:
        words = None
    is_list = isinstance(words, list) and all(isinstance(one, str) for one in words)
    return words if is_list else ["sh", "-c", text]


def _read_copy(rest: str, file: Path, place: tuple[int, int], content: ManifestContent, *, unpacks: bool) -> None:
    """Add what a step copies into the image: a file, or all that a folder or an archive has."""
    words = rest.strip("[]").replace('"', "").replace(",", " ").split()
    *named, target = [one for one in words if one[:2] != "--"] or [""]
    if unknown := [one for one in words if one[:2] == "--" and not _COPY_OPTION.fullmatch(one)]:
        content.references.append(Reference(entry_of(unknown[0], "", file, place), "", _UNKNOWN_OPTION))
    is_of_stage = any(one.startswith("--from") for one in words)
    beside = (file.with_name(".dockerignore"), file.with_name(f"{file.name}.dockerignore"))
    ignored = [line.strip() for one in beside if one.is_file() for line in read_text(one).splitlines()]
    sources = [one for name in named for one in ([] if is_of_stage else _matches(file.parent, name)) or [name]]
    into_folder = target.endswith(("/", ".")) or len(sources) > 1
    for source in sources:
        written = None if is_of_stage else HEREDOC.fullmatch(source)
        if written:
            path = str(PurePosixPath(_folder_of(content), target, written["name"] if into_folder else ""))
            entry = entry_of(source, "", file, place)
            content.references.append(Reference(entry, "", _WRITTEN, is_volume=True, target=path, is_copy=True))
            continue
        key = f"/{source.lstrip('/')}" if is_of_stage else source
        is_archive = unpacks and bool(_ARCHIVE.search(source))
        has_content = is_archive or source.endswith("/") or bool(_GLOB.search(source))
        has_content = has_content or (not is_of_stage and (file.parent / key).is_dir())
        name = PurePosixPath(source).name if into_folder and not has_content else ""
        path = str(PurePosixPath(_folder_of(content), target, name))
        entry = entry_of(key, "", file, place)
        content.references.append(Reference(entry, "file", is_volume=True, target=path, is_copy=True))
        if not is_of_stage and is_left_out(file, key, ignored):
            one = Reference(entry, "", _LEFT_OUT, is_volume=True, target=path, is_copy=True)
            content.references.append(one)


_LEFT_OUT: Final = "is copied without the files that `.dockerignore` leaves out: name each file, and remove the pattern"


_COPY_OPTION: Final = re.compile(r"--(?:from|chown|chmod|checksum)=.*|--(?:link|keep-git-dir)(?:=\w+)?")
"""Option of a copy that leaves out no file, and changes no path."""
_UNKNOWN_OPTION: Final = "is an option of a copy, which may change what is copied: name the files"
_SHELL: Final = re.compile(
    r"""\[\s*"(?:(?:/usr)?/bin/)?(?:ba|da|a)?sh"(?:\s*,\s*"(?:-[eux]+|-o|pipefail)")*\s*,\s*"-[eux]*o?c"(?:\s*,\s*"pipefail")?\s*\]"""
)
_UNKNOWN_SHELL: Final = "is a shell that may change every variable: write commands as lists"
_GLOB: Final = re.compile(r"[*?\[]")
_ARCHIVE: Final = re.compile(r"\.(?:tar|tgz|tbz2?|txz|gz|bz2|xz|zst)(?:\.\w+)?$", re.IGNORECASE)
_MOST_MATCHES: Final = 1000


def _matches(folder: Path, pattern: str) -> list[str]:
    """Return the paths that a pattern of a step finds in its folder; none for a name without a pattern.

    None for a pattern that Python does not know, and for very many paths: then anything may be copied.
    """
    if not _GLOB.search(pattern):
        return []
    try:
        found = list(islice(folder.glob(pattern.lstrip("/")), _MOST_MATCHES + 1))
    except (ValueError, NotImplementedError):
        return []
    return sorted(str(one.relative_to(folder)) for one in found) if len(found) <= _MOST_MATCHES else []


def _folder_of(content: ManifestContent) -> PurePosixPath:
    """Return the folder of a stage: the script of an image goes to its own folder, other commands stay."""
    return PurePosixPath("", *(entry.text.strip("\"'") for entry in content.rest if entry.key == ".WORKDIR"))


def _read_env(rest: str, file: Path, place: tuple[int, int], content: ManifestContent) -> None:
    words = split_words(rest)
    if words and "=" not in rest.split(maxsplit=1)[0]:
        name, _, text = rest.partition(" ")
        words = [f"{name}={text.strip()}"]
    for one in words:
        name, _, text = one.partition("=")
        known = not re.search(r"\$(?:\{|\w)", text)
        (content.variables if known else content.elsewhere).append(entry_of(name, text, file, place))


_COMPOSE_NAMES: Final = ("compose", "docker-compose")
_OVERRIDES: Final[Mapping[str, Sequence[str]]] = {
    f"{name}.{suffix}": [f"{other}.override.{one}" for other in _COMPOSE_NAMES for one in ("yml", "yaml")]
    for name in _COMPOSE_NAMES for suffix in ("yml", "yaml")
}  # fmt: skip
"""Manifest of docker compose -> files beside it that docker compose reads as well."""
_CHOICE: Final = re.compile(
    r"""^\s*(?:export\s+|Environment=["']?)?COMPOSE_(?P<name>FILE|PATH_SEPARATOR)\s*[=:][ \t]*(?P<value>[^\r\n]*)""",
    re.MULTILINE,
)
"""Variable with the manifests that docker compose joins, or with the sign between them."""


def name_compose_files(contents: Sequence[ManifestContent], given: Sequence[Path]) -> None:
    """Name the files that docker compose joins with a manifest: they may replace all of it. `given` have variables."""
    seen = set()
    for content in contents:
        for name in _OVERRIDES.get(content.file.name, ()) if content.is_compose else ():
            if content.file.with_name(name).exists():
                content.references.append(Reference(entry_of(name, "", content.file, (1, 1)), "file"))
        file = content.file if content.file in given else content.file.with_name(".env")
        if file.resolve() not in seen and (content.file in given or (content.is_compose and file.is_file())):
            seen.add(file.resolve())
            content.references += _chosen_files(file)


def _chosen_files(file: Path) -> Iterator[Reference]:
    """Yield the manifests that a file of variables makes docker compose join."""
    text = read_text(file)
    found = [
        (match["name"], match["value"].partition(" #")[0].strip(" \t\"'"), match) for match in _CHOICE.finditer(text)
    ]
    signs = re.escape("".join(value for name, value, _ in found if name == "PATH_SEPARATOR")) or ":;"
    for name, value, match in found:
        place = (text.count("\n", 0, match.start("name")) + 1, 1)
        if name == "FILE" and ("$" in value or "://" in value):
            yield Reference(entry_of("COMPOSE_FILE", value, file, place), "", _CHOSEN)
        elif name == "FILE":
            parts = filter(None, re.split(f"[{signs}]", value))
            yield from (Reference(entry_of(one, "", file, place), "file") for one in parts)


_CHOSEN: Final = (
    "names files that are joined with the manifest, and may replace all of it: give the files, or their paths"
)


READ_FOLDERS: Final = tuple(map(PurePosixPath, ("/deployments/config", "/deployments/.env", "/policies", "/etc/opa")))
"""Folders that Nessie and the bridge read by themselves."""
_MOUNTS: Final = re.compile(r"(?:volumeMounts|\w+VolumeMounts)")


class Mount(NamedTuple):
    """Place of a volume in a container of another program (`is_other`), or of the bridge, which reads any folder."""

    path: str
    sub_path: str
    is_other: bool
    container: str = ""
    is_bridge: bool = False

    def covers(self) -> bool:
        """Tell whether the volume can change settings."""
        return covers(self.path or "/", is_bridge=self.is_bridge)


def is_moved(pairs: Mapping[str, Any]) -> bool:
    """Tell whether a container starts the server in another folder, where it looks for its configuration.

    The start script of the image goes to its own folder, so a folder counts beside a command only.
    """
    folder = scalar(pairs.get("working_dir", pairs.get("workingDir", pairs.get("workingDirectory"))))
    has_command = not {"command", "entrypoint", "entryPoint"}.isdisjoint(pairs)
    return has_command and bool(folder) and PurePosixPath(folder) != READ_FOLDERS[0].parent


def covers(path: str, *, is_bridge: bool) -> bool:
    """Tell whether a mount can change a folder of settings. The bridge reads policies of any folder."""
    mounted = PurePosixPath(path)
    return (is_bridge and not mounted.is_relative_to("/tmp")) or any(  # noqa: S108  in a container
        mounted.is_relative_to(one) or one.is_relative_to(mounted) for one in READ_FOLDERS
    )


def is_bridge(pairs: Mapping[str, Any]) -> bool:
    """Tell whether a container may be the OPA bridge, by the image or the command."""
    words = {scalar(node) for name in COMMANDS for node in items_of(pairs.get(name))}
    return bool(_BRIDGE.search(scalar(pairs.get("image"))) or words & {"opa", "run"} or "build" in pairs)


_BRIDGE: Final = re.compile(r"(?:^|[/_.-])opa(?:[/_.:@-]|$)|openpolicyagent")


def collect_mounts(pairs: Mapping[str, Any], mounts: dict[str, list[Mount]], *, is_other: bool) -> None:
    """Add the places of volumes in all containers below a mapping."""
    is_other = is_other or runs_another(pairs)
    for key, value in pairs.items():
        for one in map(pairs_of, items_of(value)):
            if _MOUNTS.fullmatch(key):
                sub_path = scalar(one.get("subPath")) or ("?" if "subPathExpr" in one else "")
                path = "" if is_moved(pairs) else scalar(one.get("mountPath"))
                mount = Mount(path, sub_path, is_other, scalar(pairs.get("name")), is_bridge(pairs))
                mounts.setdefault(scalar(one.get("name")), []).append(mount)
            else:
                collect_mounts(one, mounts, is_other=is_other)


def is_compose_file(root: Any) -> bool:
    """Tell whether a document is a manifest of docker compose."""
    keys = pairs_of(root)
    return "services" in keys or bool("include" in keys and not {"apiVersion", "kind"} & keys.keys())
