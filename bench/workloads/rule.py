"""Neutral rules of the workloads, and their texts in CEL and in Rego.

The right answers come from a plain loop over the neutral rules, never from one of the compared servers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

quote: Final = json.dumps


@dataclass(frozen=True, slots=True)
class PathTest:
    """Condition on the dotted path of a table. The kind is `any`, `prefix`, `suffix`, `exact`, `contains` or `regex`."""

    kind: str
    text: str = ""

    def holds(self, path: str) -> bool:
        """Tell whether the path fulfils the condition."""
        match self.kind:
            case "any":
                return True
            case "prefix":
                return path.startswith(self.text)
            case "suffix":
                return path.endswith(self.text)
            case "exact":
                return path == self.text
            case "contains":
                return self.text in path
        return re.search(self.text, path) is not None

    def cel(self) -> list[str]:
        """Return the condition in CEL: one part, or none."""
        forms = {
            "prefix": "path.startsWith({})",
            "suffix": "path.endsWith({})",
            "exact": "path=={}",
            "contains": "path.contains({})",
            "regex": "path.matches({})",
        }
        return [forms[self.kind].format(quote(self.text))] if self.kind in forms else []

    def rego(self, path: str) -> list[str]:
        """Return the condition in Rego on the term `path`: one part, or none."""
        forms = {
            "prefix": "startswith({path}, {text})",
            "suffix": "endswith({path}, {text})",
            "exact": "{path} == {text}",
            "contains": "contains({path}, {text})",
            "regex": "regex.match({text}, {path})",
        }
        return [forms[self.kind].format(path=path, text=quote(self.text))] if self.kind in forms else []


def nessie_rules(rules: Iterable[tuple[str, list[str]]]) -> str:
    """Return a rules file of Nessie's form. Each rule has an id and the parts of its conjunction."""
    lines = (f"nessie.server.authorization.rules.{id}={' && '.join(parts)}" for id, parts in rules)
    return "".join(line.replace("\\", "\\\\") + "\n" for line in lines)


def rego_rule(head: str, parts: Iterable[str]) -> str:
    """Return one rule in Rego."""
    return f"{head} if {{\n\t" + "\n\t".join(parts) + "\n}\n"


def rego_set(texts: Iterable[str]) -> str:
    """Return a set of strings in Rego."""
    return "{" + ",".join(map(quote, texts)) + "}"
