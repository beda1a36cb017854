"""SQL of callers on Spark with row access enforced, for trusted services that take SQL as text and nothing else.

No boundary against callers with code in the session: DataFrames, other texts and storage credentials show everything.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from msgspec.structs import replace

from pdp.errors import ConfigError, InvalidArgument
from pdp.rewrite.errors import UNSUPPORTED_STATEMENT, RewriteRefused
from pdp.rewrite.process.local import LocalRewriter, RewriteRequest, service_of_files
from pdp.rewrite.sql import LexicalText

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DIALECT: Final = "spark"
_MEMBER: Final = re.compile(r"(?:user|serviceAccount):[^\s~,]+")
_TEMPORARY: Final = re.compile(r"\s*create\s+(?:or\s+replace\s+)?(?:global\s+)?temp(?:orary)?\b", re.IGNORECASE)
_WANTED: Final = {
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.legacy.setopsPrecedence.enabled": "false",
    "spark.sql.legacy.ctePrecedencePolicy": "corrected",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "false",
    "spark.sql.legacy.parser.havingWithoutGroupByAsWhere": "false",
}
"""Properties that change how Spark reads a text, with the values under which the rewriter reads the same."""
_CATALOG: Final = "spark.sql.catalog."
SPARK_TESTED: Final = ("3.5", "4.1")
"""Minor versions of Spark on which the tests of barriers run. No other version promises that a barrier holds."""
_NO_CLAIMS: Final[Mapping[str, str]] = {}
_LOG: Final = logging.getLogger(__name__)
_warned: set[str] = set()
_services: list[LocalRewriter] = []
"""Policies of this process: none or one."""


def use_policies(*files: str | Path) -> None:
    """Take the policies, masks, tables and views of files for all later calls of `sql`.

    Raise PolicyError or InvalidArgument for an unusable file; earlier policies stay then.
    """
    _services[:] = [service_of_files([Path(file) for file in files])]


class StatedEvidence(TypedDict, total=False):
    """Evidence of a caller beside the groups, as the service states it. Roles without a statement are unknown."""

    roles: Iterable[str] | None
    claims: Mapping[str, str]


def sql(
    spark: SparkSession, text: str, principal: str, groups: Iterable[str] = (), **stated: Unpack[StatedEvidence]
) -> DataFrame:
    """Return the result of a caller's statement on the rows and values that the caller may see.

    `principal` is an IAM member such as `user:alice@example.com`, from evidence that the service has verified. So are
    `roles`, all of them or None if unknown, and `claims`, texts by name. Raise RewriteRefused for a statement that
    cannot be rewritten, ConfigError without policies or in a session that reads names differently, and InvalidArgument
    for another principal. Errors of Spark pass through.
    """
    if not _services:
        raise ConfigError("no row policies are loaded: call `pdp.lake.enforce.use_policies` first")
    service, request = _services[0], replace(_request(principal, groups, **stated), sql=text)
    _warn_of_version(spark.version)
    _check_properties(spark, service)
    _check_names(spark, service)
    rewritten = service.rewrite(request)
    _refuse_temporary(text)
    return spark.sql(rewritten)


def _request(
    principal: str, groups: Iterable[str], roles: Iterable[str] | None = None, claims: Mapping[str, str] = _NO_CLAIMS
) -> RewriteRequest:
    """Return the request of a caller, without a text; raise InvalidArgument for another principal, and for no lists."""
    if not _MEMBER.fullmatch(principal):
        raise InvalidArgument(f"`{principal}` is no caller: give user:<address> or serviceAccount:<address>")
    for name, names in (("groups", groups), ("roles", roles)):
        if isinstance(names, str):
            raise InvalidArgument(f"`{name}` is a text: give a list of texts")
    known = None if roles is None else tuple(roles)
    return RewriteRequest("", _DIALECT, principal, tuple(groups), roles=known, claims=dict(claims))


def _warn_of_version(version: str) -> None:
    """Log once that barriers were not tested on a version of Spark."""
    if not version.startswith(tuple(f"{tested}." for tested in SPARK_TESTED)) and version not in _warned:
        _warned.add(version)
        tested = ", ".join(SPARK_TESTED)
        _LOG.warning("barriers before hidden rows are tested on Spark %s, not on %s", tested, version)


def _check_properties(spark: SparkSession, service: LocalRewriter) -> None:
    """Raise ConfigError for properties under which Spark and the rewriter read a text differently."""
    for name, wanted in _WANTED.items():
        found = str(spark.conf.get(name, wanted))
        if found.lower() != wanted:
            raise ConfigError(f"`{name}` is `{found}`: SQL of callers needs `{wanted}`")
    current = spark.catalog.currentCatalog(), *spark.catalog.currentDatabase().split(".")
    if service.default and current != service.default:
        wanted = ".".join(service.default)
        raise ConfigError(f"the session is in `{'.'.join(current)}`, the policies in `{wanted}`: run `USE {wanted}`")


def _check_names(spark: SparkSession, service: LocalRewriter) -> None:
    """Raise ConfigError for a temporary view or a catalog that takes the name of a known table or schema."""
    rows = spark.sql("SHOW VIEWS IN global_temp").collect()
    views = {row.viewName.lower() for row in rows if row.isTemporary and not row.namespace}
    if hidden := views & service.short_names:
        raise ConfigError(f"a temporary view hides the table `{min(hidden)}`: drop the view")
    keys = (name.removeprefix(_CATALOG) for name in spark.conf.getAll if name.startswith(_CATALOG))
    if shadowed := {key.lower() for key in keys if "." not in key} & service.schema_names:
        raise ConfigError(f"the catalog `{min(shadowed)}` has the name of a schema: rename the catalog")


def _refuse_temporary(text: str) -> None:
    """Raise RewriteRefused for a view of the session, which later callers would read."""
    lexical = LexicalText(text, _DIALECT)
    if _TEMPORARY.match(lexical.bare):
        raise RewriteRefused(UNSUPPORTED_STATEMENT, "temporary views are shared by all callers of the session")
