"""A policy decision service for lakehouses: a decision is a pure function of (batch, bundle, facts).

The layers and the faces of packages stand in pyproject.toml as import contracts. A package with several modules that
are closed to others names its faces in its docstring. The small ones, from below:

- `model`: value types of questions, answers, events and references, and strict readers. Knows no engine, no file and no
  surface, and imports nothing but `errors`. All modules are faces.
- `facts`: objects, grants and row policies of one revision, and changes. Knows no privilege. Others import
  `facts.objects`, `facts.snapshot` and `facts.row_policies`, and `facts.nodes` to walk the trees.
- `identity`: callers, tokens, certificates and evidence. Knows no policy. All modules are faces.
- `store`: facts in a database, and in memory of this process. Knows no hierarchy and no privilege. Others import
  `store.world`, `store.world_text` and `store.writer`; an import of a world `store.store`, deployed policies that
  decide policy tests `store.replica`. The composition root opens the rest.
- `views`: chains of views as plans. Knows no transport and no management. Others import `views.loads`, `views.codec`,
  `views.catalog` and `views.plans`.
- `management`: edits and listings of facts for an actor. Knows no transport and no views. All modules but
  `forbidden_edits` are faces.
- `row_access`: statements and filters for engines without a plugin. Knows neither HTTP nor gRPC. All modules are
  faces.
- `dialects`: requests in the forms of other systems. Holds no policy, and only the composition root imports it.
  `trino` answers Trino's OPA plugin: `dialects.trino.endpoints` as routes, `dialects.trino.operations` as planners, and
  `dialects.trino.known_objects` for restrictions by name. `dialects.lakekeeper` answers Lakekeeper's check API.
  `dialects.polaris` answers Apache Polaris: `dialects.polaris.endpoint` as routes, `dialects.polaris.requests` as
  planners. `dialects.authzen.endpoints` answers AuthZEN, `dialects.starrocks.endpoints` StarRocks,
  and `dialects.ranger` Ranger's PDP protocol. `dialects.opa` has what all documents of OPA's REST API share.
"""

__version__ = "0.1.0"
