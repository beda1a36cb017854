"""Questions to the grants engine: the relation that a check of an action on a type asks for, and its object.

Knows the table in `model`; must not know grants and principals.
"""

from __future__ import annotations

from typing import Final

from pdp.engines.grants.model import ACTIONS, CONTENT, NESSIE
from pdp.facts.objects import ObjectKey, key_of
from pdp.model.question import CONTENT_TYPES, Resource

_CONCRETE_CONTENT: Final = CONTENT_TYPES - {"table_or_view"}


class RelationQuestion:
    """Question of an action on objects of a type. There is one instance for each; compared by identity.

    `relation` is empty if the object of the relation is not the resource itself: then `target_of` finds both.
    """

    __slots__ = ("action", "is_inside", "relation", "type")

    def __init__(self, action: str, type: str) -> None:
        self.action = action
        self.type = type
        rule = NESSIE[action].get(type, NESSIE[action][""]) if action in NESSIE else action
        self.relation = "" if type == "content" or "." in rule else rule
        self.is_inside = bool(self.relation) and type in CONTENT_TYPES

    def target_of(self, resource: Resource) -> tuple[str, ObjectKey, str]:
        """Return the relation that a check asks for, the object of the relation, and the id in the check."""
        key = key_of(resource, self.type)
        if self.relation:
            return self.relation, key, resource.id
        concrete = CONTENT.get(resource.content_type, "table") if self.type == "content" else self.type
        rules = NESSIE[self.action]
        direction, _, relation = rules.get(concrete, rules[""]).rpartition(".")
        if not direction:
            return relation, (concrete, key[1]), resource.id
        # The relation is on the parent, a namespace or the warehouse. The id in the check is the child's: drop the id.
        parts = key[1][:-1]
        return relation, ("namespace" if len(parts) > 1 else "warehouse", parts), ""


QUESTIONS: Final = {
    (action, type): RelationQuestion(action, type)
    for action, type in [
        *((action, type) for type, actions in ACTIONS.items() for action in actions),
        *((action, type) for action in NESSIE for type in sorted(_CONCRETE_CONTENT)),
    ]
}
"""Question of each canonical action of a type, and of each content check of Nessie on a path."""
