"""Policy tests as data: the form of a case, and case files with the places of cases and checks.

Files are YAML, JSON or JSONL. Keys above `cases:` apply to all cases of the file. Paths in a case are relative to the
folder of its file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from pdp.config.regular_files import find_files
from pdp.engines.cedar.kind import as_sources
from pdp.engines.cedar.model import load_model
from pdp.engines.cedar.schema import CedarSources, SourceText, read_sources
from pdp.engines.engine_types import PolicySources
from pdp.errors import InvalidArgument, Place
from pdp.model import strict
from pdp.model.strict import bound_yaml, sentence

_POLICIES: Final = ".cedar"
_SCHEMA: Final = ".cedarschema"
SUFFIXES: Final = (".yaml", ".yml", ".json", ".jsonl")
"""Suffixes of the case files in a folder."""
VIEW_REQUESTS: Final = {"load": "wantLoad", "commitView": "wantCommit"}
"""Keys of a case about view security: the request body -> the expected answer."""

ROW_WANTS: Final = ("wantFilter", "wantMask")
"""Keys of a case about the rows and columns that a principal sees."""


class CaseBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Keys of a case and the types of their values."""

    checks: list[Any] | None = None
    scope_checks: list[dict[str, Any]] | None = None
    load: dict[str, Any] | None = None
    commit_view: dict[str, Any] | None = None
    note: Any = None
    engines: list[str] = []
    rules: str | list[str] | dict[str, str] = ""
    forbid: str | list[str] | dict[str, str] = ""
    policies: str | list[str] | dict[str, Any] = ""
    permissions: str | list[Any] = ""
    cedar: CedarCase | None = None
    world: str | dict[str, Any] | None = None
    config: dict[str, Any] = {}
    caller: dict[str, Any] | None = None
    consistency: str | dict[str, str] = ""
    now: Any = None
    want: list[bool | dict[str, Any]] = []
    want_load: bool | dict[str, Any] = {}
    want_commit: bool | dict[str, Any] = {}
    want_audit: list[dict[str, Any]] = []
    want_error: str | dict[str, str] = ""
    want_filter: Any = None
    want_mask: Any = None


class InvalidCase(InvalidArgument):
    """Case that cannot be run as written. No case can want this error: a misspelt key would pass."""


class Case(msgspec.Struct, frozen=True):
    """Policy test. `data` has the keys of the case and the shared keys of the file; `folder` is the base of paths.

    `number` counts the cases of `file` from 0; of a JSONL file it is the line, from 1.
    """

    note: str
    folder: Path
    data: Mapping[str, Any]
    file: Path | None = None
    number: int = 0

    @property
    def view_key(self) -> str | None:
        """Return the key of VIEW_REQUESTS that the case sends; None if the case sends checks."""
        return next((key for key in VIEW_REQUESTS if key in self.data), None)

    @property
    def wants_something(self) -> bool:
        """Tell whether the case has an expectation for checks."""
        return "want" in self.data or self.wants_more

    @property
    def wants_more(self) -> bool:
        """Tell whether the case has an expectation for checks beside the decisions."""
        return any(key in self.data for key in ("wantAudit", *ROW_WANTS))

    @property
    def seconds(self) -> int | None:
        """Return the time of the decision in seconds since 1970; None for the present. Raise InvalidArgument."""
        now = self.data.get("now")
        if now is None:
            return None
        try:
            moment = now if isinstance(now, datetime) else datetime.fromisoformat(now)
        except (TypeError, ValueError):
            raise InvalidArgument(f"`now` is `{now}`: write a time such as `2026-01-31T12:00:00Z`") from None
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())

    def validate(self) -> None:
        """Raise InvalidCase for unknown keys and values of wrong types."""
        try:
            msgspec.convert(self.data, CaseBody)
        except msgspec.ValidationError as error:
            raise InvalidCase(f"the case: {sentence(str(error))}") from None

    def request_body(self) -> bytes:
        """Return the body for POST /v1/check, /v1/load or /v1/commit-view.

        `caller` of the case is the default for `caller` of a load or view commit.
        """
        if self.view_key:
            caller = {"caller": self.data["caller"]} if "caller" in self.data else {}
            return msgspec.json.encode({**caller, **self.data[self.view_key]})
        consistency = self.data.get("consistency", "minimize_latency")
        return msgspec.json.encode({"checks": self.data["checks"], "consistency": consistency})


def find_cases(paths: Sequence[Path]) -> Iterator[Case]:
    """Yield the cases of files and folders, in order; raise InvalidArgument for a file that cannot be read."""
    for path in paths:
        for file in files_of(path):
            yield from _read(file)


def files_of(path: Path) -> Sequence[Path]:
    """Return the case files of a folder, in order; a file stands for itself."""
    return [file for file in find_files(path) if file.suffix.lower() in SUFFIXES] if path.is_dir() else [path]


def _read(file: Path) -> Iterator[Case]:
    try:
        text = file.read_text(encoding="utf-8")
        readers: Mapping[str, Callable[[str], Any]] = {".json": strict.load_json, ".jsonl": str}
        data = readers.get(file.suffix.lower(), strict.load_yaml)(text)
    except OSError as error:
        raise InvalidArgument(f"cannot read `{file}`: {error.strerror}") from None
    except (InvalidArgument, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InvalidArgument(f"`{file}` does not parse: {' '.join(str(error).split())}") from None
    if file.suffix.lower() == ".jsonl":
        yield from _read_lines(file, text)
        return
    shared = {key: value for key, value in data.items() if key != "cases"} if isinstance(data, dict) else {}
    for number, case in enumerate(_list_of_cases(file, data), 1):
        yield _case(file, case, shared if case is not data else {}, number - 1, f"case {number}")


def _read_lines(file: Path, text: str) -> Iterator[Case]:
    """Yield one case a line. Only a line feed ends a line: JSON strings may hold other line separators."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            data = strict.load_json(line)
        except (InvalidArgument, ValueError, RecursionError) as error:
            why = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
            raise InvalidArgument(f"`{file}:{number}` does not parse: {sentence(why)}") from None
        yield _case(file, data, {}, number, f"line {number}")


def _list_of_cases(file: Path, data: Any) -> Sequence[Any]:
    if isinstance(data, list):
        return data
    if isinstance(data, dict):
        cases: Sequence[Any] = data.get("cases", [data])
        return cases
    raise InvalidArgument(f"`{file}` holds no cases")


def _case(file: Path, data: Any, shared: Mapping[str, Any], number: int, name: str) -> Case:
    if not isinstance(data, dict):
        raise InvalidArgument(f"`{file}`, {name}: a case is an object")
    merged = {**shared, **data}
    return Case(str(merged.get("note", f"{file.name} {name}")), file.parent, merged, file, number)


def place_of_case(case: Case) -> Place | None:
    """Return the place of a case; None for a case that comes from no file."""
    return None if case.file is None else Place(str(case.file), *_mark(_node_of(case), case))


def line_of_check(case: Case, number: int) -> int | None:
    """Return the line of a check of a case; None if unknown, or if the check stands on the line of its case."""
    checks = _value(_node_of(case), "checks")
    if not isinstance(checks, yaml.SequenceNode) or number >= len(checks.value):
        return None
    line = checks.value[number].start_mark.line + 1
    place = place_of_case(case)
    return None if place is None or line == place.line else line


def forget_places() -> None:
    """Forget the files read so far: they may have changed."""
    _document.cache_clear()


def _mark(node: yaml.Node | None, case: Case) -> tuple[int, int]:
    if node is not None:
        return node.start_mark.line + 1, node.start_mark.column + 1
    return (case.number if _is_by_line(case) else 1), 1


def _is_by_line(case: Case) -> bool:
    return case.file is not None and case.file.suffix == ".jsonl"


def _node_of(case: Case) -> yaml.Node | None:
    """Return the node of a case in its file; None if unknown."""
    if case.file is None or _is_by_line(case):
        return None
    root = _document(case.file)
    cases = root if isinstance(root, yaml.SequenceNode) else _value(root, "cases")
    if not isinstance(cases, yaml.SequenceNode):
        return root
    return cases.value[case.number] if case.number < len(cases.value) else None


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


@lru_cache(maxsize=8)
def _document(file: Path) -> yaml.Node | None:
    """Return the root of a file. JSON is read as YAML; the few texts that differ have no places."""
    try:
        text = file.read_text(encoding="utf-8")
        bound_yaml(text)
        return yaml.compose(text, yaml.CSafeLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None


class CedarCase(msgspec.Struct, forbid_unknown_fields=True):
    """Value of the key `cedar` of a test.

    `policies` is a text, a file or a list of files that end in `.cedar`. `entities` is a list of entities, or of files,
    or a file. `schema` has `extend` or `replace` with a text, or with a file that ends in `.cedarschema`.
    """

    policies: str | list[str] = ""
    entities: str | list[str | dict[str, Any]] = []
    schema: dict[str, str] | None = None


def cedar_policies(given: CedarCase, folder: Path) -> PolicySources:
    """Return the policies of the engine `cedar` that a test brings; raise PolicyError. Files are below `folder`."""
    schema: Mapping[str, str] = given.schema or {}
    texts = {key: _texts([text], folder, _SCHEMA)[0] for key, text in schema.items()}
    named = [given.policies] if isinstance(given.policies, str) else given.policies
    sources = CedarSources(
        _texts(named, folder, _POLICIES), _entities(given, folder), texts.get("replace"), texts.get("extend")
    )
    return as_sources(load_model(sources))


def _entities(given: CedarCase, folder: Path) -> tuple[SourceText, ...]:
    """Return the texts of files, and of the entities in the test."""
    listed = [given.entities] if isinstance(given.entities, str) else given.entities
    files = [folder / entry for entry in listed if isinstance(entry, str)]
    inline = [entry for entry in listed if not isinstance(entry, str)]
    own = (SourceText(msgspec.json.encode(inline).decode()),) if inline else ()
    return (*read_sources(files), *own)


def _texts(named: Sequence[str], folder: Path, suffix: str) -> tuple[SourceText, ...]:
    """Return texts; one that ends in the suffix is the name of a file."""
    return tuple(read_sources([folder / text])[0] if text.endswith(suffix) else SourceText(text) for text in named)
