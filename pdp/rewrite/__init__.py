"""Rewriting of SQL: row access for engines without a hook. Knows no surface, no store and no verdict."""
