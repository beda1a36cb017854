"""Rewriting of SQL: row access for engines without a hook. Knows no surface, no store and no verdict.

Outsiders import `errors`, `policy_statements`, `catalog` and `sql`. `process.local` rewrites statements in this
process, and `process.pool` with `process.messages` in another: nobody calls the rewriter itself.

`iceberg` knows tables and views of Iceberg REST catalogs. `iceberg.relations` is the face for statements,
`iceberg.client` for properties of views. Comparisons of row policies make readers by `identity`, lint of them reads
columns by `filters`.
"""
