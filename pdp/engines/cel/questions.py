"""What a rule set is asked for one group: the checks of its action, with the values that rules look at."""

from __future__ import annotations

from collections.abc import Sequence

from pdp.engines.cel.selection import CheckValues
from pdp.engines.engine import Group
from pdp.model.checks import VERSIONED_TYPES, Resource, Siblings
from pdp.model.vocabulary import CEL_CHECKS, CONTENT_TYPE, CelCheck


class GroupChecks:
    """The checks of a group. `lacks_ref`: it has none, and no default."""

    def __init__(self, group: Group, provider: str) -> None:
        self.checks = CEL_CHECKS[group.type, group.action]
        self.lacks_ref = group.ref is None and (group.type in VERSIONED_TYPES or group.type == "warehouse")
        self._group = group
        self._role, self._roles = _identity(group, provider)

    def about_path(self, check: CelCheck) -> bool:
        """Whether the check differs from resource to resource."""
        return check.path != "none" or self._group.type == "repository_config"

    def known(self, check: CelCheck, resource: Resource) -> CheckValues:
        """All that rules may look at but the path."""
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
    """The path that a check binds, as rules see it."""
    return path_string(_parts(check, resource))


def path_string(path: Sequence[str]) -> str:
    """Nessie's ContentKey.toPathString: joined by dots, a dot or NUL inside an element becomes U+001D."""
    joined = ".".join(path)
    if joined.count(".") < len(path) and "\0" not in joined:
        return joined
    return ".".join([part.replace(".", "\x1d").replace("\0", "\x1d") for part in path])


def paths_of(check: CelCheck, resources: Sequence[Resource]) -> list[str]:
    """The same for many resources, a dotted name among them being rare."""
    if check.path != "self":
        return [path_of(check, resource) for resource in resources]
    joined = [".".join(resource.path) for resource in resources]
    text = "\n".join(joined)
    dots = sum([len(resource.path) for resource in resources]) - len(resources)
    if text.count(".") == dots and "\0" not in text:
        return joined
    return [path_string(resource.path) for resource in resources]


def folder_of(siblings: Siblings) -> str | None:
    """What the paths of siblings begin with; None where a name of theirs would have to be rewritten."""
    if "." in "".join(siblings.names) or not siblings.like.path:
        return None
    return path_string(siblings.like.path) + "."


def _parts(check: CelCheck, resource: Resource) -> tuple[str, ...]:
    arguments = resource.arguments
    if check.path == "none":
        return ()
    if check.path == "new":
        return (*resource.path, arguments.name) if arguments.name else resource.path
    if check.path == "destination":
        return arguments.destination.path if arguments.destination else resource.path[:-1]
    return resource.path


def _identity(group: Group, provider: str) -> tuple[str, tuple[str, ...]]:
    """`role` and `roles` as rules see them: the subject, and what the token carried; a role is only itself."""
    principal = group.principal
    if principal.type == "role":
        return "", (principal.name,)
    idp, _, subject = principal.name.partition("~")
    return (subject if idp == provider else principal.name), principal.roles
