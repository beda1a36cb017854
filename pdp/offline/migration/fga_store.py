"""Exports of OpenFGA: tuples, models and store files of the command `fga`, read strictly.

A model is JSON of the API or the language of `.fga` files, and becomes one tree of rules:
https://openfga.dev/docs/configuration-language. Conditions are refused: a tuple with a condition has no counterpart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import yaml

from pdp.config.regular_files import CEDAR_ENTITIES, is_cedar_entity
from pdp.errors import InvalidArgument
from pdp.model import strict
from pdp.offline.migration.fga_objects import FgaTuple, csv_tuples, require_known, tuple_of
from pdp.offline.migration.variables import read_text

_PAGE: Final = frozenset({"tuples", "tuple_keys", "continuation_token"})
_STORE: Final = frozenset({"name", "model", "model_file", "tuples", "tuple_file", "tuple_files", "tests"})


class FgaAssertion(NamedTuple):
    """Expected answer of a check in a store file."""

    user: str
    relation: str
    object: str
    wanted: bool
    place: str


class FgaExport(NamedTuple):
    """Content of all given files. `left` has places with forms that are not read."""

    tuples: list[FgaTuple]
    assertions: list[FgaAssertion]
    model: FgaModel
    left: list[tuple[str, str]]


def read_export(files: Sequence[Path]) -> FgaExport:
    """Return the tuples, assertions and the model of all files; raise InvalidArgument for a file that is none."""
    export = FgaExport([], [], {}, [])
    models: list[FgaModel] = []
    for file in files:
        _read(file, export, models)
    if any(model != models[0] for model in models):
        raise InvalidArgument("two models are given, and which one counts is not known: give one of them")
    if models and not models[0]:
        raise InvalidArgument("the model has no types: give all of `fga model get`")
    return export._replace(model=models[0] if models else {})


def _read(file: Path, export: FgaExport, models: list[FgaModel]) -> None:
    text = read_text(file)
    if file.suffix == ".csv":
        export.tuples.extend(csv_tuples(file, text))
        return
    if file.name == "fga.mod":
        models.append(_joined([read_model(file.parent / name) for name in _module_files(file, text)], file))
        return
    if file.suffix == ".fga" or '"type_definitions"' in text:
        models.append(read_model(file, text))
        return
    data = _data(file, text)
    if isinstance(data, Mapping) and ("model" in data or "model_file" in data or "tests" in data):
        _read_store(file, data, export, models)
    else:
        _read_tuples(file, data, export)


def _read_store(file: Path, data: Mapping[str, Any], export: FgaExport, models: list[FgaModel]) -> None:
    """Read a store file, and the files that it names."""
    require_known(data, _STORE, f"`{file}`")
    for key in {"model", "model_file", "tuple_file"} & data.keys():
        if not isinstance(data[key], str) or not data[key].strip():
            raise InvalidArgument(f"`{file}`, `{key}`: not a text")
    if "model" in data:
        models.append(read_model(file, data["model"]))
    for key in ("model_file", "tuple_file"):
        if key in data:
            _read(file.parent / data[key], export, models)
    for name in _listed(data.get("tuple_files"), f"`{file}`, `tuple_files`"):
        _read(file.parent / str(name), export, models)
    _read_tuples(file, data.get("tuples") or [], export)
    for number, test in enumerate(_listed(data.get("tests"), f"`{file}`, `tests`"), 1):
        _read_test(f"{file} test {number}", test, export)


def _listed(data: Any, place: str) -> Sequence[Any]:
    """Return a list, which may be absent; raise InvalidArgument for another shape."""
    if data is not None and not isinstance(data, list):
        raise InvalidArgument(f"{place}: not a list")
    return data or ()


def _read_test(place: str, test: Any, export: FgaExport) -> None:
    if not isinstance(test, Mapping):
        raise InvalidArgument(f"`{place}`: not a test with `check`")
    named = f"{place} `{test.get('name', '')}`"
    if test.get("tuples") or test.get("tuple_file"):
        export.left.append((named, "has tuples of its own: put them into a store file of their own"))
        return
    for key in ("list_objects", "list_users"):
        if test.get(key):
            export.left.append((named, f"`{key}` has no counterpart in policy tests: `POST /v1/list` and `/v1/access`"))
    for check in _listed(test.get("check"), named):
        if not isinstance(check, Mapping) or not isinstance(check.get("assertions") or {}, Mapping):
            raise InvalidArgument(f"{named}: not a check with `user`, `object` and `assertions`")
        users = _listed(check.get("users"), named) or [check.get("user")]
        objects = _listed(check.get("objects"), named) or [check.get("object")]
        assertions = check.get("assertions") or {}
        if not all(isinstance(text, str) for text in (*users, *objects, *assertions)):
            raise InvalidArgument(f"{named}: not a check with `user`, `object` and `assertions`")
        if not all(isinstance(wanted, bool) for wanted in assertions.values()):
            raise InvalidArgument(f"{named}: an assertion is `true` or `false`")
        if check.get("context"):
            export.left.append((named, "a check with a context: conditions have no counterpart"))
            continue
        export.assertions.extend(
            FgaAssertion(user, relation, object, wanted, named)
            for user in users for object in objects for relation, wanted in assertions.items()
        )  # fmt: skip


def _read_tuples(file: Path, data: Any, export: FgaExport) -> None:
    entries = data.get("tuples", data.get("tuple_keys")) if isinstance(data, Mapping) else data
    if not isinstance(entries, list):
        raise InvalidArgument(f"`{file}` is no export: neither tuples, nor a model, nor a store file")
    if isinstance(data, Mapping):
        require_known(data, _PAGE, f"`{file}`")
        if "tuples" in data and "tuple_keys" in data:
            raise InvalidArgument(f"`{file}` has `tuples` and `tuple_keys`: give each in a file of its own")
        if data.get("continuation_token"):
            raise InvalidArgument(f"`{file}` {_ONE_PAGE}")
    for number, entry in enumerate(entries, 1):
        if is_cedar_entity(entry):
            raise InvalidArgument(f"`{file}`: {CEDAR_ENTITIES}")
        export.tuples.append(tuple_of(entry, file, number))


_ONE_PAGE: Final = (
    "is one page of several (`continuation_token`), and a tuple of managed access may be on another: export all with "
    "`fga tuple read --max-pages 0`"
)


def _data(file: Path, text: str) -> Any:
    try:
        if file.suffix == ".jsonl":
            return [strict.load_json(line) for line in text.splitlines() if line.strip()]
        return strict.load_json(text) if file.suffix == ".json" else strict.load_yaml(text)
    except (InvalidArgument, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InvalidArgument(f"`{file}` does not parse: {' '.join(str(error).split())}") from None


# --- models -------------------------------------------------------------------------------------------------------


class Direct(NamedTuple):
    """Tuples of the relation itself. `users`: forms without a condition, such as `user:*` and `role#assignee`."""

    users: frozenset[str] = frozenset()


class Computed(NamedTuple):
    """Another relation of the same object."""

    relation: str


class FromParent(NamedTuple):
    """Relation of every object that `tupleset` names: `relation from tupleset`."""

    tupleset: str
    relation: str


class AnyRule(NamedTuple):
    """Union."""

    rules: tuple[FgaRule, ...]


class AllRules(NamedTuple):
    """Intersection."""

    rules: tuple[FgaRule, ...]


class ButNot(NamedTuple):
    """Difference."""

    base: FgaRule
    subtracted: FgaRule


FgaRule: TypeAlias = Direct | Computed | FromParent | AnyRule | AllRules | ButNot
FgaModel: TypeAlias = Mapping[str, Mapping[str, FgaRule]]
"""Type -> relation -> rule."""

_TOKEN: Final = re.compile(r"\s*(\[[^\]]*\]|\(|\)|[^\s()\[\]]+)")
_DEFINE: Final = re.compile(r"\s*define\s+(?P<name>[^\s:]+)\s*:\s*(?P<rule>.+)")
_TYPE: Final = re.compile(r"\s*(?:extend\s+)?type\s+(?P<name>\S+)\s*")
_OTHER: Final = re.compile(r"\s*(?:model|module\s.+|schema\s.+|relations)\s*")


def read_model(file: Path, text: str | None = None) -> FgaModel:
    """Return the model of a text: JSON, a `.fga` file, or the list of modules in `fga.mod`.

    Raise InvalidArgument for a form that is not read.
    """
    text = read_text(file) if text is None else text
    try:
        if text.lstrip().startswith("{"):
            data = strict.load_json(text)
            return _from_json(data.get("authorization_model", data))
        return _from_language(text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidArgument(f"`{file}` is no model that is read: {' '.join(str(error).split())}") from None


def _from_json(data: Mapping[str, Any]) -> FgaModel:
    model: dict[str, dict[str, FgaRule]] = {}
    for definition in data["type_definitions"]:
        named = (definition.get("metadata") or {}).get("relations") or {}
        if definition["type"] in model:
            raise ValueError(f"type `{definition['type']}` stands twice")
        model[definition["type"]] = {
            name: _json_rule(rule, Direct(_json_users(named.get(name) or {})))
            for name, rule in (definition.get("relations") or {}).items()
        }
    return model


def _json_users(metadata: Mapping[str, Any]) -> frozenset[str]:
    """Return the forms of users that a relation takes without a condition."""
    return frozenset(
        f"{one['type']}{':*' if 'wildcard' in one else ''}{'#' if one.get('relation') else ''}{one.get('relation', '')}"
        for one in metadata.get("directly_related_user_types") or () if not one.get("condition")
    )  # fmt: skip


def _joined(modules: Sequence[FgaModel], file: Path) -> FgaModel:
    """Return the model of modules; raise InvalidArgument if two modules define a relation, or there is none."""
    model: dict[str, dict[str, FgaRule]] = {}
    for type, name, rule in ((*key, rule) for one in modules for key, rule in _rules(one)):
        if model.setdefault(type, {}).setdefault(name, rule) is not rule:
            raise InvalidArgument(f"`{file}`: two modules define `{name}` of `{type}`")
    return model


def _rules(model: FgaModel) -> Iterator[tuple[tuple[str, str], FgaRule]]:
    return (((type, name), rule) for type, relations in model.items() for name, rule in relations.items())


def _json_rule(rule: Mapping[str, Any], direct: Direct) -> FgaRule:
    if "this" in rule:
        return direct
    if "computedUserset" in rule:
        return Computed(rule["computedUserset"]["relation"])
    if "tupleToUserset" in rule:
        both = rule["tupleToUserset"]
        return FromParent(both["tupleset"]["relation"], both["computedUserset"]["relation"])
    if "union" in rule:
        return AnyRule(tuple(_json_rule(one, direct) for one in rule["union"]["child"]))
    if "intersection" in rule:
        return AllRules(tuple(_json_rule(one, direct) for one in rule["intersection"]["child"]))
    if "difference" in rule:
        return ButNot(*(_json_rule(rule["difference"][key], direct) for key in ("base", "subtract")))
    raise ValueError(f"unknown rule {json.dumps(rule)[:60]}")


def _from_language(text: str) -> FgaModel:
    model: dict[str, dict[str, FgaRule]] = {}
    current: dict[str, FgaRule] = {}
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r"(^|\s)#.*", "", line)
        if not code.strip() or _OTHER.fullmatch(code):
            continue
        if match := _TYPE.fullmatch(code):
            current = model.setdefault(match["name"], {})
        elif match := _DEFINE.fullmatch(code):
            tokens = _TOKEN.findall(match["rule"])
            if match["name"] in current:
                raise ValueError(f"line {number}: `{match['name']}` is defined twice")
            current[match["name"]] = _Parser(tokens, number).parse()
        else:
            raise ValueError(f"line {number}: `{code.strip()}` is not read")
    return model


class _Parser:
    """Parser of the rule of one relation."""

    def __init__(self, tokens: Sequence[str], line: int) -> None:
        self._tokens = [*tokens, ""]
        self._at = 0
        self._line = line

    def parse(self) -> FgaRule:
        rule = self._rule()
        if self._tokens[self._at]:
            raise ValueError(f"line {self._line}: unexpected `{self._tokens[self._at]}`")
        return rule

    def _rule(self) -> FgaRule:
        rules = [self._term()]
        word = self._tokens[self._at]
        if word == "but":
            self._at += 1
            self._expect("not")
            return ButNot(rules[0], self._term())
        while word in ("or", "and") and self._tokens[self._at] == word:
            self._at += 1
            rules.append(self._term())
        if len(rules) == 1:
            return rules[0]
        return AnyRule(tuple(rules)) if word == "or" else AllRules(tuple(rules))

    def _term(self) -> FgaRule:
        token = self._tokens[self._at]
        self._at += 1
        if token == "(":  # noqa: S105  a bracket
            rule = self._rule()
            self._expect(")")
            return rule
        if token.startswith("["):
            if " with " in token:
                raise ValueError(f"line {self._line}: conditions are not read")
            return Direct(frozenset(part.strip() for part in token[1:-1].split(",")))
        if not token or token in (")", "or", "and", "but", "from"):
            raise ValueError(f"line {self._line}: a relation is missing")
        if self._tokens[self._at] != "from":
            return Computed(token)
        self._at += 1
        parent = self._tokens[self._at]
        if not parent:
            raise ValueError(f"line {self._line}: a relation is missing behind `from`")
        self._at += 1
        return FromParent(parent, token)

    def _expect(self, word: str) -> None:
        found = self._tokens[self._at]
        if found != word:
            raise ValueError(f"line {self._line}: `{word}` is missing" + (f" before `{found}`" if found else ""))
        self._at += 1


def _module_files(file: Path, text: str) -> Sequence[str]:
    """Return the files that an `fga.mod` lists; raise InvalidArgument for another shape."""
    data = _data(file, text)
    names = data.get("contents") if isinstance(data, Mapping) else None
    if not isinstance(names, list) or not names or not all(isinstance(one, str) and one for one in names):
        raise InvalidArgument(f"`{file}` is no list of modules: it has `schema`, and `contents` with files")
    require_known(data, ("schema", "contents"), f"`{file}`")
    return names
