"""Exports of OpenFGA: tuples, models and store files of the command `fga`, read strictly."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from pdp.config.foreign_files import CEDAR_ENTITIES, is_cedar_entity
from pdp.errors import InvalidArgument
from pdp.model import strict
from pdp.offline.migration.fga_model import FgaModel, module_files, read_model
from pdp.offline.migration.variables import read_text

_KEYS: Final = ("user", "relation", "object")


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
    if isinstance(data.get("model"), str):
        models.update(read_model(file, data["model"]))
    for key in ("model_file", "tuple_file"):
        if isinstance(data.get(key), str):
            _read(file.parent / data[key], export, models)
    _read_tuples(file, data.get("tuples") or [], export)
    for number, test in enumerate(data.get("tests") or [], 1):
        _read_test(f"{file} test {number}", test, export)


def _read_test(place: str, test: Mapping[str, Any], export: FgaExport) -> None:
    named = f"{place} `{test.get('name', '')}`"
    if test.get("tuples") or test.get("tuple_file"):
        export.left.append((named, "has tuples of its own: put them into a store file of their own"))
        return
    for key in ("list_objects", "list_users"):
        if test.get(key):
            export.left.append((named, f"`{key}` has no counterpart in policy tests: `POST /v1/list` and `/v1/access`"))
    for check in test.get("check") or []:
        users = check.get("users") or [check.get("user")]
        objects = check.get("objects") or [check.get("object")]
        if check.get("context"):
            export.left.append((named, "a check with a context: conditions have no counterpart"))
            continue
        export.assertions.extend(
            FgaAssertion(user, relation, object, wanted, named)
            for user in users
            for object in objects
            for relation, wanted in (check.get("assertions") or {}).items()
        )


def _read_tuples(file: Path, data: Any, export: FgaExport) -> None:
    entries = data.get("tuples", data.get("tuple_keys")) if isinstance(data, Mapping) else data
    if not isinstance(entries, list):
        raise InvalidArgument(f"`{file}` is no export: neither tuples, nor a model, nor a store file")
    if isinstance(data, Mapping) and data.get("continuation_token"):
        message = "is one page of several (`continuation_token`): export all with `fga tuple read --max-pages 0`"
        export.left.append((str(file), message))
    for number, entry in enumerate(entries, 1):
        if is_cedar_entity(entry):
            raise InvalidArgument(f"`{file}`: {CEDAR_ENTITIES}")
        fields = entry.get("key", entry) if isinstance(entry, Mapping) else {}
        if not all(isinstance(fields.get(key), str) for key in _KEYS):
            raise InvalidArgument(f"`{file}`, tuple {number}: not `user`, `relation` and `object`")
        condition = (fields.get("condition") or {}).get("name", "")
        user, relation, object = (fields[key] for key in _KEYS)
        export.tuples.append(FgaTuple(user, relation, object, f"{file}#{number}", condition))


def _csv(file: Path, text: str) -> Iterator[FgaTuple]:
    """Yield the tuples of `fga tuple read --output-format csv`."""
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), 1):
        try:
            relation = f"#{row['user_relation']}" if row.get("user_relation") else ""
            user = f"{row['user_type']}:{row['user_id']}{relation}"
            object = f"{row['object_type']}:{row['object_id']}"
            yield FgaTuple(user, row["relation"], object, f"{file}#{number}", row.get("condition_name") or "")
        except KeyError as error:
            raise InvalidArgument(f"`{file}` has no column {error}") from None


def _data(file: Path, text: str) -> Any:
    try:
        if file.suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        return json.loads(text) if file.suffix == ".json" else strict.load_yaml(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise InvalidArgument(f"`{file}` does not parse: {' '.join(str(error).split())}") from None
