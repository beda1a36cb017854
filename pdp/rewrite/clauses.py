"""Clauses between the name of a table and the next source: time travel and samples. They stay beside the table."""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

from pdp.rewrite.errors import UNSUPPORTED_SOURCE, RewriteRefused
from pdp.rewrite.syntax import place_of

_CALL: Final = r"\w+\s*\((?:[^()']|'[^']*'|\((?:[^()']|'[^']*'|\([^()']*\))*\))*\)"
_VALUE: Final = rf"(?:{_CALL}|(?:\w+\s*)?'[^'\\]*'|\d+)"
_TRAVEL: Final = re.compile(
    rf"\s+(?:FOR\s+(?:SYSTEM_TIME|SYSTEM_VERSION|VERSION|TIMESTAMP)|VERSION|TIMESTAMP|SYSTEM_VERSION|SYSTEM_TIME)"
    rf"\s+AS\s+OF\s+{_VALUE}|\s+AT\s*\(\s*(?:VERSION|TIMESTAMP)\s*=>\s*{_VALUE}\s*\)",
    re.IGNORECASE,
)
_SAMPLE: Final = re.compile(
    r"\s+TABLESAMPLE\s+(?:\d+(?:\.\d+)?\s*(?:PERCENT|ROWS|%)(?:\s*\(\s*\w+\s*(?:,\s*\d+\s*)?\))?|(?:\w+\s*)?\([^()']*\))"
    r"(?:\s+REPEATABLE\s*\(\s*\d+\s*\))?",
    re.IGNORECASE,
)
_NAMED: Final = {
    "trino": "{name}{travel}{alias}{sample}",
    "spark": "{name}{travel}{sample}{alias}",
    "bigquery": "{name}{alias}{travel}{sample}",
    "duckdb": "{name}{alias}{travel}{sample}",
}
"""Place of an alias among the clauses, by dialect."""
_SHARE: Final = re.compile(r"%|\bpercent\b|\bbucket\b", re.IGNORECASE)
"""Sample of a share of the rows."""
COUNTED_SAMPLES: Final = frozenset({"duckdb", "spark"})
"""Dialects with samples of a number of rows. Trino reads every number as a share."""
_COLUMNS: Final = re.compile(r"\s*\([^()]*\)")
_GOES_ON: Final = re.compile(r"\s*(?:[-+*/|.:\[(]|AT\s+TIME|AS\s+OF)", re.IGNORECASE)
"""Text after a clause that shows that the clause has not ended."""


class TableClauses:
    """Time travel and sample of a table, with places in the text."""

    def __init__(self, node: exp.Table, text: str, end: int) -> None:
        """Find the clauses after a name that ends at `end`; raise RewriteRefused for an unknown form."""
        self.spans: list[tuple[int, int]] = []
        self.travel = self.sample = ""
        self.counts_rows = False
        """True for a sample of a number of rows: of the visible rows, or the size of the sample tells how many hide."""
        wants_travel = bool(node.args.get("version") or node.args.get("when"))
        wants_sample = bool(node.args.get("sample"))
        if not wants_travel and not wants_sample:
            return
        alias_end = _alias_end(node, text)
        at = end
        while wants_travel or wants_sample:
            travel, sample = _TRAVEL.match(text, at), _SAMPLE.match(text, at)
            if wants_travel and travel:
                self.travel, wants_travel, at = travel[0], False, self._take(travel)
            elif wants_sample and sample:
                self.sample, wants_sample, at = sample[0], False, self._take(sample)
                self.counts_rows = not _SHARE.search(sample[0])
            elif at < alias_end:
                at = alias_end
            else:
                raise RewriteRefused(UNSUPPORTED_SOURCE, f"a clause after `{node.name}` is not supported")
            if at > alias_end and at != end and _GOES_ON.match(text, at):
                raise RewriteRefused(UNSUPPORTED_SOURCE, f"a clause after `{node.name}` is not supported")

    def source(self, name: str, row: str, dialect: str) -> str:
        """Return a name with the clauses, and with an alias unless `row` is empty."""
        alias = f" AS {row}" if row else ""
        return _NAMED[dialect].format(name=name, alias=alias, travel=self.travel, sample=self.sample)

    def _take(self, match: re.Match[str]) -> int:
        self.spans.append(match.span())
        return match.end()


def _alias_end(node: exp.Table, text: str) -> int:
    """Return the end of the alias of a table and of its list of columns; 0 without an alias."""
    alias = node.args.get("alias")
    if alias is None or alias.this is None:
        return 0
    _, end = place_of(alias.this)
    columns = _COLUMNS.match(text, end) if alias.columns else None
    return columns.end() if columns else end
