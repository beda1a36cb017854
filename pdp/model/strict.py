"""Strict decoding of JSON and YAML: no duplicate keys, no unlimited nesting.

Most decoders silently take the last of duplicate keys; others take the first. Two readers must not understand one body
differently, so a body with duplicate keys is an error.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import yaml

from pdp.errors import InvalidArgument

T = TypeVar("T")
FIRST_INEXACT: Final = 2**53
"""Smallest whole number that another one rounds to, as a double."""
_LARGEST: Final = int(sys.float_info.max)
_encode = msgspec.json.Encoder().encode
_MOST_LEVELS = 200
"""Levels of lists and maps in a YAML text."""
_MAY_BE_DEEP = re.compile(rf"^[ ]{{{_MOST_LEVELS}}}|(?:[-?:][ \t]+){{{_MOST_LEVELS // 2}}}", re.MULTILINE).search
"""Search for block collections on many levels: each needs a column of its own."""
_MAY_HAVE_ALIAS = re.compile(r"(?:^|[\s\[{,])\*[^\s*,\[\]{}]", re.MULTILINE).search
"""Search for `*name` at the beginning of a value."""
_MOST_ALIASED: Final = 200_000
"""Values in a YAML text behind aliases, each once for each alias."""


def decode(body: bytes, decoder: msgspec.json.Decoder[T], *, typed: bool = False) -> T:
    """Return the typed value of a body; raise InvalidArgument with the name of the wrong field.

    `typed` says that the type holds no raw JSON. Then the value itself usually proves that no key is duplicated.
    """
    value = parse(body, decoder)
    if not typed or not has_all_strings(body, value):
        refuse_duplicates(body)
    return value


def has_all_strings(body: bytes, value: object) -> bool:
    """Tell whether the decoded `value` provably holds every string of a body, keys included. False if in doubt.

    A decoder drops the key of a duplicate, so a value with all strings of the body comes from a body without
    duplicates. The encoder writes no key twice, so a body that is just the encoded value has no duplicate: clients
    write most bodies so. In any other body without backslashes, two quotes stand for each string, whatever the white
    space. No decoder makes a string that the body does not hold: types must omit defaults when encoded.
    """
    text = _encode(value)
    # the encoded value has an even number of quotes, two for each string
    return text == body or (b"\\" not in body and body.count(b'"') == text.count(b'"'))


def has_strings(body: bytes, count: int) -> bool:
    """Tell whether a body provably holds `count` strings and no more. False if in doubt."""
    return b"\\" not in body and body.count(b'"') == 2 * count


def count_strings(value: object) -> int:
    """Return the number of strings in the JSON of a value, keys included. No string may hold a quote or backslash."""
    return _encode(value).count(b'"') // 2


def parse(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Return the typed value of a body without the search for duplicate keys; raise InvalidArgument."""
    try:
        return decoder.decode(body)
    except RecursionError:
        raise InvalidArgument("the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise InvalidArgument(sentence(str(error))) from None


def refuse_duplicates(body: bytes) -> None:
    """Raise InvalidArgument if an object in a body has a duplicate key."""
    try:
        if not _holds_unique_keys(body):
            json.loads(body, object_pairs_hook=_unique)
    except RecursionError:
        raise InvalidArgument("the body is nested too deeply") from None
    except ValueError as error:
        raise InvalidArgument(sentence(str(error))) from None


def load_json(text: str) -> Any:
    """Return the value of a JSON text; raise ValueError or RecursionError, and InvalidArgument for a duplicate key."""
    value = json.loads(text)  # first, because the errors of this reader have a place
    refuse_duplicates(text.encode())
    return value


def _holds_unique_keys(body: bytes) -> bool:
    """Tell whether the decoded body proves that no key is duplicated. False if in doubt."""
    try:
        return has_all_strings(body, msgspec.json.decode(body))
    except msgspec.DecodeError:  # a number out of range, for one: the search alone decides
        return False


def _unique(pairs: list[tuple[str, Any]]) -> None:
    keys = set()
    for key, _ in pairs:
        if key in keys:
            raise ValueError(f"duplicate key `{key}`")
        keys.add(key)


def sentence(text: str) -> str:
    """Return a library's message in the form of our messages: one line, not capitalised."""
    first = text[:1] if text[1:2].isupper() else text[:1].lower()
    return first + text[1:].replace("\n", " ")


def exact_numbers(values: dict[str, Any]) -> dict[str, Any]:
    """Return JSON values in which a whole number is an int, whether a body writes 1, 1.0 or 1e0.

    Protocols, proxies and clients do not keep that difference, so no policy may see it. A zero with a sign stays a
    double, and so does a whole double that another number may have rounded to. Raise InvalidArgument for a number
    beyond the doubles.
    """
    return {key: _exact(value) for key, value in values.items()}


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return exact_numbers(value)
    if isinstance(value, list):
        return [_exact(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < FIRST_INEXACT:
        return value if value == 0 and math.copysign(1, value) < 0 else int(value)
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise InvalidArgument("a number is out of range")
    return value


class _StrictLoader(yaml.CSafeLoader):
    """Safe loader that rejects duplicate keys."""


class NumberSpellingError(yaml.MarkedYAMLError):
    """Number in a YAML text with more than one reading."""


class _PlainLoader(_StrictLoader):
    """Strict loader that rejects numbers that YAML 1.1, YAML 1.2 and people read differently."""


def load_yaml(text: str, *, plain: bool = False) -> Any:
    """Return the value of a YAML text; raise yaml.YAMLError, ValueError (for an invalid date) or RecursionError.

    `plain`: raise NumberSpellingError for a number with more than one reading.
    """
    bound_yaml(text)
    return yaml.load(text, _PlainLoader if plain else _StrictLoader)  # noqa: S506 - no more than the safe loader


def bound_yaml(text: str) -> None:
    """Raise RecursionError for a YAML text that is nested too deeply: its loader would overflow the stack.

    Raise yaml.MarkedYAMLError for an alias within its own value, and where aliases stand for too many values.
    """
    is_flat = not _MAY_BE_DEEP(text) and text.count("[") + text.count("{") <= _MOST_LEVELS
    if is_flat and not ("&" in text and _MAY_HAVE_ALIAS(text)):
        return
    bounds = _YamlBounds()
    for event in yaml.parse(text, yaml.CSafeLoader):
        bounds.take(event)


class _YamlSize(NamedTuple):
    """Size of a value with the values behind aliases, and levels of lists and maps."""

    values: int = 1
    levels: int = 0


class _YamlBounds:
    """Bounds of a YAML text, event by event. An alias counts as the value behind the alias."""

    def __init__(self) -> None:
        self._open: list[tuple[str | None, list[_YamlSize]]] = []
        self._known: dict[str, _YamlSize] = {}
        self._aliased = 0

    def take(self, event: Any) -> None:
        """Count an event; raise RecursionError or yaml.MarkedYAMLError beyond the bounds."""
        if isinstance(event, yaml.CollectionStartEvent):
            self._open.append((event.anchor, [_YamlSize()]))
            self._bound_levels(0)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, (size,) = self._open.pop()
            self._add(anchor, _YamlSize(size.values, size.levels + 1))
        elif isinstance(event, yaml.AliasEvent):
            self._add(None, self._meant(event))
        elif isinstance(event, yaml.ScalarEvent):
            self._add(event.anchor, _YamlSize())

    def _meant(self, alias: Any) -> _YamlSize:
        if any(anchor == alias.anchor for anchor, _ in self._open):
            raise yaml.MarkedYAMLError(problem="an alias stands within its own value", problem_mark=alias.start_mark)
        size = self._known.get(str(alias.anchor), _YamlSize())  # the loader refuses an unknown one
        self._aliased += size.values
        if self._aliased > _MOST_ALIASED:
            problem = f"aliases stand for more than {_MOST_ALIASED:,} values"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=alias.start_mark)
        self._bound_levels(size.levels)
        return size

    def _add(self, anchor: str | None, size: _YamlSize) -> None:
        if anchor:
            self._known[anchor] = size
        if self._open:
            _, around = self._open[-1]
            around[0] = _YamlSize(around[0].values + size.values, max(around[0].levels, size.levels))

    def _bound_levels(self, within: int) -> None:
        if len(self._open) + within > _MOST_LEVELS:
            raise RecursionError(f"nested deeper than {_MOST_LEVELS} levels")


def position_of(text: str, where: Sequence[str | int], *, keys: bool = False) -> tuple[int, int, int] | None:
    """Return line, column and found steps of a value in a YAML text; of the nearest enclosing one if it is missing.

    With `keys`, the position of the value's key instead. None if the text is not YAML or empty. Slow, because PyYAML
    reads the text again with marks: call after a failure only.
    """
    try:
        node = place = _compose(text)
    except (yaml.YAMLError, RecursionError):  # not all JSON is YAML: JSON may escape a character as two surrogates
        return None
    found = 0
    for step in where:
        key, below = _step(node, step)
        if below is None:
            break
        node, found = below, found + 1
        place = key if keys else below
    return place and (place.start_mark.line + 1, place.start_mark.column + 1, found)


@lru_cache(maxsize=1)
def _compose(text: str) -> Any:
    """Return the nodes of a text. Kept, because one file has many places."""
    bound_yaml(text)
    return yaml.compose(text, yaml.CSafeLoader)


def _step(node: Any, step: str | int) -> tuple[Any, Any]:
    """Return the nodes of a key and of its value; None for a missing key."""
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    if isinstance(node, yaml.MappingNode):
        merged = [value for key, value in node.value if key.value == _MERGE]
        around = [one for value in merged for one in (value.value if isinstance(value, yaml.SequenceNode) else [value])]
        own = ((key, value) for key, value in node.value if key.value == str(step))
        return next(own, None) or next((found for one in around if (found := _step(one, step))[1]), (None, None))
    return None, None


def keys_around(text: str, line: int, column: int) -> tuple[str | int, ...]:
    """Return the keys around a place of a YAML text, from 0. Empty if the text has no nodes."""
    try:
        node = _compose(text)
    except (yaml.YAMLError, RecursionError):
        return ()
    keys: list[str | int] = []
    at = (line, column)
    while isinstance(node, yaml.CollectionNode):
        found = next(((key, below) for key, below in _values(node) if _holds(below, at)), None)
        if found is None:
            break
        node = found[1]
        if found[0] != _MERGE:
            keys.append(found[0])
    return tuple(keys)


_MERGE = "<<"
"""Key of a mapping to merge into the mapping around."""


def _values(node: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(node, yaml.SequenceNode):
        return enumerate(node.value)
    return ((str(key.value), value) for key, value in node.value)


def _holds(node: Any, at: tuple[int, int]) -> bool:
    start, end = node.start_mark, node.end_mark
    return (start.line, start.column) <= at <= (end.line, end.column)


def _construct_unique(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    mapping: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.MarkedYAMLError(problem="a key must be a text", problem_mark=key_node.start_mark)
        if key in mapping:
            raise yaml.MarkedYAMLError(problem=f"key `{key}` stands twice", problem_mark=key_node.start_mark)
        mapping[key] = loader.construct_object(value_node, deep=True)
    return mapping


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_unique)

PLAIN_NUMBERS: Final = (
    "write a number in plain decimal digits, such as `1000` or `0.5`: readers differ on a leading zero, `_`, `:`, `0x` "
    "and exponents"
)
_PLAIN: Final = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)")
_SAME: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\.[0-9]*[eE][-+][0-9]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
"""Other numbers that YAML 1.1 and 1.2 read alike."""


def is_plain_number(text: str) -> bool:
    """Tell whether a text is a number with one reading, in decimal digits."""
    return bool(_PLAIN.fullmatch(text))


def _construct_plain(loader: _PlainLoader, node: yaml.ScalarNode) -> int | float:
    if not is_plain_number(node.value) and not _SAME.fullmatch(node.value):
        raise NumberSpellingError(problem=f"{PLAIN_NUMBERS}; a text needs quotes", problem_mark=node.start_mark)
    is_float = node.tag == "tag:yaml.org,2002:float"
    return loader.construct_yaml_float(node) if is_float else loader.construct_yaml_int(node)


for _tag in ("int", "float"):
    _PlainLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", _construct_plain)


def read_parameters(
    query: Iterable[tuple[str, str]], known: frozenset[str], empty: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Return query parameters by name; raise InvalidArgument for an unknown one, a repeated one, and one without text.

    A parameter without text is not an absent one, except a `pageToken` and those of `empty`.
    """
    given: dict[str, str] = {}
    for name, value in query:
        if name not in known:
            takes = f"known are {', '.join(sorted(known))}" if known else "this endpoint takes none"
            raise InvalidArgument(f"unknown parameter `{name}`: {takes}")
        if name in given:
            raise InvalidArgument(f"parameter `{name}` is given twice")
        if not value and name != "pageToken" and name not in empty:
            raise InvalidArgument(f"parameter `{name}` is empty: leave it out, or give a value")
        given[name] = value
    return given
