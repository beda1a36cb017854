"""Text of a rule file: rules as Java properties in the order given. `sources` reads the text back to the same rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import javaproperties

from pdp.engines.cel.nessie_keys import PREFIX


def rule_lines(rules: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a properties file with rules by id, without line ends."""
    for id, text in rules.items():
        value = text.replace("$", "\\$")  # a plain `$` begins an expression of Quarkus
        yield javaproperties.join_key_value(f"{PREFIX}{_quoted(id)}", value, ensure_ascii=False)


def _quoted(id: str) -> str:
    """Return an id as the last part of a key: in quotes where a reader would take quotes away or see a list."""
    has_quotes = len(id) > 1 and id[0] == id[-1] == '"'
    return f'"{id}"' if has_quotes or id.endswith("[]") else id
