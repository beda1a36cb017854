"""Names of AuthZEN's entities as names of the service, by the templates of the settings, and back.

An id fills one part of a path, encoded, so that no id reaches another object. Without any entry of a section, types and
actions are those of the service, and an id is a reference without the type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from msgspec import UNSET, UnsetType

from pdp.config.warehouses import ID_OF_TEMPLATE, AuthzenSettings
from pdp.decision.bodies import CheckBody, ContextBody, PrincipalBody, ResourceBody
from pdp.dialects.authzen.bodies import ActionName, Evaluation, NamedEntity, names_of
from pdp.dialects.trino.spelling import TABLE_TYPES, is_metadata_name
from pdp.errors import InvalidArgument
from pdp.model.answer import Rejection
from pdp.model.question import RESOURCE_TYPES
from pdp.model.references import VERBATIM_TYPES, encode_part
from pdp.model.vocabulary import CATALOG_ACTIONS

_SUBJECTS: Final = frozenset({"user", "role"})


def _unmapped(field: str) -> Rejection:
    return Rejection("unsupported", f"`{field}` is not in the settings of `authzen`", by="rule:authzen")


class Template(NamedTuple):
    """Reference with a place for an id. `raw`: the id is taken as it is."""

    type: str
    before: str
    after: str
    raw: bool

    @classmethod
    def of(cls, text: str) -> Template:
        """Return the template of a setting."""
        type = text.partition(":")[0]
        before, _, after = text.partition(ID_OF_TEMPLATE)
        return cls(type, before, after, type in VERBATIM_TYPES)

    def fill(self, id: str) -> str:
        """Return the reference of an id."""
        return f"{self.before}{id if self.raw else encode_part(id)}{self.after}"

    def read(self, reference: str) -> str | None:
        """Return the id in a reference; None if the reference is of another form."""
        end = len(reference) - len(self.after)
        if end <= len(self.before) or not reference.startswith(self.before) or not reference.endswith(self.after):
            return None
        id = reference[len(self.before) : end]
        if self.raw:
            return id
        return None if "/" in id else unquote(id)

    def names_ref(self) -> bool:
        """Tell whether the references name a ref."""
        return "@" in f"{self.before}{self.after}" and not self.raw

    def container(self) -> str:
        """Return the reference of the object above the part of the id; `server` for the top."""
        above = self.before.partition(":")[2].rpartition("/")[0]
        if not above:
            return "server"
        return f"namespace:{above}" if "/" in above else f"warehouse:{above}"


class _Parts(NamedTuple):
    """Parts of a question in native form; None for an unknown one."""

    asked: Evaluation
    principal: str | PrincipalBody | None
    resource: str | ResourceBody | None
    action: str | None
    context: ContextBody | UnsetType


_NO_PARTS: Final = _Parts(Evaluation(NamedEntity("", ""), ActionName(""), NamedEntity("", "")), None, None, None, UNSET)


class NameMap:
    """Names of all three sections."""

    def __init__(self, settings: AuthzenSettings) -> None:
        self._subjects = _templates(settings.subjects, _SUBJECTS)
        self._resources = _templates(settings.resources, RESOURCE_TYPES - {"server"})
        self._actions: Mapping[str, str] | None = settings.actions or None

    def subjects(self, type: str) -> Template | None:
        """Return the template of a type of subjects; None for an unknown type."""
        return self._subjects.get(type)

    def resources(self, type: str) -> Template | None:
        """Return the template of a type of resources; None for an unknown type."""
        return self._resources.get(type)

    def action(self, name: str) -> str | None:
        """Return the action of the service; None for an unknown action."""
        return name if self._actions is None else self._actions.get(name)

    def actions_on(self, type: str) -> Sequence[str]:
        """Return the names of all actions that a type of resources may have, sorted; raise InvalidArgument."""
        if self._actions is not None:
            return sorted(self._actions)
        if type not in CATALOG_ACTIONS:
            raise InvalidArgument(f"nothing tells all actions of a {type}: name them in `authzen.actions`")
        return sorted(CATALOG_ACTIONS[type])

    def checks(self, asked: Iterable[Evaluation | InvalidArgument]) -> Iterator[CheckBody | Rejection]:
        """Yield the native form of each item, or the reason against one. Shared parts are read once."""
        last = _NO_PARTS
        for item in asked:
            try:
                if isinstance(item, InvalidArgument):
                    raise item.with_traceback(None)
                last = self._parts(item, last)
                yield _check(last)
            except InvalidArgument as error:
                yield Rejection(error.code, str(error))

    def check(self, asked: Evaluation) -> CheckBody | Rejection:
        """Return the native form of a question, or why there is none; raise InvalidArgument for wrong properties."""
        return _check(self._parts(asked, _NO_PARTS))

    def _parts(self, asked: Evaluation, last: _Parts) -> _Parts:
        """Return the parts of a question, reusing parts of the last question with the very same value."""
        subject, resource, action = asked.subject, asked.resource, asked.action
        principal = last.principal if subject is last.asked.subject else self.principal(subject)
        named = last.resource if resource is last.asked.resource else self.resource(resource)
        if action is last.asked.action:
            return _Parts(asked, principal, named, last.action, last.context)
        return _Parts(asked, principal, named, self.action(action.name), _context(action))

    def principal(self, subject: NamedEntity) -> str | PrincipalBody | None:
        """Return the principal of a subject; None for an unknown type."""
        template = self._subjects.get(subject.type)
        if template is None:
            return None
        name = template.fill(subject.id)
        return PrincipalBody(name, **_evidence(subject.properties)) if subject.properties else name

    def resource(self, resource: NamedEntity) -> str | ResourceBody | None:
        """Return the resource of an entity; None for an unknown type, and for the id of a metadata table.

        `t$files` is judged by the rights of `t`, which another id names.
        """
        template = self._resources.get(resource.type)
        if template is None or (not template.raw and template.type in TABLE_TYPES and is_metadata_name(resource.id)):
            return None
        name = template.fill(resource.id)
        return ResourceBody(reference=name, properties=resource.properties) if resource.properties else name


def _templates(settings: Mapping[str, str], own: frozenset[str]) -> Mapping[str, Template]:
    if settings:
        return {name: Template.of(text) for name, text in settings.items()}
    return {type: Template(type, f"{type}:", "", raw=True) for type in own}


def _check(parts: _Parts) -> CheckBody | Rejection:
    _, principal, resource, action, context = parts
    if principal is None:
        return _unmapped("subject.type")
    if resource is None:
        return _unmapped("resource")
    if action is None:
        return _unmapped("action.name")
    return CheckBody(principal=principal, action=action, resource=resource, context=context)


def _evidence(properties: Any) -> dict[str, Any]:
    attributes = {name: value for name, value in properties.items() if name not in ("roles", "groups")}
    lists = {name: names_of(properties[name], name) for name in ("roles", "groups") if name in properties}
    return {"attributes": attributes, **lists}


def _context(action: ActionName) -> ContextBody | UnsetType:
    return ContextBody(arguments=action.properties) if action.properties else UNSET
