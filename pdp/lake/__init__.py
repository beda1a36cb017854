"""Data pipeline on Spark: the audit as tables of a lake.

Needs the extra `lakehouse-pdp[spark]`. Only the commands `pdp pipeline` import this package, when they run. Modules
beside the rooms are faces, and in each room:

- `ingest`, audit folders into tables: `ingest.ingest` and `ingest.upkeep`.
- `replay`, decisions made again: `replay.archive`, `replay.questions`, `replay.replaying`, `replay.suggesting` and
  `replay.history`.
- `report`, questions in SQL, their answers as tables and files, and one page for people: `report.report` and
  `report.html`.
- `demo`, a month of a small company, played on a real service: `demo.company`, `demo.month` and `demo.player`.
"""
