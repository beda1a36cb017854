"""Contexts of requests: the arguments of a check as attributes of the action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pdp.engines.cedar.actions import CONTEXTS, NO_CONTEXT, ContextForm
from pdp.engines.cedar.properties import find_bad_list, property_tags
from pdp.engines.cedar.uids import PROPERTIES, Uid, as_value


class InvalidContext(ValueError):
    """Argument of a wrong JSON type, or a wrong access list in properties that a check writes."""


class RequestContext(NamedTuple):
    """Context as JSON text, and the tags of each set of properties that the context names."""

    text: str
    property_sets: tuple[tuple[Uid, Mapping[str, Any]], ...] = ()


def plain_context(*, delegated: bool) -> RequestContext:
    """Return the context of an action that takes no arguments."""
    return RequestContext('{"delegated":true}' if delegated else '{"delegated":false}')


def has_arguments(action: str) -> bool:
    """Tell whether arguments of a check are in the context of an action."""
    return action in CONTEXTS


def make_context(action: str, given: Mapping[str, Any], project: str, *, delegated: bool) -> RequestContext:
    """Return the context of an action from the arguments of a check; raise InvalidContext or LongAccessLists.

    `project` is the default of full role names in access lists.
    """
    form = CONTEXTS.get(action, NO_CONTEXT)
    context: dict[str, Any] = {"delegated": delegated}
    for attribute, argument in form.texts.items():
        if (text := _typed(given, argument, str)) is not None:
            context[attribute] = text
    for flag in form.flags:
        context[flag] = bool(_typed(given, flag, bool))
    sets = dict(_property_sets(form, given))
    if form.removal:
        context[form.removal] = _removed(form, given, sets)
    for attribute, properties in sets.items():
        if bad := find_bad_list(properties):
            raise InvalidContext(f"`{bad}` is no list of roles and users")
        context[attribute] = as_value((PROPERTIES, attribute))
    tagged = (((PROPERTIES, attribute), property_tags(each, project)) for attribute, each in sets.items())
    return RequestContext(msgspec.json.encode(context).decode(), tuple(tagged))


def _property_sets(form: ContextForm, given: Mapping[str, Any]) -> Sequence[tuple[str, Mapping[str, Any]]]:
    if form.initial:
        return ((form.initial, _typed(given, "properties", dict) or {}),)
    if not form.updates:
        return ()
    updates = _typed(given, "updated_properties", dict)
    return ((form.updates, (_typed(given, "properties", dict) if updates is None else updates) or {}),)


def _removed(form: ContextForm, given: Mapping[str, Any], sets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the keys that a change removes: those listed, and those set to null."""
    listed = _typed(given, "removed_properties", list) or []
    if not all(isinstance(key, str) for key in listed):
        raise InvalidContext("`removed_properties` is no list of texts")
    return [*listed, *(key for key, value in sets[form.updates].items() if value is None)]


def _typed(given: Mapping[str, Any], argument: str, type: type) -> Any:
    """Return an argument, None if absent or null; raise InvalidContext for another type."""
    value = given.get(argument)
    if value is None or isinstance(value, type):
        return value
    raise InvalidContext(f"`{argument}` is no {type.__name__}")
