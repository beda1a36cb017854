"""Decision: from a question to an answer and its record: plan, evaluate, combine.

Knows no surface, no view, no Trino and no concrete store. `service` is the face for everybody, with `ports` for its
neighbours, `active_policies` for all that decides, and `scopes` for LakeQL's scope maps. Surfaces import `bodies`,
`codec`, `batch_builder` and `turns`. Packages with plans of their own import `plan` and `inspection`. Trino's long
lists need `evaluation`, `path_arrays` and `row_filter`.

`cache` keeps verdicts of engines, in this process and in Redis. The composition root builds it; a check of the
configuration reads `cache.cache`.
"""
