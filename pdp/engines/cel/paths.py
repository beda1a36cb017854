"""Values of `path`: from resources and columns to the texts that rules see."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import Final, NamedTuple

from pdp.model.columns import Path, PathColumn
from pdp.model.memo import Memo
from pdp.model.question import Resource
from pdp.model.vocabulary import CelCheck

_FOLDERS: Final = 4096
_LONGEST_FOLDER: Final = 256
"""Containers whose text is remembered, and characters of such a text."""
_folders: Final[Memo[Path, str]] = Memo(_FOLDERS, _LONGEST_FOLDER)


def path_of(check: CelCheck, resource: Resource) -> str:
    """Return the value of `path` for a check of a resource."""
    return path_string(_elements(check, resource))


def path_string(path: Sequence[str]) -> str:
    """Join a path as Nessie's ContentKey.toPathString does: by dots, with U+001D for a dot or NUL in an element."""
    joined = ".".join(path)
    if joined.count(".") < len(path) and "\0" not in joined:
        return joined
    return ".".join([part.replace(".", "\x1d").replace("\0", "\x1d") for part in path])


def paths_of(check: CelCheck, resources: Sequence[Resource]) -> list[str]:
    """Return the values of `path` for a check of many resources."""
    if check.path != "self":
        return [path_of(check, resource) for resource in resources]
    joined = [".".join(resource.path) for resource in resources]
    # One count over the whole column proves that no element holds a dot. Dotted elements are rare.
    text = "\n".join(joined)
    dots = sum([len(resource.path) for resource in resources]) - len(resources)
    if text.count(".") == dots and "\0" not in text:
        return joined
    return [path_string(resource.path) for resource in resources]


class PathStrings(NamedTuple):
    """Values of `path` for a column: row i is `folders[folder_at[i]] + names[i]`. No name holds a dot."""

    folders: Sequence[str]
    folder_at: Sequence[int]
    names: Sequence[str]

    def joined(self) -> list[str]:
        """Return the value of each row."""
        return list(map(add, map(self.folders.__getitem__, self.folder_at), self.names))


def path_strings(column: PathColumn) -> PathStrings:
    """Return the values of `path` for a column of paths."""
    joined = "".join(column.names)
    names = column.names
    if "." in joined or "\0" in joined:
        names = [path_string((name,)) for name in names]
    return PathStrings(_folders_of(column.parents), column.parent_at, names)


def _folders_of(parents: Sequence[Path]) -> Sequence[str]:
    """Return the value of `path` up to the name, for each container."""
    folders = list(map(_folders.get, parents))
    if None not in folders:
        return folders  # type: ignore[return-value]
    known = zip(parents, folders, strict=True)
    return [_folder_of(path) if folder is None else folder for path, folder in known]


def _folder_of(parent: Path) -> str:
    folder = path_string(parent) + "." if parent else ""
    return _folders.keep(parent, folder, len(folder))


def _elements(check: CelCheck, resource: Resource) -> tuple[str, ...]:
    arguments = resource.arguments
    if check.path == "none":
        return ()
    if check.path == "new":
        return (*resource.path, arguments.name) if arguments.name else resource.path
    if check.path == "destination":
        return arguments.destination.path if arguments.destination else resource.path[:-1]
    return resource.path
