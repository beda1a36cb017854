"""Names with a meaning of their own: words of SQL, hidden columns, tables of metadata."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

RESERVED: Final = frozenset(
    """select from where table with union except intersect join insert update delete merge create lateral values into
    having group order on using tablesample pivot unpivot""".split()  # noqa: SIM905
)
"""Words that no engine takes as a name without quotes. Where the parser does, it has misread the statement."""
HIDDEN_COLUMNS: Final = frozenset(
    """rowid _rowid_ _metadata _file _pos _partition _spec_id _deleted _row_id _last_updated_sequence_number
    _partitiontime _partitiondate _file_name _table_suffix _change_type _commit_version _commit_timestamp
    input_file_name file_row_number file_index""".split()  # noqa: SIM905
)
"""Columns that say where a row is stored. Names that begin with `$` are hidden as well."""
METADATA_SUFFIXES: Final = frozenset(
    """files data_files delete_files all_files all_data_files all_delete_files entries all_entries manifests
    all_manifests partitions snapshots history metadata_log_entries refs position_deletes properties
    changes""".split()  # noqa: SIM905
)
INFORMATION_SCHEMA: Final = "information_schema"
READABLE_INFORMATION: Final = frozenset(
    """tables columns schemata views character_sets key_column_usage table_constraints referential_constraints
    constraint_column_usage routines parameters column_field_paths table_options applicable_roles enabled_roles
    roles""".split()  # noqa: SIM905
)
"""Views of INFORMATION_SCHEMA with names and types, without values, sizes and queries of users.

`views` and `routines` also have the texts of views and functions, for those to whom the engine shows them.
"""


def name_parts(node: exp.Table) -> tuple[str, ...] | None:
    """Return the name of a table as written, a text for each part; None for a source without a name."""
    parts = node.parts
    if not all(part.__class__ is exp.Identifier for part in parts):
        return None
    names = [part.args["this"] for part in parts]
    return tuple(".".join(names).split("."))
