"""The command line: reads files and arguments, asks the service, prints. Holds no policy.

Only the composition root imports it: `main` with `wiring`, `ending`, and `logs`. A command is a module, or a folder
with `command`. Folders show each other `dry_run.checks` for times, `dry_run.sides` for kinds of files and
`grants.store` for stored facts; a replay in the lake extends `dry_run.command`. `pdp serve` warns by
`config.foreign_variables`, `pdp lint` reads `config.problems`, and `pdp migrate`
masks secrets by `config.command`.
"""
