"""Report on a lake from beginning to end: questions asked, tables written, a value that pages and files are made of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from pdp.pipeline.lake import Lake
from pdp.pipeline.replay_tables import RECORDED
from pdp.pipeline.report.answers import Report, ReportAnswer
from pdp.pipeline.report.asking import SOURCES, Asker
from pdp.pipeline.report.outputs import write_tables
from pdp.pipeline.report.questions import QUESTIONS, read_question

_REPLAYS: Final = "replay_differences"
"""Table of replays, if there was one."""


def make_report(lake: Lake, days: int, notice: Callable[[str], None], note: str = "") -> Report:
    """Return the report on a lake, and write its tables; call `notice` with each step.

    Raise InvalidArgument if the lake has no tables.
    """
    asker = _asker(lake, days)
    answers: dict[str, ReportAnswer] = {}
    with asker.views(notice):
        for number, name in enumerate(QUESTIONS, 1):
            notice(f"question {number} of {len(QUESTIONS)}, {name}")
            answers[name] = asker.ask(read_question(name))
        if _has_candidate(lake):
            answers["candidate"] = asker.ask(read_question("candidate"))
    report = Report(lake.catalog.name, asker.first, asker.last, days, datetime.now(UTC), answers, note)
    notice("tables")
    write_tables(lake, report)
    return report


def _has_candidate(lake: Lake) -> bool:
    """Tell whether the lake has a replay under a candidate, and make the view that the question reads."""
    if not lake.exists(_REPLAYS):
        return False
    replays = lake.table(_REPLAYS)
    replays.createOrReplaceTempView(_REPLAYS)
    return not replays.where(f"candidate <> '{RECORDED}'").isEmpty()


def explain_questions(lake: Lake, days: int) -> str:
    """Return the plan of Spark for each question. Answers none; raise InvalidArgument if the lake has no tables."""
    asker = _asker(lake, days)
    with asker.views(lambda _: None):
        return "\n".join(f"-- {name}\n{asker.plan(read_question(name))}" for name in QUESTIONS)


def _asker(lake: Lake, days: int) -> Asker:
    for source in SOURCES:
        lake.table(source).createOrReplaceTempView(source)
    return Asker(lake.spark, days)
