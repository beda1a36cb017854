"""Policy tests of migrated rules. The expected answers follow Nessie: any true rule permits, silence denies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pdp.cel.values import RuleError
from pdp.engines.cel.engine import IMPLICIT_RULE
from pdp.engines.cel.program import RULE_VARIABLES
from pdp.engines.cel.rules import inline_rules
from pdp.model.vocabulary import CONFIG_CHECKS

_STRANGER: Final = "nobody-in-the-rules"
_FILLER: Final = "~"
_CONTENT: Final = frozenset({
    "READ_CONTENT_KEY", "READ_ENTITY_VALUE", "CREATE_ENTITY", "UPDATE_ENTITY", "DELETE_ENTITY",
})  # fmt: skip
Input = Mapping[str, Any]
"""Values of the variables of a rule, by name."""


class NessieTests:
    """Tests of some rules."""

    def __init__(self, texts: Mapping[str, str], warehouse: str) -> None:
        mentioned = any("VIEW_REFERENCE" in text for text in texts.values())
        implicit = {} if mentioned else {IMPLICIT_RULE: "op=='VIEW_REFERENCE'"}
        self._programs = {rule.id: rule.program for rule in inline_rules({**texts, **implicit}).rules}
        self._warehouse = warehouse

    def cases(self, witnesses: Mapping[str, Input]) -> Iterator[dict[str, Any]]:
        """Yield a test of each rule with an example input: the input itself, and the same for a stranger."""
        for id, witness in witnesses.items():
            values = self._readable(id, {**witness, "warehouse": self._warehouse})
            if values is None:
                continue
            strange = {**values, "role": _STRANGER, "roles": ()}
            yield {
                "note": f"rule {id} decides, and a stranger has the answer of the other rules",
                "checks": [self._check(values), self._check(strange)],
                "want": [self._answer(values), self._answer(strange)],
            }

    def _readable(self, id: str, values: Input) -> Input | None:
        """Return an input with plain letters for fillers; None if no check has the input."""
        plain = {
            name: value.replace(_FILLER, "x") if isinstance(value, str) else value for name, value in values.items()
        }
        for candidate in (plain, values):
            fits = candidate["op"] in _CONTENT or not candidate["path"]
            if fits and candidate["role"] and self._is_true(id, self._as_checked(candidate)):
                return candidate
        return None

    def _as_checked(self, values: Input) -> Input:
        """Return the values that the rules see for the check of an input."""
        return {**values, "roles": (values["role"], *values["roles"])}

    def _is_true(self, id: str, values: Input) -> bool:
        try:
            return bool(self._programs[id].evaluate(*(values[name] for name in RULE_VARIABLES)))
        except RuleError:
            return False

    def _answer(self, values: Input) -> bool:
        return any(self._is_true(id, self._as_checked(values)) for id in self._programs)

    def _check(self, values: Input) -> dict[str, Any]:
        check: dict[str, Any] = {
            "principal": {"id": f"user:oidc~{values['role']}", "roles": [values["role"], *values["roles"]]},
            "action": values["op"],
            "resource": self._resource(values),
        }
        api, actions = values["api"], list(values["actions"])
        if actions or api["apiName"] != "Nessie":
            context = {"api": {"name": api["apiName"], "version": api["apiVersion"]}, "actions": actions}
            check["context"] = context
        return check

    def _resource(self, values: Input) -> dict[str, Any]:
        if values["op"] in CONFIG_CHECKS:
            return {
                "type": "repository_config",
                "warehouse": self._warehouse,
                "path": [values["type"] or "GARBAGE_COLLECTOR"],
            }
        if values["op"] not in _CONTENT:
            return {"type": "reference", "warehouse": self._warehouse, "ref": values["ref"]}
        content = {"contentType": values["contentType"]} if values["contentType"] else {}
        path = [part.replace("\u001d", ".") for part in values["path"].split(".")]
        return {"type": "content", "warehouse": self._warehouse, "path": path, "ref": values["ref"], **content}
