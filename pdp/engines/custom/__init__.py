"""Engines of other packages: found by entry points, guarded, and held to a contract."""
