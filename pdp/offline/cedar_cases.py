"""Cedar in policy tests: policies, entities and a schema in the test, or the names of their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pdp.engines.cedar.kind import as_sources
from pdp.engines.cedar.model import load_model
from pdp.engines.cedar.schema import CedarSources, SourceText, read_sources
from pdp.engines.kinds import PolicySources

_POLICIES: Final = ".cedar"
_SCHEMA: Final = ".cedarschema"


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
