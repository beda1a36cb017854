"""Policy models behind one protocol. They do no I/O, read no clock, and never import each other.

`engine` is the protocol, `engine_types` the way from settings to an engine, `guarded` and `custom` engines of other
packages, and `contract` their tests. `allow_all` permits everything. Rooms, each with its faces:

- `cel`, rules in files: `cel.engine`, `cel.rules`, `cel.sources`, `cel.nessie_keys`, `cel.lint.linter` and
  `cel.lint.remarks`. Coverage of tests reads `cel.rule_conditions`, the migration of Nessie `cel.program`,
  `cel.lint.search` and `cel.lint.check_bindings`.
- `grants`, stored grants under Lakekeeper's model: `grants.engine`, `grants.model`, `grants.administration`,
  `grants.edits` and `grants.effective_access`. Coverage reads `grants.rules`.
- `cedar`, Cedar policies under Lakekeeper's schema: `cedar.kind`, `cedar.model`, `cedar.schema` and `cedar.lint`.
  Coverage reads `cedar.engine`, `cedar.explain` and `cedar.policies`, a replay in the lake `cedar.entity_files`.
- `scopes`, LakeQL's permission files and resolvers of other packages: `scopes.kind`, `scopes.permissions` and
  `scopes.explain`. Coverage reads `scopes.engine`.
- `row_access`, the rows of a table and the unmasked columns that a principal may see: all modules are faces.
"""
