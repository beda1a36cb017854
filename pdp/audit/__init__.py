"""Audit: records of decisions, events and facts, from a request to files and receivers, and back.

Does not know what a decision means. Rooms: `records` (a decision as a line, and a line as a check), `queue` (waiting
records, and the threads that write), `files` (segments, hash chains and locks), `verify` (what was changed since),
`push` (receivers) and `facts` (the history of facts).

Outsiders import `reader`, `following` and `selection`; `records.record`, `records.recorded`, `records.rows`,
`records.schema`, `records.tables` and `records.writing`; `facts.history` and `facts.log`; `verify.verify`. Ingest on
Spark reads the files by itself, with `files.chain`, `files.segments` and `facts.files`. A check of the configuration
asks a receiver by `push.http`. The composition root wires queue, sinks and folders.
"""
