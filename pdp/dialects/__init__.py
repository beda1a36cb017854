"""Dialects: the requests that query engines send in a form of their own.

`trino` answers Trino's OPA plugin, and holds no policy. Only the composition root imports it: `trino.endpoints` as
routes, `trino.operations` as planners, and `trino.known_objects` for restrictions by name.
"""
