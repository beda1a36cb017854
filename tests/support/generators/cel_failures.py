"""Rules that fail: every function and operator of the language with a secret in each operand, and what they may not say."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pdp.cel.compiler import function_table
from pdp.cel.functions import FunctionKey, Overload

EXTENSIONS = frozenset({"strings"})
SECRETS = {
    "text": "hunter2%q(",
    "whole": 8675309867,
    "negative": -8675309867,
    "double": 86753.0912,
    "list": ["hunter2%q(", 8675309867],
    "map": {"hunter2%q(": 8675309867},
    "none": None,
}
"""Values behind a key that is masked."""
SHOWN = re.compile("hunter|%q|86753")
"""Whatever shows a part of a secret."""
_PLAIN = {
    "string": "'a'", "int": "1", "uint": "1u", "double": "1.5", "bool": "true", "bytes": "b'a'", "list": "['a']",
    "map": "{'a': 1}", "timestamp": "timestamp(0)", "duration": "duration('1s')", "null_type": "null", "type": "int",
}  # fmt: skip
_OTHERS = [
    "{}.x == 1", "{} && true", "true && {}", "{} || false", "{} ? true : false", "!{}", "{}.all(v, v == 1)",
    "{}.exists(v, v)", "{}.exists_one(v, v > 1)", "{}.map(v, v.x)[0] == 1", "{}.filter(v, v)[0] == 1", "has({}.x.y)",
    "{{{}: 1}}['a'] == 1", "{{{}: 1, {}: 2}}['a'] == 1", "{}", "attributes[{}] == 1", "attributes.password.list[{}] == 1",
    "attributes.password.map[{}] == 1", "[1][{}] == 1", "'%s %d'.format([{}]) == '1'", "'%d'.format([{}]) == '1'",
    "'%.200f'.format([{}]) == '1'", "'%e'.format([{}]) == '1'", "'%b'.format([{}]) == '1'", "'%x'.format([{}]) == '1'",
    "[{}].join() == ''", "[{}].join({}) == ''", "'a'.matches({})", "timestamp(0).getHours({}) == 1",
]  # fmt: skip


def failing_rules() -> list[str]:
    """Return the texts of rules. Some do not compile, and some do not fail."""
    secrets = [f"attributes.password.{name}" for name in SECRETS]
    rules = [text.replace("{}", secret).replace("{{", "{").replace("}}", "}") for text in _OTHERS for secret in secrets]
    for key, overloads in function_table(EXTENSIONS).items():
        for overload in overloads:
            rules += [f"dyn({text}) == dyn(1)" for text in _calls(key, overload, secrets)]
    return list(dict.fromkeys(rules))


def _calls(key: FunctionKey, overload: Overload, secrets: list[str]) -> Iterator[str]:
    plain = [_PLAIN.get(type.kind, "1") for type in overload.params]
    for secret in secrets:
        yield _call(*key, [secret] * len(plain))
        for at in range(len(plain)):
            yield _call(*key, [*plain[:at], secret, *plain[at + 1 :]])


def _call(name: str, method: bool, operands: list[str]) -> str:
    if name == "_[_]":
        return f"{operands[0]}[{operands[1]}]"
    if name == "@in":
        return f"{operands[0]} in {operands[1]}"
    if "_" in name:
        parts = iter(operands)
        return "".join(f"({next(parts)})" if sign == "_" else sign for sign in name)
    if method:
        return f"{operands[0]}.{name}({', '.join(operands[1:])})"
    return f"{name}({', '.join(operands)})"
