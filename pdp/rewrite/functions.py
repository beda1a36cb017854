"""Marks of functions: reading the arguments alone, telling of more, or unknown.

The lists come from the engines, with marks by hand. A function of a newer version of an engine is unknown. So is a
function of the site without a declaration in a file of policies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from sqlglot import Dialect, Parser, exp
from sqlglot.expressions import FUNCTION_BY_NAME

from pdp.rewrite.errors import UNSUPPORTED_FUNCTION, RewriteRefused

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
        "kll_quantiles": frozenset({"init_int64", "init_uint64", "init_float64", "extract_int64", "extract_uint64",
                                    "extract_float64", "extract_point_int64", "extract_point_uint64",
                                    "extract_point_float64", "merge_int64", "merge_uint64", "merge_float64",
                                    "merge_partial", "merge_point_int64", "merge_point_uint64",
                                    "merge_point_float64"}),
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
OWN: Final = {
    "bigquery": frozenset(
        """
        array_avg array_find array_includes array_includes_all array_includes_any array_is_distinct array_offset
        array_transform array_zip bag_of_words bool date_bucket datetime_bucket deterministic_decrypt_bytes
        deterministic_decrypt_string deterministic_encrypt edit_distance error generate_range_array ieee_divide
        is_first is_last json_extract_string_array json_flatten normalize_and_casefold range range_contains range_end
        range_intersect range_overlaps range_sessionize range_start s2_cellidfrompoint s2_coveringcellids split_substr
        st_angle st_area st_asbinary st_asgeojson st_astext st_azimuth st_boundary st_boundingbox st_buffer
        st_bufferwithtolerance st_centroid st_centroid_agg st_closestpoint st_clusterdbscan st_contains st_convexhull
        st_coveredby st_covers st_difference st_dimension st_disjoint st_dump st_dwithin st_endpoint st_equals
        st_extent st_exteriorring st_geogfrom st_geogfromgeojson st_geogfromtext st_geogfromwkb st_geogpoint
        st_geogpointfromgeohash st_geohash st_geometrytype st_hausdorffdistance st_hausdorffdwithin st_interiorrings
        st_intersection st_intersects st_intersectsbox st_isclosed st_iscollection st_isempty st_isring st_length
        st_lineinterpolatepoint st_linelocatepoint st_linesubstring st_makeline st_makepolygon st_makepolygonoriented
        st_maxdistance st_npoints st_numgeometries st_numpoints st_perimeter st_pointn st_simplify st_snaptogrid
        st_startpoint st_touches st_union st_union_agg st_within st_x st_y text_analyze tf_idf timestamp_bucket
        timestamp_from_unix_micros timestamp_from_unix_millis timestamp_from_unix_seconds
        """.split()  # noqa: SIM905
    ),
    "trino": frozenset(
        """
        approx_set array_histogram beta_cdf bing_tile bing_tile_at bing_tile_coordinates bing_tile_polygon
        bing_tile_quadkey bing_tile_zoom_level bing_tiles_around bitwise_right_shift_arithmetic char2hexint checksum
        classify collect color contains_sequence convex_hull_agg cosine_similarity dow doy element empty_approx_set
        evaluate_classifier_predictions features from_base64url from_big_endian_32 from_encoded_polyline
        from_geojson_geometry from_ieee754_32 from_ieee754_64 from_unixtime_nanos from_utf8 fusion
        geometry_collect_agg geometry_from_hadoop_shape geometry_invalid_reason geometry_nearest_points
        geometry_to_bing_tiles geometry_union geometry_union_agg great_circle_distance hash_counts hmac_md5 hmac_sha1
        hmac_sha256 hmac_sha512 index intersection intersection_cardinality inverse_beta_cdf inverse_normal_cdf
        is_json_scalar jaccard_index json_exists json_scalar json_serialize learn_classifier learn_libsvm_classifier
        learn_libsvm_regressor learn_regressor line_interpolate_point line_interpolate_points line_locate_point
        make_set_digest map_union merge merge_set_digest multimap_from_entries murmur3 nan ngrams objectid
        objectid_timestamp parse_data_size parse_duration qdigest_agg regress render rgb set simplify_geometry
        spatial_partitioning spatial_partitions split_to_multimap spooky_hash_v2_32 spooky_hash_v2_64 st_area
        st_asbinary st_asewkb st_asewkt st_astext st_boundary st_buffer st_centroid st_collect st_contains
        st_convexhull st_coorddim st_crosses st_difference st_dimension st_disjoint st_endpoint st_envelope
        st_envelopeaspts st_equals st_exteriorring st_geometries st_geometryfromtext st_geometryn st_geometrytype
        st_geomfrombinary st_geomfromewkt st_geomfromkml st_interiorringn st_interiorrings st_intersection
        st_intersects st_isclosed st_isempty st_isring st_issimple st_isvalid st_length st_linefromtext st_linemerge
        st_linestring st_makeline st_makepolygon st_multi st_multipoint st_normalize st_numgeometries
        st_numinteriorring st_numpoints st_overlaps st_pointn st_pointonsurface st_points st_polygon st_polygonize
        st_reduceprecision st_relate st_setsrid st_srid st_startpoint st_symdifference st_touches st_transform
        st_union st_voronoipolygons st_within st_x st_xmax st_xmin st_y st_ymax st_ymin st_z tdigest_agg
        theta_sketch_cardinality theta_sketch_union timestamp_objectid timezone_hour timezone_minute title_case
        to_base64url to_big_endian_32 to_big_endian_64 to_encoded_polyline to_geojson_geometry to_geometry
        to_ieee754_32 to_milliseconds to_spherical_geography trim_array url_extract_fragment url_extract_port
        value_at_quantile values_at_quantiles wilson_interval_lower wilson_interval_upper with_timezone yow
        """.split()  # noqa: SIM905
    ),
    "spark": frozenset(
        """
        aes_decrypt aes_encrypt aggregate assert_true bigint binary bit_get bitmap_and_agg boolean count_min_sketch
        curdate dateadd decimal div forall format_string from_avro from_csv from_xml get histogram_numeric
        hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg hypot is_valid_utf8 is_variant_null
        json_object_keys kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
        kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint kll_sketch_get_n_double
        kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
        kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
        kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint
        kll_sketch_to_string_double kll_sketch_to_string_float make_dt_interval make_timestamp_ltz make_timestamp_ntz
        make_valid_utf8 make_ym_interval mask named_struct quote raise_error schema_of_avro schema_of_csv
        schema_of_json schema_of_variant schema_of_variant_agg schema_of_xml sentences shiftrightunsigned smallint
        st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid theta_difference theta_intersection
        theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union theta_union_agg tinyint to_avro
        to_csv to_time to_timestamp_ltz to_timestamp_ntz to_varchar to_variant_object to_xml try_add try_aes_decrypt
        try_avg try_element_at try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz
        try_mod try_multiply try_parse_json try_parse_url try_subtract try_sum try_to_binary try_to_date try_to_number
        try_to_time try_to_timestamp try_url_decode try_validate_utf8 try_variant_get validate_utf8 variant_get window
        window_time
        """.split()  # noqa: SIM905
    ),
    "duckdb": frozenset(
        """
        add aggregate ago arg_max_null arg_max_nulls_last arg_min_null arg_min_nulls_last array_aggr array_aggregate
        array_apply array_cosine_distance array_cosine_similarity array_dot_product array_grade_up array_indexof
        array_inner_product array_negative_dot_product array_negative_inner_product array_pop_back array_pop_front
        array_push_back array_push_front array_reduce array_resize array_reverse_sort array_select array_to_json
        array_to_string_comma_default array_transform array_unique array_value array_where array_zip bit_position
        bitstring create_sort_key current_localtime current_localtimestamp days_in_month editdist3
        enum_code enum_first enum_last enum_range enum_range_boundary equi_width_bins era error fdiv fill fmod
        format_bytes formatreadabledecimalsize formatreadablesize from_binary from_json_strict generate_subscripts
        get_current_time grade_up greatest_common_divisor hamming histogram_exact icu_sort_key ilike_escape isoyear
        json json_exists json_group_object json_group_structure json_merge_patch json_pretty json_quote json_structure
        json_transform json_transform_strict kahan_sum kurtosis_pop least_common_multiple left_grapheme
        length_grapheme like_escape list_aggr list_apply list_approx_count_distinct list_bit_and list_bit_or
        list_bit_xor list_bool_and list_bool_or list_cosine_distance list_cosine_similarity list_entropy list_grade_up
        list_histogram list_indexof list_inner_product list_kurtosis list_kurtosis_pop list_mad list_median list_mode
        list_negative_dot_product list_negative_inner_product list_pack list_resize list_select list_sem list_skewness
        list_stddev_pop list_stddev_samp list_string_agg list_var_pop list_var_samp list_where make_timestamp_ms
        make_timestamp_ns make_timestamptz map_contains_entry map_contains_value map_extract_value md5_number
        md5_number_lower md5_number_upper multiply nextafter normalized_interval not_like_escape parse_dirname
        parse_dirpath parse_filename parse_formatted_bytes parse_path pg_size_pretty range rank_dense
        regexp_split_to_table remap_struct reservoir_quantile right_grapheme roundbankers sem set_bit st_area
        st_asbinary st_asgeojson st_ashexwkb st_assvg st_astext st_aswkb st_aswkt st_boundary st_buffer st_centroid
        st_collect st_collectionextract st_concavehull st_contains st_containsproperly st_convexhull st_coveredby
        st_covers st_crosses st_crs st_difference st_dimension st_disjoint st_distance_sphere st_distance_spheroid
        st_dump st_dwithin st_dwithin_spheroid st_endpoint st_envelope st_envelope_agg st_equals st_extent
        st_extent_agg st_exteriorring st_flipcoordinates st_force2d st_force3dm st_force3dz st_force4d st_geometrytype
        st_geomfromgeojson st_geomfromhexewkb st_geomfromhexwkb st_geomfromtext st_geomfromwkb st_hilbert
        st_intersection st_intersection_agg st_intersects st_intersects_extent st_isclosed st_isempty st_isring
        st_issimple st_isvalid st_length st_length_spheroid st_linemerge st_m st_makeenvelope st_makeline
        st_makepolygon st_makevalid st_mmax st_mmin st_multi st_ngeometries st_ninteriorrings st_normalize st_npoints
        st_numgeometries st_numinteriorrings st_numpoints st_overlaps st_perimeter st_perimeter_spheroid st_point2d
        st_point3d st_pointn st_pointonsurface st_points st_quadkey st_reduceprecision st_removerepeatedpoints
        st_reverse st_scale st_setcrs st_shortestline st_simplify st_simplifypreservetopology st_startpoint st_touches
        st_transform st_translate st_union st_union_agg st_within st_withinproperly st_x st_xmax st_xmin st_y st_ymax
        st_ymin st_z st_zmax st_zmflag st_zmin str_split_regex string_split_regex struct_concat struct_contains
        struct_extract_at struct_has struct_indexof struct_keys struct_position struct_update struct_values
        substring_grapheme subtract sumkahan switch timezone_hour timezone_minute to_centuries to_decades
        to_microseconds to_millennia to_milliseconds to_quarters to_weeks today try_strptime unbin union_extract
        union_tag unpivot_list uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7 variant_extract
        variant_typeof wavg weighted_avg
        """.split()  # noqa: SIM905
    ),
}
"""Dialect -> functions of the engine alone that read nothing but arguments, and are unknown to the parser."""
TELLING: Final = frozenset(
    """
    ai_analyze_sentiment ai_classify ai_extract ai_fix_grammar ai_gen ai_mask ai_query ai_translate alias
    bitstring_agg appends changes checkpoint cloud_files_state col_description collations current_connection_id
    current_groups current_metastore current_query current_query_id current_setting current_transaction_id currval
    duckdb_columns duckdb_constraints duckdb_databases duckdb_settings duckdb_tables duckdb_variables duckdb_views
    external_query format_pg_type format_type from_protobuf get_block_size getenv getvariable glob
    has_any_column_privilege has_column_privilege has_database_privilege has_foreign_data_wrapper_privilege
    has_function_privilege has_language_privilege has_schema_privilege has_sequence_privilege has_server_privilege
    has_table_privilege has_tablespace_privilege http_request in_search_path inet_client_addr inet_client_port
    inet_server_addr inet_server_port input_file_block_length input_file_block_start input_file_name java_method
    json_deserialize_sql json_execute_serialized_sql json_serialize_plan json_serialize_sql list_secrets make_type
    map_to_pg_oid monotonically_increasing_id nextval obj_description parquet_scan pg_conf_load_time
    pg_get_constraintdef pg_get_expr pg_get_viewdef pg_has_role pg_is_other_temp_schema pg_my_temp_schema
    pg_postmaster_start_time pg_sleep pg_table_is_visible python_worker_logs query query_table random_string read_blob
    read_csv read_csv_auto read_files read_json read_json_auto read_kafka read_ndjson read_parquet read_state_metadata
    read_statestore read_text reflect remote_query secret session_id setseed shobj_description sleep_ms sniff_csv
    sql_keywords st_read st_read_meta st_regionstats stats to_protobuf try_reflect try_secret txid_current vector_type
    version which_secret write_log
    """.split()  # noqa: SIM905
)
"""Functions of any engine that tell of rows, files, catalogs, settings, texts of queries, or other processes."""
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
) + tuple(FUNCTION_BY_NAME[name.upper()] for name in TELLING if name.upper() in FUNCTION_BY_NAME)  # fmt: skip
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


_BUILT_IN: Final = frozenset(
    {*SCALARS, *TELLING, *TABLE_FUNCTIONS, *map(str.lower, FUNCTION_BY_NAME), *set().union(*OWN.values())}
)
"""Names that an engine has, or that the parser takes for a function of an engine."""
_OWN_SCHEMAS: Final = frozenset(
    """system temp main pg_catalog information_schema builtin session global_temp safe net keys aead hll_count
    kll_quantiles ml ai obj""".split()  # noqa: SIM905
)
"""First parts of names of functions of the engines themselves."""
_DECLARED: Final = re.compile(r"[A-Za-z_][\w-]*(?:\.\w+)*(?:\.\*)?", re.ASCII)
_MOST_TEMPORARY: Final = 100
"""Most temporary functions of one text."""


class SiteFunctions:
    """Functions of the site with the arguments as all input. A name with `.*` at the end stands for a schema."""

    def __init__(self, names: Iterable[str] = (), temporary: Iterable[str] = ()) -> None:
        """Keep declared names, and those of `temporary` functions; raise RewriteRefused for a name of an engine."""
        self._temporary = frozenset(map(str.lower, temporary))
        self._names = frozenset(names) | self._temporary
        self._folded = frozenset(name.lower() for name in self._names)
        for name in self._names:
            first, dot, _ = name.partition(".")
            is_own = first.lower() in _OWN_SCHEMAS or (not dot and first.lower() in _BUILT_IN)
            if is_own or not _DECLARED.fullmatch(name):
                advice = "is no function of the site: write its full name, or its schema with `.*`"
                raise RewriteRefused(UNSUPPORTED_FUNCTION, f"`functions`: `{name}` {advice}")

    def have(self, parts: Sequence[str], dialect: str) -> bool:
        """Tell whether a name as written is declared. Only BigQuery tells capitals apart, and divides names at dots."""
        if parts[-1].lower() in (_BUILT_IN if dialect != "bigquery" or len(parts) == 1 else TELLING):
            return False
        if len(parts) == 1 and parts[0].lower() in self._temporary:
            return True
        known, text = self._names, ".".join(parts)
        if dialect != "bigquery":
            if any("." in part for part in parts):
                return False
            known, text = self._folded, text.lower()
        return bool(known) and (text in known or f"{text.rpartition('.')[0]}.*" in known)

    def beside(self, names: Iterable[str]) -> SiteFunctions:
        """Return these functions and temporary ones; raise RewriteRefused for a name that is known before."""
        names = list(names)
        if len(self._temporary) + len(names) > _MOST_TEMPORARY:
            raise RewriteRefused(UNSUPPORTED_FUNCTION, f"the text has more than {_MOST_TEMPORARY} temporary functions")
        if known := self._folded.intersection(map(str.lower, names)):
            raise RewriteRefused(UNSUPPORTED_FUNCTION, f"the function `{min(known)}` is one of the site")
        return SiteFunctions(self._names - self._temporary, (*self._temporary, *names))


NO_SITE: Final = SiteFunctions()


def is_allowed(node: exp.Func, dialect: str, site: SiteFunctions = NO_SITE) -> bool:
    """Tell whether a function reads no data but its arguments."""
    if isinstance(node, _REFUSED):
        return False
    is_named = isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc))
    parent = node.parent
    if prefix := _prefix(node):
        return _is_of_engine(prefix, node.name, dialect) or (is_named and _is_of_site(node, dialect, site))
    if isinstance(parent, exp.NetFunc):
        return (node.name if is_named else node.sql_name()).lower() in _NAMESPACES["bigquery"]["net"]
    name = node.name.lower() if is_named else ""
    return not is_named or name in SCALARS or name in OWN.get(dialect, ()) or _is_of_site(node, dialect, site)


def _is_of_site(node: exp.Func, dialect: str, site: SiteFunctions) -> bool:
    """Tell whether a call names a declared function."""
    parts = _name_of(node)
    return site.have(".".join(parts).split(".") if dialect == "bigquery" else parts, dialect)


def _prefix(node: exp.Func) -> Sequence[exp.Expr]:
    """Return the parts before the name of a call, in order: `a.max(x)`, and `a.max(x) FILTER (WHERE y)`.

    With a clause behind its arguments, the parser takes a call with a prefix for a column of a table.
    """
    call: exp.Expr = node
    while (parent := call.parent) is not None and parent.this is call and not isinstance(parent, _CALLED):
        call = parent
    if isinstance(parent, exp.Column) and parent.this is call:
        return [part for part in map(parent.args.get, ("catalog", "db", "table")) if part]
    prefix = parent.this if isinstance(parent, exp.Dot) and parent.expression is call else None
    parts: list[exp.Expr] = []
    while prefix is not None:
        parts.insert(0, prefix.expression if isinstance(prefix, exp.Dot) else prefix)
        prefix = prefix.this if isinstance(prefix, exp.Dot) else None
    return parts


_CALLED: Final = (exp.Column, exp.Dot, exp.Func)
"""Nodes around a call that are no clause behind its arguments."""


def _name_of(node: exp.Func) -> list[str]:
    """Return the name of a call with its prefix, each part a text; a part is empty if it is no name."""
    return [*(part.name if isinstance(part, exp.Identifier) else "" for part in _prefix(node)), node.name]


def _is_of_engine(prefix: Sequence[exp.Expr], name: str, dialect: str) -> bool:
    """Tell whether a function with a prefix is one of the engine itself."""
    first, *more = prefix
    if more or not isinstance(first, exp.Identifier) or first.quoted:
        return False
    return name.lower() in _NAMESPACES.get(dialect, {}).get(first.name.lower(), ())


def why_not(node: exp.Func) -> str:
    """Return the cause of the refusal of a function."""
    name = ".".join(_name_of(node)) if isinstance(node, exp.Anonymous) else node.sql_name()
    why = "tells of more than its arguments" if name.lower() in TELLING else "is not known to read no table"
    return f"the function `{name}` {why}"
