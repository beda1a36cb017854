"""Exports of OpenFGA: tuples, models and store files of the command `fga`, read strictly.

A model is JSON of the API or the language of `.fga` files, and becomes one tree of rules:
https://openfga.dev/docs/configuration-language. Conditions are refused: a tuple with a condition has no counterpart.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import yaml

from pdp.config.foreign_files import CEDAR_ENTITIES, is_cedar_entity
from pdp.config.origins import suggest
from pdp.errors import InvalidArgument
from pdp.model import strict
from pdp.offline.migration.variables import read_text

_KEYS: Final = ("user", "relation", "object")
_TUPLE: Final = frozenset({*_KEYS, "condition"})
_ENTRY: Final = frozenset({"key", "timestamp"})
_CONDITION: Final = frozenset({"name", "context"})
_PAGE: Final = frozenset({"tuples", "tuple_keys", "continuation_token"})
_STORE: Final = frozenset({"name", "model", "model_file", "tuples", "tuple_file", "tuple_files", "tests"})
_COLUMNS: Final = ("user_type", "user_id", "relation", "object_type", "object_id")
_MORE_COLUMNS: Final = frozenset({"user_relation", "condition_name", "condition_context"})
"""Keys and columns of an export. Another one may take a tuple back, or bind it to a condition, so it is refused."""


class FgaTuple(NamedTuple):
    """Relationship tuple. `place` is the file with the number of the tuple."""

    user: str
    relation: str
    object: str
    place: str = ""
    condition: str = ""


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
    models: dict[str, Any] = {}
    for file in files:
        _read(file, export, models)
    return export._replace(model=models)


def _read(file: Path, export: FgaExport, models: dict[str, Any]) -> None:
    text = read_text(file)
    if file.suffix == ".csv":
        export.tuples.extend(_csv(file, text))
        return
    if file.name == "fga.mod":
        for name in module_files(text):
            _read(file.parent / name, export, models)
        return
    if file.suffix == ".fga" or '"type_definitions"' in text:
        for type, relations in read_model(file, text).items():
            models[type] = {**models.get(type, {}), **relations}
        return
    data = _data(file, text)
    if isinstance(data, Mapping) and ("model" in data or "model_file" in data or "tests" in data):
        _read_store(file, data, export, models)
    else:
        _read_tuples(file, data, export)


def _read_store(file: Path, data: Mapping[str, Any], export: FgaExport, models: dict[str, Any]) -> None:
    """Read a store file, and the files that it names."""
    _require_known(data, _STORE, f"`{file}`")
    if isinstance(data.get("model"), str):
        models.update(read_model(file, data["model"]))
    for key in ("model_file", "tuple_file"):
        if isinstance(data.get(key), str):
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


def _require_known(data: Mapping[Any, Any], known: Collection[str], place: str) -> None:
    for key in data:
        if key not in known:
            raise InvalidArgument(f"{place}: `{key}` is not known{suggest(str(key), known)}")


def _read_tuples(file: Path, data: Any, export: FgaExport) -> None:
    entries = data.get("tuples", data.get("tuple_keys")) if isinstance(data, Mapping) else data
    if not isinstance(entries, list):
        raise InvalidArgument(f"`{file}` is no export: neither tuples, nor a model, nor a store file")
    if isinstance(data, Mapping):
        _require_known(data, _PAGE, f"`{file}`")
        if "tuples" in data and "tuple_keys" in data:
            raise InvalidArgument(f"`{file}` has `tuples` and `tuple_keys`: give each in a file of its own")
        if data.get("continuation_token"):
            message = "is one page of several (`continuation_token`): export all with `fga tuple read --max-pages 0`"
            export.left.append((str(file), message))
    for number, entry in enumerate(entries, 1):
        if is_cedar_entity(entry):
            raise InvalidArgument(f"`{file}`: {CEDAR_ENTITIES}")
        export.tuples.append(_tuple_of(entry, file, number))


def _tuple_of(entry: Any, file: Path, number: int) -> FgaTuple:
    place = f"`{file}`, tuple {number}"
    fields = entry.get("key", entry) if isinstance(entry, Mapping) else {}
    if not isinstance(fields, Mapping) or not all(isinstance(fields.get(key), str) for key in _KEYS):
        raise InvalidArgument(f"{place}: not `user`, `relation` and `object`")
    if fields is not entry:
        _require_known(entry, _ENTRY, place)
    _require_known(fields, _TUPLE, place)
    user, relation, object = (fields[key] for key in _KEYS)
    return FgaTuple(user, relation, object, f"{file}#{number}", _condition_of(fields, place))


def _condition_of(fields: Mapping[str, Any], place: str) -> str:
    """Return the name of a tuple's condition, "" without one; raise InvalidArgument for another shape."""
    condition = fields.get("condition")
    if condition is None or condition == {}:
        return ""
    name = condition.get("name") if isinstance(condition, Mapping) else None
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{place}: `condition` is no condition with a `name`")
    _require_known(condition, _CONDITION, place)
    return name


def _csv(file: Path, text: str) -> Iterator[FgaTuple]:
    """Yield the tuples of `fga tuple read --output-format csv`."""
    reader = csv.DictReader(io.StringIO(text))
    header = list(reader.fieldnames or ())
    for column in _COLUMNS:
        if column not in header:
            raise InvalidArgument(f"`{file}` has no column `{column}`")
    _require_known(dict.fromkeys(header), {*_COLUMNS, *_MORE_COLUMNS}, f"`{file}`")
    if len(set(header)) < len(header):
        raise InvalidArgument(f"`{file}` has a column twice")
    for number, row in enumerate(reader, 1):
        place = f"`{file}`, tuple {number}"
        if None in row or None in row.values():
            raise InvalidArgument(f"{place}: not `user`, `relation` and `object`, or not as many values as columns")
        if row.get("condition_context") and not row.get("condition_name"):
            raise InvalidArgument(f"{place}: `condition_context` without `condition_name`")
        relation = f"#{row['user_relation']}" if row.get("user_relation") else ""
        user, object = f"{row['user_type']}:{row['user_id']}{relation}", f"{row['object_type']}:{row['object_id']}"
        yield FgaTuple(user, row["relation"], object, f"{file}#{number}", row.get("condition_name") or "")


def _data(file: Path, text: str) -> Any:
    try:
        if file.suffix == ".jsonl":
            return [_json(line) for line in text.splitlines() if line.strip()]
        return _json(text) if file.suffix == ".json" else strict.load_yaml(text)
    except (InvalidArgument, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InvalidArgument(f"`{file}` does not parse: {' '.join(str(error).split())}") from None


def _json(text: str) -> Any:
    strict.refuse_duplicates(text.encode())
    return json.loads(text)


# --- models --------------------------------------------------------------------------------------------------------


class Direct(NamedTuple):
    """Tuples of the relation itself."""


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


def read_model(file: Path, text: str) -> FgaModel:
    """Return the model of a text: JSON, a `.fga` file, or the list of modules in `fga.mod`.

    Raise InvalidArgument for a form that is not read.
    """
    try:
        if text.lstrip().startswith("{"):
            data = json.loads(text)
            return _from_json(data.get("authorization_model", data))
        return _from_language(text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidArgument(f"`{file}` is no model that is read: {' '.join(str(error).split())}") from None


def _from_json(data: Mapping[str, Any]) -> FgaModel:
    return {
        definition["type"]: {name: _json_rule(rule) for name, rule in (definition.get("relations") or {}).items()}
        for definition in data["type_definitions"]
    }


def _json_rule(rule: Mapping[str, Any]) -> FgaRule:
    if "this" in rule:
        return Direct()
    if "computedUserset" in rule:
        return Computed(rule["computedUserset"]["relation"])
    if "tupleToUserset" in rule:
        both = rule["tupleToUserset"]
        return FromParent(both["tupleset"]["relation"], both["computedUserset"]["relation"])
    if "union" in rule:
        return AnyRule(tuple(map(_json_rule, rule["union"]["child"])))
    if "intersection" in rule:
        return AllRules(tuple(map(_json_rule, rule["intersection"]["child"])))
    if "difference" in rule:
        return ButNot(_json_rule(rule["difference"]["base"]), _json_rule(rule["difference"]["subtract"]))
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
            return Direct()
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


def module_files(text: str) -> Iterator[str]:
    """Yield the files that an `fga.mod` lists."""
    for line in text.splitlines():
        match = re.fullmatch(r"\s*-\s*(?P<file>\S+\.fga)\s*", line)
        if match:
            yield match["file"]
