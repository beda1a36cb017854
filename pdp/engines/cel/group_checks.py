"""The checks of a group, and the values of variables for each check."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import NamedTuple

from pdp.engines.cel.check_values import CheckValues
from pdp.engines.engine import Group
from pdp.model.checks import VERSIONED_TYPES, Resource
from pdp.model.columns import PathColumn
from pdp.model.vocabulary import CEL_CHECKS, CONTENT_TYPE, CelCheck


class GroupChecks:
    """The checks of a group. `lacks_ref`: a ref is needed, but neither the resource nor the warehouse has one."""

    def __init__(self, group: Group, provider: str) -> None:
        self.checks = CEL_CHECKS[group.type, group.action]
        self.lacks_ref = group.ref is None and (group.type in VERSIONED_TYPES or group.type == "warehouse")
        self._group = group
        self._role, self._roles = _role_variables(group, provider)

    def varies(self, check: CelCheck) -> bool:
        """Tell whether the check differs from resource to resource."""
        return check.path != "none" or self._group.type == "repository_config"

    def values(self, check: CelCheck, resource: Resource) -> CheckValues:
        """Return the values of all variables but `path` for a check of a resource."""
        group, content_type, type = self._group, "", ""
        if check.path == "new":
            content_type = check.content_type
        elif check.path != "none":
            content_type = resource.content_type or CONTENT_TYPE.get(group.type, "")
        elif group.type == "repository_config":
            type = resource.path[0]
        return CheckValues(
            check.op,
            self._role,
            self._roles,
            group.ref or "",
            content_type,
            type,
            (group.env.api_name, group.env.api_version),
            (*group.env.actions, *check.actions),
            group.delegated,
            group.warehouse,
        )


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
    folders = [path_string(parent) + "." if parent else "" for parent in column.parents]
    return PathStrings(folders, column.parent_at, names)


def _elements(check: CelCheck, resource: Resource) -> tuple[str, ...]:
    arguments = resource.arguments
    if check.path == "none":
        return ()
    if check.path == "new":
        return (*resource.path, arguments.name) if arguments.name else resource.path
    if check.path == "destination":
        return arguments.destination.path if arguments.destination else resource.path[:-1]
    return resource.path


def _role_variables(group: Group, provider: str) -> tuple[str, tuple[str, ...]]:
    """Return `role`, the subject, and `roles`, the roles of the token. A principal of type role has only itself."""
    principal = group.principal
    if principal.type == "role":
        return "", (principal.name,)
    idp, _, subject = principal.name.partition("~")
    return (subject if idp == provider else principal.name), principal.roles
