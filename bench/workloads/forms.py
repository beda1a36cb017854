"""Other forms of the same CEL rules: equality from the right, lists for values, macros, negations, another order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

_FORMS: Final[Mapping[re.Pattern[str], tuple[str, ...]]] = {
    re.compile(r"(?P<left>role|warehouse)==(?P<value>\"[^\"]*\")"): (
        "{value} == {left}",
        "{left} in [{value}]",
        '({left} == "nobody" || {left} == {value})',
        "!({left} != {value})",
    ),
    re.compile(r"(?P<value>\"[^\"]*\") in roles"): (
        "roles.exists(r, r == {value})",
        'roles.exists(r, r in ["nobody", {value}])',
        "!(!({value} in roles))",
    ),
    re.compile(r"op in \[(?P<values>.*)\]"): ("{any}", "[{values}].exists(o, o == op)", "!(!(op in [{values}]))"),
    re.compile(r"path\.startsWith\((?P<value>\"[^\"]*\")\)"): (
        "path.matches({pattern})",
        "!(!path.startsWith({value}))",
        "(path.startsWith({value}) || false)",
    ),
}
"""Part of a rule -> texts with the same meaning."""


def plain(text: str, seed: int) -> str:
    """Return the rules as they are."""
    return text


def varied(text: str, seed: int) -> str:
    """Return a rules file of Nessie's form with the parts of each rule in another form and order."""
    random = Random(seed)
    return "".join(_varied_rule(line, random) + "\n" for line in text.splitlines())


def _varied_rule(line: str, random: Random) -> str:
    head, _, rule = line.partition("=")
    parts = [_varied_part(part, random) for part in rule.split(" && ")]
    random.shuffle(parts)
    return f"{head}={' && '.join(parts)}"


def _varied_part(part: str, random: Random) -> str:
    for pattern, forms in _FORMS.items():
        if found := pattern.fullmatch(part):
            groups = found.groupdict()
            values = groups.get("values", "").split(",")
            escaped = groups.get("value", "").replace(".", "[.]")
            more = {"any": f"({' || '.join(f'op == {value}' for value in values)})", "pattern": f'"^{escaped[1:-1]}.*"'}
            return random.choice((part, *(form.format(**groups, **more) for form in forms)))
    return part


FORMS: Final[Mapping[str, Callable[[str, int], str]]] = {"plain": plain, "varied": varied}
"""Name -> rewriting of a rules file with a seed."""
