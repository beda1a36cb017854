"""YAML in which a key that stands twice is an error, not the last value; otherwise as safe YAML reads it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml


class _StrictLoader(yaml.CSafeLoader):
    """The safe loader, stricter."""


def load(text: str) -> Any:
    """The value of a text; raises yaml.YAMLError, ValueError (a date that is none) or RecursionError."""
    return yaml.load(text, _StrictLoader)  # noqa: S506 - it constructs no more than the safe loader


def _construct_unique(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    found: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.MarkedYAMLError(problem="a key must be a text", problem_mark=key_node.start_mark)
        if key in found:
            raise yaml.MarkedYAMLError(problem=f"key `{key}` stands twice", problem_mark=key_node.start_mark)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_unique)
