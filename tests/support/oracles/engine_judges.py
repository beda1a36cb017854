"""Comparison of what the rewriter reads in a statement, and in its answer, with what an engine's parser sees there."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp
from sqlglot.expressions import FUNCTION_BY_NAME
from support.judging import judge_seconds
from support.oracles.parser_judges import PIECES, mutated
from support.rewriting import POLICIES, recorded_cases, recorded_data
from support.servers.engine_parsers import PROGRAMS, EngineParser, EngineSight, engine_parser

from pdp.engines.row_access.policies import read_documents
from pdp.rewrite import names
from pdp.rewrite.catalog import catalog_of, policy_set_of
from pdp.rewrite.errors import RewriteRefused
from pdp.rewrite.mentions import READ
from pdp.rewrite.names import SCALARS, TABLE_FUNCTIONS, name_parts
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest
from pdp.rewrite.rewriter import Rewriter
from pdp.rewrite.sql import ParsedText
from pdp.rewrite.visible_relations import Analyzer

SEED: Final = os.environ.get("TEST_JUDGE_SEED", "7")
NAMES: Final = (
    "orders", "items", "customers", "lake.hr.salaries", "sales.orders", "values", "orders o", "v_orders", "sink", "TABLE orders",
    "TABLE(orders)", "TABLE (SELECT * FROM orders)", "STREAM orders", "(orders)", "IDENTIFIER('orders')", "a =>", "explode(", "sequence(",
    "LATERAL VIEW explode(", "CROSS JOIN", ", LATERAL", "UNNEST(", "orders.tags", "o.tags", "FROM orders", "FROM orders o", "FROM (orders)",
    "JOIN orders ON TRUE", "INSERT INTO sink", "FOR VERSION AS OF 1", "VERSION AS OF 1", "PIVOT(", "ORDER BY", "LIMIT 1", "OFFSET", "FETCH FIRST",
    "GROUPING SETS(", "WINDOW w AS (", "QUALIFY", "HAVING", "FILTER (WHERE", "WITHIN GROUP (", "AT TIME ZONE", "INTERVAL", "DATE", "TIMESTAMP",
    "STRUCT(", "ARRAY[", "ARRAY(", "MAP(", "ROW(", "CAST(", "TRY_CAST(", " AS int)", "LISTAGG(", "(SELECT", "(FROM", "ALL", "ANY", "SOME", "LIKE",
    "ESCAPE", "RLIKE", "BETWEEN", "div", "<=>", "==", "!=", "<<", ">>", "::", "@@", "@a", "${a}", ":=", "{{", "}}", ";", "EXCEPT", "INTERSECT",
    "MINUS", "* EXCEPT (", "* REPLACE (", "COLUMNS(", "RECURSIVE", "MATERIALIZED", "MATCH_RECOGNIZE(", "DESCRIPTOR(", "JSON_TABLE(", "X'00'",
    "U&'a'", "e'a'", "b'a'", "N'a'", "%", "/", "///", "\t", "\r\n", "1d", "1e", "0b1", "1.e", "a.1", "1a", "a-b", "$a", "a$b", "\\'", "'\\'",
)  # fmt: skip
"""Names of the recorded catalog in many places, and words and signs of which engines differ."""
SHAPES: Final = (PROGRAMS / "shapes.txt").read_text("utf-8").splitlines()
"""Statements with a source at every place that the engines know. An engine refuses those of other engines."""
_OWN_NAMES: Final[dict[str, frozenset[str]]] = {
    "trino": frozenset({"any", "some", "all"}), "spark": frozenset({"rollup", "cube", "any", "like", "not"}), "bigquery": frozenset({"div"}),
}  # fmt: skip
"""Words that are functions to the engine where no query stands behind. They read their arguments alone."""
_STATEMENTS: Final = {
    exp.Insert: ("insert", "overwrite"), exp.Update: ("update",), exp.Delete: ("delete",), exp.Merge: ("merge",),
    exp.Create: ("create", "replace"), exp.TruncateTable: ("truncate",),
}  # fmt: skip
_QUERIES: Final = {"trino": "Query", "bigquery": "ASTQueryStatement"}


def assert_agreement(dialect: str) -> None:
    """Judge the shapes, and mutated statements: nightly for an hour, else the same 1,500."""
    with engine_parser(dialect) as engine:
        judgement = Judgement(dialect, engine)
        shapes = judgement.judge_shapes()
        assert not shapes.wrong, "\n".join(shapes.wrong)
        trial = judgement.run(random.Random(f"{SEED}{dialect}"), judge_seconds(0), 1_500)
    assert trial.judged > 50
    assert not trial.wrong, "\n".join(trial.wrong)


@dataclass
class Trial:
    """Numbers of one run, and the texts in which the engine sees more than the rewriter."""

    tried: int = 0
    taken: int = 0
    judged: int = 0
    answers: int = 0
    wrong: list[str] = field(default_factory=list)


class Judgement:
    """Rewriter with the recorded policies, beside the parser of one engine."""

    def __init__(self, dialect: str, engine: EngineParser) -> None:
        documents = [source.document for source in read_documents([POLICIES])]
        self._catalog = catalog_of(documents)
        policies = self._policies = policy_set_of(documents)
        self._rewriter = Rewriter(self._catalog)
        self._service = LocalRewriter(self._catalog, policies, self._rewriter)
        shut = (relation for relation in self._catalog if relation.view or policies.hides(relation.key))
        self._closed = frozenset(relation.name[-1].lower() for relation in shut)
        self._analyzer = Analyzer(self._catalog)
        self._dialect, self._engine = dialect, engine
        callers = recorded_data()["callers"].values()
        self._callers = [(who["principal"], tuple(who["groups"]), who["authenticated"]) for who in callers]

    def run(self, dice: random.Random, seconds: float, least: int) -> Trial:
        """Judge mutated statements for a time, and at least some: the same ones in each run without a time."""
        trial, end = Trial(), time.monotonic() + seconds
        texts = [case["sql"] for case in recorded_cases() if case["dialect"] == self._dialect] + SHAPES
        while time.monotonic() < end or trial.tried < least:
            text = dice.choice(texts)
            if dice.random() < 0.95:
                text = mutated(text, dice, (*PIECES, *NAMES))
            self.judge(text, self._callers[dice.randrange(len(self._callers))], trial)
        return trial

    def judge_shapes(self) -> Trial:
        """Judge statements as they are."""
        trial = Trial()
        for text in SHAPES:
            for caller in self._callers[:2]:
                self.judge(text, caller, trial)
        return trial

    def judge(self, text: str, caller: tuple[str, tuple[str, ...], bool], trial: Trial) -> None:
        """Compare the readings of one text and of its answer."""
        trial.tried += 1
        principal, groups, authenticated = caller
        try:
            request = RewriteRequest(text, self._dialect, principal, groups, authenticated)
            answer = self._service.rewrite(request)
        except RewriteRefused:
            return
        trial.taken += 1
        trial.wrong += self._differences(text, trial)
        if answer != text:
            trial.answers += 1
            found = self._differences(answer, trial, is_answer=True) + self._unfiltered(text, answer, request)
            trial.wrong += [f"{line}\n  of {text}" for line in found]

    def _differences(self, text: str, trial: Trial, *, is_answer: bool = False) -> list[str]:
        seen = self._engine.read(text.strip().removesuffix(";"))
        if seen is None:
            return []
        trial.judged += 1
        try:
            parsed, tables = self._read(text, is_answer=is_answer)
        except RewriteRefused as error:
            if is_answer:
                return [f"the rewriter does not read its own answer ({error}): {text}"]
            # The fast way passes what the parser refuses: texts of open tables alone.
            read = self._closed.intersection(name.rpartition(".")[2] for name in seen.tables)
            return [f"closed tables {set(read)}: {text}"] if read or seen.opaque or seen.parameters else []
        found = list(self._compare(parsed.tree, tables, seen))
        return [f"{', '.join(found)}: {text}"] if found else []

    def _unfiltered(self, text: str, answer: str, request: RewriteRequest) -> list[str]:
        """Return the tables of an answer with hidden rows that the engine does not read under a condition."""
        seen = self._engine.read(answer.strip().removesuffix(";"))
        if seen is None or not seen.bare:
            return []
        mentions = self._analyzer.analyze(text, self._dialect, self._catalog.default).references
        written = {".".join(mention.parts).lower() for mention in mentions.found if mention.role != READ}
        common = {table.alias.lower() for table in ParsedText(answer, self._dialect).tree.find_all(exp.CTE)}
        bare = []
        for name in seen.bare - written - common:
            parts = tuple(name.split("."))
            found = self._catalog.get(parts, self._dialect, self._catalog.default)
            policies = self._policies.written_for(self._dialect)
            if found and self._rewriter.visible(found.name, self._dialect, request.caller(), policies)[0]:
                bare.append(f"`{name}` is read without its filter: {answer}")
        return bare

    def _read(self, text: str, *, is_answer: bool) -> tuple[ParsedText, Counter[str]]:
        """Return the tree and the names of all tables that the rewriter knows of."""
        if is_answer:
            parsed = ParsedText(text, self._dialect)
            nodes = list(parsed.tree.find_all(exp.Table))
        else:
            analyzed = self._analyzer.analyze(text, self._dialect, self._catalog.default)
            parsed, mentions = analyzed.parsed, analyzed.references
            nodes = [node for node, _ in mentions.exposed]
            nodes += [mention.node for mention in mentions.found if mention.role != READ]
        tables = Counter(".".join(parts).lower() for node in nodes if (parts := name_parts(node)))
        for unnest in parsed.tree.find_all(exp.Unnest) if self._dialect == "bigquery" else ():
            tables.update(_path(part) for part in unnest.expressions)
        return parsed, tables

    def _compare(self, tree: exp.Expr, tables: Counter[str], seen: EngineSight) -> list[str]:
        """Return the parts that only the engine sees."""
        if more := seen.tables - tables:
            return [f"tables {dict(more)}"]
        found = []
        if opaque := seen.opaque - TABLE_FUNCTIONS:
            found.append(f"table functions {set(opaque)}")
        mine = sum(1 for _ in tree.find_all(exp.Placeholder, exp.Parameter))
        if seen.parameters > mine:
            found.append(f"{seen.parameters - mine} parameters")
        if unknown := {name for name in seen.functions if not _is_known(name)} - _OWN_NAMES[self._dialect]:
            found.append(f"functions {unknown}")
        if not _is_same_statement(tree, seen.statement, self._dialect):
            found.append(f"statement {seen.statement}")
        known = {
            part.lower()
            for name in tree.find_all(exp.Identifier, exp.Literal, exp.Var)
            for part in name.name.replace("\r", "").replace("\n", ".").split(".")
        }
        spoken = {part for name in seen.columns for part in name.replace("\r", "").split(".")}
        hidden = {part for part in spoken - known if part in names.HIDDEN_COLUMNS or part.startswith("$")}
        return [*found, *([f"columns {hidden}"] if hidden else [])]


_REFUSED_NAMES: Final = frozenset(
    name.lower() for kind in names._REFUSED if issubclass(kind, exp.Func) for name in kind.sql_names()
)
_KNOWN: Final = (SCALARS | {name.lower() for name in FUNCTION_BY_NAME}) - _REFUSED_NAMES


def _is_known(name: str) -> bool:
    """Tell whether a function reads no table, by the lists of the rewriter."""
    prefix, _, last = name.rpartition(".")
    known = {
        f"{space}.{own}" for spaces in names._NAMESPACES.values() for space, some in spaces.items() for own in some
    }
    return name in known or (not prefix and last in _KNOWN) or (prefix in ("safe", "net") and last in _KNOWN)


def _is_same_statement(tree: exp.Expr, statement: str, dialect: str) -> bool:
    words = next((words for kind, words in _STATEMENTS.items() if isinstance(tree, kind)), None)
    if words is not None:
        is_behind_with = statement == "UnresolvedWith" and tree.find(exp.With) is not None
        return is_behind_with or any(word in statement.lower() for word in words)
    return statement == _QUERIES[dialect] if dialect in _QUERIES else " " not in statement


def _path(part: exp.Expr) -> str:
    names = part.parts if isinstance(part, (exp.Column, exp.Dot)) else part.find_all(exp.Identifier)
    return ".".join(name.name for name in names).lower()
