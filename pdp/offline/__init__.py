"""Work without a service: policy tests, replay, migration. Does not know the command line.

- `cases`, policy tests as data: `cases.cases`, `cases.runner`, `cases.outcomes` and `cases.deployment`. Coverage reads
  `cases.reasons`.
- `coverage`, the points of policies that tests show: `coverage.cases` and `coverage.coverage`.
- `migration`, policies of Nessie, Lakekeeper and OpenFGA as files of this service: `migration.nessie`,
  `migration.lakekeeper` and `migration.openfga` each return a `Migration` of `migration.report`. They write no file.
- `replay`, recorded checks decided again: `replay.replay`, `replay.basis` and `replay.differences`. The lake asks
  `replay.table_replay` and `replay.least_privilege`.
- `row_policies`: `row_policies.lint` and `row_policies.changes`.
"""
