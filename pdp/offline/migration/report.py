"""Result of a migration: new files, a report on every part of the old ones, and policy tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

import msgspec
import yaml

from pdp.config.origins import Key, Origins
from pdp.config.quarkus.properties import ConfigEntry
from pdp.errors import InvalidArgument
from pdp.offline.migration.variables import (
    EACH_ALONE,
    OF_HOOKS,
    Container,
    ManifestContent,
    Reference,
    exists,
    is_in_reach,
    mounted_path,
    references_to,
    servers_by_image,
    variables_by_container,
)

Status = Literal["done", "note", "left", "ignored"]
TESTS: Final = "tests."
"""Beginning of the names of files with policy tests."""
TESTS_FILE: Final = f"{TESTS}yaml"


class MigratedPart(msgspec.Struct, frozen=True):
    """Part of the old files. `place` is the file with line, `subject` the key, rule or tuple.

    `done`: translated. `note`: translated, to look at. `left`: no counterpart, or for a person. `ignored`: no policy.
    """

    place: str
    status: Status
    subject: str
    message: str = ""


class Migration(msgspec.Struct):
    """New files by name, and the parts of the report in the order of the old files.

    `origins`: variables of new settings. `accepted`: names of widenings that may be written. `refused`: names of those
    that the files have and that are not accepted. Then no file is written.
    """

    files: dict[str, str] = {}
    parts: list[MigratedPart] = []
    accepted: frozenset[str] = frozenset()
    refused: set[str] = set()
    origins: Origins = msgspec.field(default_factory=Origins)

    def add(self, status: Status, place: object, subject: str, message: str = "") -> None:
        """Add a part to the report."""
        self.parts.append(MigratedPart(str(place), status, subject, message))

    def note(self, key: Key, entry: ConfigEntry) -> None:
        """Note the source of a new setting, for errors."""
        self.origins.note(key, f"`{entry.key}` of {entry.key_place}")

    def add_wider(self, name: str, subject: str, message: str) -> None:
        """Add a part of the new files with wider permits: left, unless the name is accepted."""
        if name in self.accepted:
            self.add("note", "", subject, message)
        else:
            self.refused.add(name)
            self.add("left", "", subject, f"{message}; {accepting(name)}")

    @property
    def left(self) -> Sequence[MigratedPart]:
        """Return the parts that are not translated."""
        return [part for part in self.parts if part.status == "left"]

    def counts(self) -> dict[str, int]:
        """Return the number of parts of each status."""
        statuses: tuple[Status, ...] = ("done", "note", "left", "ignored")
        return {status: sum(part.status == status for part in self.parts) for status in statuses}


def report_references(
    migration: Migration, contents: Sequence[ManifestContent], files: Sequence[Path]
) -> Sequence[Reference]:
    """Report parts of a deployment not at hand, and parts to look at; return the parts left."""
    left = []
    reported = {part.place for part in migration.left}
    for reference in missing_references(contents, files):
        place = str(reference.entry.place())
        subject = f"`{reference.entry.key}`" if reference.entry.key else "a reference without a name"
        if reference.is_ignored:
            migration.add("ignored", place, subject, reference.message)
            continue
        left.append(reference)
        if place not in reported:
            migration.add("left", place, subject, reference.message)
    for one in contents:
        for entry, message in one.notes:
            migration.add("note", entry.place(), f"`{entry.key}`", message)
    return left


def missing_references(contents: Sequence[ManifestContent], files: Sequence[Path]) -> Iterator[Reference]:
    """Yield the references to parts not at hand; those out of the image are ignored. `files` are given."""
    for one in _absent(contents, files):
        is_over = is_copied_over(one, PurePosixPath(one.target), contents)
        yield one._replace(is_ignored=True, message=COPIED_OVER) if is_over else one


COPIED_OVER: Final = "is not in the image: a later step copies another file to its place"


def _absent(contents: Sequence[ManifestContent], files: Sequence[Path]) -> Iterator[Reference]:
    """Yield the references to parts not at hand.

    A path beside the manifest is the file there. A path of another machine is a given file of the same name, and each
    given file stands for a single path.
    """
    objects = [one for content in contents for one in content.objects]
    given = {file.resolve() for file in files}
    free = {file.resolve() for file in files if not file.is_dir()}
    unclear: list[Reference] = []
    for content in contents:
        for reference in content.references:
            path = content.file.parent / reference.entry.key
            if reference.kind == "file" and not reference.is_ignored and exists(path, reference.entry.key):
                wanted = {file.resolve() for file in _files_of(path)}
                free -= wanted
                if not wanted or wanted - given:
                    yield reference
            elif reference.kind == "file" and not reference.is_ignored:
                unclear.append(reference)
            else:
                named = [one for one in objects if one[:2] == (reference.kind, reference.entry.key)]
                if reference.is_ignored or not named:
                    yield reference
                elif not any(is_in_reach(reference.container, one) for one in named):
                    message = _ABROAD.format(reference.container[3], named[0].namespace)
                    yield reference._replace(message=message)
    stands: dict[str, Path] = {}
    for reference in unclear:
        key = reference.entry.key
        fitting = [file for file in sorted(free) if file.name == PurePosixPath(key.replace("\\", "/")).name]
        if "://" not in key and (key in stands or fitting):
            free.discard(stands.setdefault(key, fitting[0] if fitting else Path()))
        else:
            yield reference


def mounted_paths(file: Path, contents: Sequence[ManifestContent]) -> Iterator[tuple[PurePosixPath, Container]]:
    """Yield the paths of a given file in containers, with the container: none for a copy into an image."""
    uses = [use for content in contents for use in content.uses]
    for one in references_to(file, contents):
        for use in uses:
            if one.held and (use.kind, use.name) == one.held[:2]:
                yield PurePosixPath(mounted_path(use, (use.items or {}).get(one.held[2], one.held[2]))), use.container
        folder = (Path(one.entry.file).parent / one.entry.key).resolve()
        is_below = folder.is_dir() and file.resolve().is_relative_to(folder)
        path = PurePosixPath(one.target, file.resolve().relative_to(folder) if is_below else "")
        if one.is_ignored:
            yield PurePosixPath("?"), ()
        elif one.target and not is_copied_over(one, path, contents):
            yield path, one.container


def is_copied_over(reference: Reference, path: PurePosixPath, contents: Sequence[ManifestContent]) -> bool:
    """Tell whether a later step of the same image copies another file to a path."""
    steps = [one for content in contents for one in content.references if one.is_copy]
    later = (one for one in steps if one.entry.file == reference.entry.file and one.entry.start > reference.entry.start)
    return reference.is_copy and path.is_absolute() and any(_copies_to(one, path) for one in later)


def _copies_to(step: Reference, path: PurePosixPath) -> bool:
    """Tell whether a step of an image copies a file at hand to a path."""
    source, is_below = Path(step.entry.file).parent / step.entry.key, path.is_relative_to(step.target)
    return is_below and exists(source, step.entry.key) and (source / path.relative_to(step.target)).is_file()


_ABROAD: Final = "is in the namespace `{1}`, and a container of `{0}` reads its own: give the object of `{0}`"


_KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_MOST_FILES: Final = 1000


def _files_of(path: Path) -> Sequence[Path]:
    """Return the files of a path: of a folder the kustomization, or all files; raise InvalidArgument for too many."""
    if not path.is_dir():
        return [path]
    entries = [path / name for name in _KUSTOMIZATIONS if (path / name).exists()]
    files = entries or [*islice((file for file in path.rglob("*") if file.is_file()), _MOST_FILES + 1)]
    if len(files) > _MOST_FILES:
        raise InvalidArgument(
            f"the folder `{path}` has more than {_MOST_FILES} files: give the files of the deployment"
        )
    return files


_NAMES_FILE: Final = re.compile(r"(?:^|[/\s:=,])(application[\w.-]*\.(?:properties|ya?ml))", re.IGNORECASE)


def report_named_files(migration: Migration, read: Sequence[ManifestContent], files: Sequence[Path]) -> None:
    """Report files named by a text, and not given."""
    held = {Path(entry.key).name for one in read for entry in (*one.files, *one.mounted)}
    given = {file.name for file in files} | held
    for one in read:
        texts = (*one.rest, *one.commands)
        named = [(match[1], entry) for entry in texts for match in _NAMES_FILE.finditer(entry.text.replace("\0", " "))]
        for name, entry in named:
            if name not in given:
                migration.add("left", entry.place(), f"`{name}`", "is a file that was not given: give it, too")


def differing_variables(
    contents: Sequence[ManifestContent], name_of: Callable[[ConfigEntry], str]
) -> Mapping[str, str]:
    """Return the variables with other texts in other servers, by name, with a message about these servers.

    `name_of` returns "" for variables without a meaning.
    """
    texts: dict[str, dict[str, set[Container]]] = {}
    for container, entries in variables_by_container(contents).items():
        for entry in entries:
            if name := name_of(entry):
                texts.setdefault(name, {}).setdefault(entry.text, set()).add(container)
    found = {}
    for name, servers in texts.items():
        names = sorted(frozenset[Container]().union(*servers.values()))
        if len(servers) > 1 and len(names) > 1:
            listed = ", ".join(f"`{'/'.join(filter(None, one[1:]))}` of `{Path(one[0]).name}`" for one in names)
            found[name] = f"has other texts in the servers {listed}: {EACH_ALONE}"
    return found


def variables_of_some(
    read: Sequence[ManifestContent], name_of: Callable[[ConfigEntry], str], image: re.Pattern[str]
) -> dict[tuple[str, str], ConfigEntry]:
    """Return variables that not all servers have, by name and text. `name_of` returns "" for other variables.

    A server is a container with the server's image, or with at least one of the variables. Together, they permit more
    than each server.
    """
    own = servers_by_image(read, image)
    servers: dict[Container, dict[tuple[str, str], ConfigEntry]] = {name: {} for name in own}
    for container, variables in variables_by_container(read).items():
        named = {(name, entry.text): entry for entry in variables if (name := name_of(entry))}
        servers.setdefault(container, {}).update(named)
    several = [texts for container, texts in servers.items() if texts or container in own]
    return {
        key: entry for texts in several for key, entry in texts.items() if any(key not in other for other in several)
    }  # fmt: skip


def shut_text(text: str) -> str:
    """Return a rule without permits, with a text in a comment: a mention of VIEW_REFERENCE keeps its effect."""
    return f"{SHUT}{' '.join(text.split())}".replace("${", "\\${")


SHUT: Final = "false // "
"""Beginning of the text of a rule without permits."""


def accepting(name: str) -> str:
    """Return the words about the option for a widening."""
    return f"`--accept-wider {name}` allows this"


def hiding_paths(contents: Sequence[ManifestContent], missing: Sequence[Reference]) -> Iterator[tuple[str, Container]]:
    """Yield the paths in containers that a part not at hand replaces, or a script may change, with the container."""
    for one in (one for one in missing if one.target):
        is_file = (
            PurePosixPath(one.entry.key).suffix not in ("", ".d") or not one.kind
        )  # Docker copies what a folder has
        yield one.target if is_file else str(PurePosixPath(one.target).parent), one.container
    known = {one.held[:2] for content in contents for one in content.references if one.held and one not in missing}
    known |= {(one.kind, one.name) for content in contents for one in content.objects if one.entries}
    for use in (use for content in contents for use in content.uses):
        if use.prefix is None and not use.variable and (use.kind, use.name) not in known:
            below = use.items.values() if use.items and use.path and not use.sub_path else [""]
            yield from ((str(PurePosixPath(use.path or "/", path)), use.container) for path in below)
    for content in contents:
        steps = [entry for entry in content.rest if entry.key == ".RUN"]
        for entry in (*steps, *(entry for entry, message in content.dropped if message == OF_HOOKS)):
            yield from ((path, ()) for path in _PATHS.findall(entry.text))


def covering_paths(contents: Sequence[ManifestContent]) -> Iterator[str]:
    """Yield the paths in containers with something mounted over the files of the image."""
    for content in contents:
        yield from (one.target for one in content.references if one.target and not (one.is_copy or one.is_ignored))
        yield from (use.path for use in content.uses if use.path and use.prefix is None and not use.variable)


_PATHS: Final = re.compile(r"/deployments/config(?:/[\w-]+\.\w+)?")


def to_yaml(data: Any, comment: str = "") -> str:
    """Return YAML in a fixed order, below a comment. Texts of several lines are literal blocks."""
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100_000)
    return "".join(f"# {line}\n" for line in comment.splitlines()) + text


class _Dumper(yaml.SafeDumper):
    """Dumper with literal blocks and without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


_USER: Final = "user:oidc~alice"
_WORLD: Final = {
    "objects": [],
    "grants": [
        {"principal": _USER, "privilege": "modify", "object": "view:lake/ns/v"},
        {"principal": "user:oidc~bob", "privilege": "select", "object": "table:lake/ns/t"},
    ],
}


def engine_tests(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file of tests for all engines of some settings."""
    engines = settings.get("trusted_engines", {})
    return {
        "engines": ["grants"],
        "config": {key: settings[key] for key in ("trusted_engines", "limits") if key in settings},
        "world": _WORLD,
        "cases": [case for name, engine in engines.items() for case in _cases(name, engine)],
    }


def _cases(name: str, engine: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for idp, identity in engine["identities"].items():
        for audience in identity.get("audiences", ()):
            yield from _trusted(name, engine, {"idp": idp, "subject": "service", "audiences": [audience]})
        for subject in identity.get("subjects", ()):
            yield from _trusted(name, engine, {"idp": idp, "subject": subject, "audiences": []})
    yield from _stranger(engine)


def _trusted(name: str, engine: Mapping[str, Any], caller: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    known = f"{name} by {caller['idp']} {', '.join(caller['audiences']) or caller['subject']}"
    yield {
        "note": f"{known}: may name the owner of a view",
        "caller": caller,
        "commitView": _commit(engine["owner_property"]),
        "wantCommit": {"allowed": True},
    }
    yield {
        "note": f"{known}: its chains of views count",
        "caller": caller,
        "load": _load(engine["owner_property"]),
        "wantLoad": {"referencedByUsed": True},
    }


def _stranger(engine: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    caller = {"idp": next(iter(engine["identities"])), "subject": "nobody-in-the-settings", "audiences": []}
    key = engine["owner_property"]
    for spelling in (key, key.upper()):
        yield {
            "note": f"anybody else: may not set {spelling}",
            "caller": caller,
            "commitView": _commit(spelling),
            "wantCommit": {"allowed": False, "error": {"code": "ProtectedPropertyModification"}},
        }
    yield {
        "note": "anybody else: the chain of views is ignored",
        "caller": caller,
        "load": _load(key),
        "wantLoad": {"allowed": False, "referencedByUsed": False},
    }


def _commit(key: str) -> dict[str, Any]:
    return {"principal": _USER, "view": "view:lake/ns/v", "operation": "commit", "set": {key: "bob"}}


def _load(key: str) -> dict[str, Any]:
    return {
        "principal": _USER,
        "action": "loadTable",
        "target": "table:lake/ns/t",
        "referencedBy": "ns%1Fv",
        "views": [{"resource": "view:lake/ns/v", "properties": {key: "bob"}}],
    }
