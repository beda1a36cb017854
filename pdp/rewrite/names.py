"""Names with a meaning of their own: words of SQL, hidden columns, functions, metadata tables, paths of BigQuery."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final

from sqlglot import Dialect, Parser, Token, TokenType, exp
from sqlglot.expressions import FUNCTION_BY_NAME
from sqlglot.parsers.bigquery import BigQueryParser

from pdp.rewrite.catalog import Catalog, fold_ascii
from pdp.rewrite.errors import METADATA_TABLE, UNKNOWN_RELATION, UNSUPPORTED_SOURCE, WILDCARD_TABLE, RewriteRefused

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


TABLE_FUNCTIONS: Final = frozenset({"range", "generate_series", "sequence", "unnest", "explode", "explode_outer",
    "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple",
    "generate_subscripts"})  # fmt: skip
"""Table functions of values alone."""
_SOURCE_NODES: Final = (exp.Explode, exp.Unnest, exp.GenerateSeries, exp.Inline, exp.Posexplode, exp.Stack)
_NAMESPACES: Final = {
    "bigquery": {
        "hll_count": frozenset({"init", "merge", "merge_partial", "extract"}),
        "aead": frozenset({"encrypt", "decrypt_bytes", "decrypt_string"}),
        "keys": frozenset({"keyset_chain", "new_keyset", "add_key_from_raw_bytes", "keyset_from_json", "keyset_to_json",
                           "keyset_length", "rotate_keyset", "new_wrapped_keyset", "rewrap_keyset",
                           "rotate_wrapped_keyset"}),
        "net": frozenset({"host", "ip_from_string", "ip_net_mask", "ip_to_string", "ip_trunc", "ipv4_from_int64",
                          "ipv4_to_int64", "public_suffix", "reg_domain", "safe_ip_from_string"}),
    },
}  # fmt: skip
"""Dialect -> prefix -> functions of the engine itself. Every other prefix is a schema, with functions of anybody."""
SCALARS: Final = frozenset(
    """
    abs acos acosh add_months age all_match any_match any_value approx_count_distinct approx_distinct
    approx_most_frequent approx_percentile approx_quantile approx_quantiles approx_top_count arbitrary arg_max arg_min
    array array_agg array_append array_average array_concat array_contains array_cross_product array_distance
    array_distinct array_except array_extract array_filter array_first array_has array_has_all array_has_any
    array_insert array_intersect array_join array_last array_length array_max array_min array_position array_prepend
    array_remove array_repeat array_reverse array_size array_slice array_sort array_sum array_to_string array_union
    arrays_overlap arrays_zip ascii asin asinh at_timezone atan atan2 atanh avg bar base64 bin bit_and bit_count
    bit_length bit_or bit_xor bitwise_and bitwise_and_agg bitwise_left_shift bitwise_not bitwise_or bitwise_or_agg
    bitwise_right_shift bitwise_xor bool_and bool_or bround btrim byte_length cardinality cast cbrt ceil ceiling century
    char char_length character_length chr coalesce codepoint code_points_to_string collect_list collect_set combinations
    concat concat_ws contains contains_substr conv corr cos cosh cot count count_if countif count_distinct count_star
    covar_pop covar_samp crc32 cume_dist current_date current_time current_timestamp current_timezone
    damerau_levenshtein date date_add date_bin date_diff date_format date_from_unix_date date_parse date_part date_sub
    date_trunc datediff datepart datesub datetrunc datetime datetime_add datetime_diff datetime_sub datetime_trunc day
    day_of_month day_of_week day_of_year dayname dayofmonth dayofweek dayofyear decade decode degrees dense_rank divide
    double e element_at elt encode ends_with endswith entropy epoch epoch_ms epoch_ns epoch_us equi_width even every exp
    expm1 extract factorial favg filter find_in_set first first_value flatten float floor format format_date
    format_datetime format_number format_time format_timestamp from_base from_base64 from_big_endian_64 from_hex
    from_iso8601_date from_iso8601_timestamp from_json from_unixtime from_utc_timestamp fsum gamma gcd
    get_current_timestamp generate_array generate_date_array generate_timestamp_array geomean geometric_mean get_bit
    get_json_object greatest group_concat grouping grouping_id hamming_distance hash hex histogram hour
    human_readable_seconds if ifnull ignore_nulls in_range infinity initcap instr int is_finite is_infinite is_inf
    is_nan isfinite isinf isnan isnotnull isnull iso_week jaccard jaro_similarity jaro_winkler_similarity json_array
    json_array_contains json_array_get json_array_length json_contains json_extract json_extract_path
    json_extract_path_text json_extract_scalar json_extract_string json_format json_group_array json_keys json_object
    json_parse json_query json_query_array json_size json_tuple json_type json_valid json_value json_value_array julian
    kurtosis lag last last_day last_day_of_month last_value lcase lcm lead least left left_shift len length levenshtein
    levenshtein_distance lgamma list list_aggregate list_any_value list_append list_avg list_cat list_concat
    list_contains list_count list_distance list_distinct list_dot_product list_element list_extract list_filter
    list_first list_has list_has_all list_has_any list_intersect list_last list_max list_min list_position list_prepend
    list_product list_reduce list_reverse list_reverse_sort list_slice list_sort list_sum list_transform list_unique
    list_value list_zip listagg ln locate log log10 log1p log2 lower lpad ltrim luhn_check make_date make_time
    make_timestamp map map_agg map_concat map_contains map_entries map_extract map_filter map_from_arrays
    map_from_entries map_keys map_values map_zip_with mad max max_by md5 mean median microsecond millennium millisecond
    min min_by minute mismatches mod mode month monthname months_between multimap_agg nanosecond nanvl negate next_day
    nfc_normalize none_match normal_cdf normalize not_ilike_escape now nth_value ntile nullif nullifzero
    numeric_histogram nvl nvl2 octet_length ord overlay parse_date parse_datetime parse_time parse_timestamp parse_url
    percent_rank percentile percentile_approx percentile_cont percentile_disc pg_typeof pi pmod position positive pow
    power prefix printf product quantile quantile_cont quantile_disc quarter radians rank reduce reduce_agg regexp_count
    regexp_contains regexp_escape regexp_extract regexp_extract_all regexp_full_match regexp_instr regexp_like
    regexp_matches regexp_position regexp_replace regexp_split regexp_split_to_array regexp_substr regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace respect_nulls reverse right
    right_shift rint round round_even row row_number row_pack row_to_json rpad rtrim safe_add safe_cast safe_divide
    safe_multiply safe_negate safe_subtract scalar_subquery second sequence session_window sha sha1 sha2 sha256 sha512
    shiftleft shiftright shuffle sign signbit signum sin sinh size skewness slice some sort_array soundex space
    spark_partition_id split split_part split_to_map splitpart sqrt starts_with startswith std stddev stddev_pop
    stddev_samp str_split strftime string string_agg string_split string_to_array strip_accents strlen strpos strptime
    struct struct_extract struct_insert struct_pack substr substring substring_index suffix sum sum_no_overflow tan tanh
    time time_add time_bucket time_diff time_sub time_trunc timestamp timestamp_add timestamp_diff timestamp_micros
    timestamp_millis timestamp_seconds timestamp_sub timestamp_trunc timestampadd timestampdiff timezone to_base
    to_base64 to_char to_date to_days to_hex to_hours to_ieee754_64 to_iso8601 to_json to_json_string to_minutes
    to_months to_number to_seconds to_timestamp to_unix_timestamp to_unixtime to_utc_timestamp to_utf8 to_years
    transaction_timestamp transform transform_keys transform_values translate trim trunc truncate try try_cast
    try_divide typeof ucase unbase64 unhex unicode union_value unix_date unix_micros unix_millis unix_seconds
    unix_timestamp unnest upper url_decode url_encode url_extract_host url_extract_parameter url_extract_path
    url_extract_protocol url_extract_query uuid var_pop var_samp variance week week_of_year weekday weekofyear
    width_bucket word_stem xor xxhash64 year year_of_week yearofweek yearweek years zeroifnull zip zip_with zone_offset
    """.split()  # noqa: SIM905
)
"""Functions of arguments alone that the parser does not know, and others."""
_REFUSED: Final = tuple(
    kind
    for name in (
        "ReadCSV", "ReadParquet", "Predict", "MLForecast", "MLTranslate", "GenerateText", "GenerateTable",
        "GenerateBool", "GenerateDouble", "GenerateInt", "GenerateEmbedding", "AIClassify", "AIAgg", "AISummarizeAgg",
        "AIEmbed", "AISimilarity", "AIGenerate", "AIForecast", "VectorSearch", "FeaturesAtTime", "OpenJSON", "LoadFile",
        "LoadData",
        "Nextval", "NextValueFor", "XMLTable", "JSONTable",
    )
    if (kind := getattr(exp, name, None)) is not None
)  # fmt: skip
"""Functions that the parser knows and that read more than their arguments."""


_OPERANDS: Final = frozenset(
    """not exists case when distinct all any some select with values table lateral unnest interval row array map struct
    rollup cube grouping like cast try_cast safe_cast extract trim position overlay substring ceil floor""".split()  # noqa: SIM905
)
"""Words of SQL that begin an operand, or a source, with a bracket."""


@cache
def words_of_sql(dialect: str) -> frozenset[str]:
    """Return the words that the parser takes for no name, but for functions, types, and words before an operand."""
    grammar = Dialect.get_or_raise(dialect)
    words = {word.lower() for word, kind in grammar.tokenizer_class.KEYWORDS.items() if kind not in Parser.TYPE_TOKENS}
    return frozenset(words - SCALARS - {name.lower() for name in FUNCTION_BY_NAME} - _OPERANDS)


def is_table_function(node: exp.Expr, dialect: str) -> bool:
    """Tell whether a source is a table function of values alone.

    `TABLE(f(x))` calls `f` in Trino alone. In other engines `table` is the name of a function, perhaps of anybody.
    """
    if isinstance(node, _SOURCE_NODES):
        return True
    if not isinstance(node, exp.Anonymous):
        return False
    if node.name.lower() == "table" and len(node.expressions) == 1 and dialect == "trino":
        return is_table_function(node.expressions[0], dialect)
    return node.name.lower() in TABLE_FUNCTIONS


def is_allowed(node: exp.Func, dialect: str) -> bool:
    """Tell whether a function reads no data but its arguments."""
    if isinstance(node, _REFUSED):
        return False
    parent = node.parent
    if parent.__class__ is exp.Dot and parent is not None and parent.expression is node:
        return _is_of_engine(parent.this, node.name, dialect)
    is_named = isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc))
    if isinstance(parent, exp.NetFunc):
        return (node.name if is_named else node.sql_name()).lower() in _NAMESPACES["bigquery"]["net"]
    return not is_named or node.name.lower() in SCALARS


def _is_of_engine(prefix: exp.Expr, name: str, dialect: str) -> bool:
    """Tell whether a function with a prefix is one of the engine itself."""
    if not isinstance(prefix, exp.Identifier) or prefix.quoted:
        return False
    return name.lower() in _NAMESPACES.get(dialect, {}).get(prefix.name.lower(), ())


_OWN_CATALOGS: Final[dict[str, tuple[str, ...]]] = {"duckdb": ("system",), "trino": (), "spark": (), "bigquery": ()}
"""Dialect -> catalogs of the engine itself, in lower case. DuckDB attaches no database as `system`."""
_INFORMATION_PARTS: Final = 3
"""Parts of the longest name of a view of INFORMATION_SCHEMA outside of BigQuery."""


def is_information(parts: Sequence[str]) -> bool:
    """Tell whether a name is of a view of INFORMATION_SCHEMA."""
    return len(parts) > 1 and parts[-2].lower() == INFORMATION_SCHEMA


def check_information(parts: Sequence[str], dialect: str, catalog: Catalog) -> None:
    """Raise RewriteRefused unless a name is of a readable view of a known catalog.

    A catalog that no file describes can hold a table of that name. BigQuery keeps the name for the views.
    """
    name = ".".join(parts)
    if parts[-1].lower() not in READABLE_INFORMATION:
        raise RewriteRefused(METADATA_TABLE, f"`{name}` is not among the readable views of metadata")
    is_known = len(parts) < _INFORMATION_PARTS or parts[0].lower() in (*catalog.containers, *_OWN_CATALOGS[dialect])
    if dialect != "bigquery" and (len(parts) > _INFORMATION_PARTS or not is_known):
        raise RewriteRefused(UNKNOWN_RELATION, f"`{name}` is in no known catalog")


def metadata_base(parts: tuple[str, ...], dialect: str) -> tuple[str, ...] | None:
    """Return the name of the table that a name of metadata belongs to; None for another name."""
    base, dollar, suffix = parts[-1].partition("$")
    if dollar and base:
        is_suffix = dialect == "trino" and suffix.lower() in METADATA_SUFFIXES
        is_partition = dialect == "bigquery" and suffix.isdigit()
        return (*parts[:-1], base) if is_suffix or is_partition else None
    if dialect == "spark" and len(parts) > 1 and parts[-1].lower() in METADATA_SUFFIXES:
        return parts[:-1]
    return None


def check_dots(node: exp.Table, dialect: str) -> None:
    """Raise RewriteRefused for a dot in a quoted name: only in BigQuery the dot divides the name."""
    if dialect != "bigquery" and any("." in part.name for part in node.parts):
        raise RewriteRefused(UNKNOWN_RELATION, f"`{node.name}` has a dot inside of a quoted name")


def check_new_name(parts: Sequence[str], dialect: str) -> None:
    """Raise RewriteRefused for a new relation with a name of metadata: later reads would pass as metadata."""
    if dialect == "bigquery" and parts[-1].endswith("*"):
        raise RewriteRefused(WILDCARD_TABLE, f"`{'.'.join(parts)}` names many tables, and no new one")
    folded = [part.lower() for part in parts]
    if folded[-1] in METADATA_SUFFIXES or INFORMATION_SCHEMA in folded or any("$" in part for part in folded):
        raise RewriteRefused(METADATA_TABLE, f"`{'.'.join(parts)}` is a name of metadata")


PATH: Final = "is_path"
"""Key in the notes of an UNNEST that the text writes as a path."""
_PATH_PARTS: Final = frozenset({"this", "db", "catalog", "alias", "offset"})
"""Parts of a table that a path has, too."""
_SEES_SOURCES: Final[dict[type, frozenset[str]]] = {
    exp.Select: frozenset({"expressions", "where", "group", "having", "qualify", "order"}),
    exp.Update: frozenset({"expressions", "where"}), exp.Delete: frozenset({"where"}), exp.Merge: frozenset({"on"}),
}  # fmt: skip
"""Parts of a statement from which an expression sees the sources of the statement."""
_BORDERS: Final = (exp.With, exp.CTE, exp.Pivot, exp.Table, exp.Lateral, exp.From, exp.Join, exp.DDL)
"""Parts of a tree from the inside of which GoogleSQL sees no source around."""


class ArrayPathParser(BigQueryParser):
    """Parser of BigQuery with array paths, such as `o.tags` after `orders AS o`, and WITH OFFSET behind a path.

    GoogleSQL takes a name of several parts for a path if the first part is a visible source: to the left in the same
    FROM, or of a query around an expression. Inside a table of FROM, a common table expression and the ORDER BY of a
    set operation, no source is visible, and PIVOT takes the name of a source away. Every other name stays a table: an
    unknown table is refused, and a known table gets the filter.
    """

    SUPPORTS_IMPLICIT_UNNEST = False  # the library does not know subqueries, and drops clauses behind a path

    def reset(self) -> None:
        """Forget the last text."""
        super().reset()
        self._named: list[exp.Table] = []

    def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        """Return the trees of a text; raise RewriteRefused for a path in doubt."""
        trees = super().parse(raw_tokens, sql)
        for path in [table for table in self._named if _is_path(table)]:
            _unnest(path)
        return trees

    def _parse_table(self, *args: bool, **options: bool) -> exp.Expr | None:  # type: ignore[override]
        table = super()._parse_table(*args, **options)  # type: ignore[arg-type]
        if isinstance(table, exp.Table) and table.args.get("db"):
            self._named.append(table)
            if self._match_pair(TokenType.WITH, TokenType.OFFSET):
                self._match(TokenType.ALIAS)
                alias = self._parse_id_var(any_token=False, tokens=self.UNNEST_OFFSET_ALIAS_TOKENS)
                table.set("offset", alias or exp.to_identifier("offset"))
        return table


def _unnest(path: exp.Table) -> None:
    """Put an UNNEST into the tree in place of a path; raise RewriteRefused for a path with clauses of a table."""
    is_divided = path.meta.get("quoted_table") or any("." in part.name for part in path.parts)
    if is_divided or any(value and key not in _PATH_PARTS for key, value in path.args.items()):
        raise _in_doubt(path)
    alias = path.args.get("alias")
    path.set("alias", None)
    unnest = exp.Unnest(expressions=[path.to_column()], offset=path.args.get("offset"))
    if alias is not None:
        unnest.set("alias", exp.TableAlias(columns=[alias.this]))
    unnest.meta[PATH] = True
    path.replace(unnest)


def _in_doubt(path: exp.Table) -> RewriteRefused:
    name = ".".join(part.name for part in path.parts)
    return RewriteRefused(UNSUPPORTED_SOURCE, f"`{name}` could be a table or an array: use UNNEST()")


def _is_path(table: exp.Table) -> bool:
    """Tell whether a table is a path; raise RewriteRefused in doubt."""
    first = fold_ascii(table.parts[0].name)
    for source in _seen_from(table):
        if _name_of(source) == first:
            if source.meta.get("quoted_table") and not source.alias:
                raise _in_doubt(table)  # GoogleSQL gives a whole name in quotes no other name
            return True
    return False


def _seen_from(table: exp.Table) -> Iterator[exp.Expr]:
    """Yield the sources that a source sees, from the inside out."""
    node: exp.Expr | None = table
    while node is not None and node.parent is not None:
        is_source = node is table or isinstance(node, exp.Unnest)
        seen, node = _step(node, node.parent, is_source=is_source)
        yield from seen


def _step(node: exp.Expr, parent: exp.Expr, *, is_source: bool) -> tuple[Iterable[exp.Expr], exp.Expr | None]:
    """Return the sources that a part sees in the part around, and the next part to look from; None for the end."""
    query = parent.parent
    if (
        isinstance(parent, (exp.From, exp.Join))
        and isinstance(query, exp.Select)
        and (is_source or node.arg_key == "on")
    ):
        return _sources(query, parent, is_after=node.arg_key == "on"), query
    if isinstance(parent, exp.SetOperation):
        return (), parent if node.arg_key in ("this", "expression") else None
    parts = _SEES_SOURCES.get(type(parent))
    if parts is None:
        return (), None if isinstance(parent, _BORDERS) else parent
    if node.arg_key not in parts:
        return (), None
    if isinstance(parent, exp.Select):
        return _sources(parent), parent
    return (parent.this,) if isinstance(parent.this, exp.Table) else (), parent


def _sources(query: exp.Select, item: exp.Expr | None = None, *, is_after: bool = False) -> Iterator[exp.Expr]:
    """Yield the named sources of a query: all, or those before a join, or with the join."""
    start = query.args.get("from_")
    for one in (*([start] if start else ()), *(query.args.get("joins") or ())):
        if one is item and not is_after:
            return
        if not one.args.get("pivots"):
            yield from _named(one.this)
        if one is item:
            return


def _named(source: exp.Expr) -> Iterator[exp.Expr]:
    """Yield a source, and the sources joined with the first one in parentheses."""
    if source.args.get("pivots"):
        return
    if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Table) and not source.alias:
        yield from _named(source.this)
    else:
        yield source
    for join in source.args.get("joins") or ():
        if not join.args.get("pivots"):
            yield from _named(join.this)


def _name_of(source: exp.Expr) -> str:
    """Return the folded name of a source; empty without one."""
    alias = source.args.get("alias")
    if alias is not None:
        names: Sequence[exp.Expr] = [alias.this] if alias.this is not None else alias.args.get("columns") or ()
        return fold_ascii(names[0].name) if len(names) == 1 else ""
    return fold_ascii(source.parts[-1].name) if isinstance(source, exp.Table) and source.name else ""
