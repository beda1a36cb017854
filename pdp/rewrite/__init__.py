"""Rewriting of SQL: row access for engines without a hook. Knows no surface, no store and no verdict.

Outsiders import `errors`, `policy_statements`, `catalog` and `sql`. They have statements rewritten by
`process.local` in this process, or by `process.pool` with `process.messages` in one of their own: never by the
rewriter itself.

`iceberg` knows tables and views of Iceberg REST catalogs. `iceberg.relations` is the face for statements,
`iceberg.client` for properties of views. Comparisons of row policies make readers by `identity`, lint of them reads
columns by `filters`.
"""
