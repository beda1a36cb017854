"""Problems of a configuration and of all that it names: settings, policies, facts, certificates, keys and folders.

Binds no address and changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pdp.audit.push.http import open_receiver
from pdp.cli.config.foreign_variables import refuse_nessie, unread_warnings
from pdp.cli.config.rules import (
    KeyRules,
    seen_roles,
    stored_names,
    stored_permits,
    unasked_permits,
    unfed_forbids,
    unstated_forbids,
)
from pdp.cli.wiring import Wiring
from pdp.config.bundles.manifest import read_public_key
from pdp.config.idle_settings import idle_settings
from pdp.config.names import NO_NAMES, KnownNames
from pdp.config.policy_files import FileKey, overlooked_files, policy_files
from pdp.config.references import idle_names, known_warehouses, listed_warehouses, name_check
from pdp.config.settings import Settings
from pdp.decision.cache.cache import read_authorities
from pdp.engines.cedar.kind import cedar_spares_stored, configured_sources, unfed_cedar
from pdp.engines.cedar.lint import CedarRemark, lint_cedar
from pdp.engines.cel.lint.linter import Finding
from pdp.engines.cel.lint.remarks import Severity
from pdp.engines.cel.rules import RuleSet
from pdp.engines.row_access.engine import RowPolicies, find_doubled_ids
from pdp.engines.row_access.policies import read_documents
from pdp.engines.row_access.through_views import unprotected_catalogs
from pdp.engines.scopes.explain import NAME_CODES as SCOPE_NAME_CODES
from pdp.engines.scopes.explain import lint_entries
from pdp.engines.scopes.permissions import read_entries
from pdp.errors import ConfigError, Notice, PdpError, PolicyError
from pdp.facts.snapshot import Facts
from pdp.identity.jwks import read_key_file
from pdp.identity.tls import checked_certificates
from pdp.store.world import load_world

if TYPE_CHECKING:
    from pdp.decision.service import Pdp

RULE_KEYS: Final[tuple[FileKey, ...]] = ("rules", "forbid")
"""Keys of `policies` that name rules."""
CONFIGURATION: Final = "configuration"
"""Code of findings that are no findings on a rule."""
_NAME_REMARKS: Final = frozenset({"cedar-name", "cedar-never"}) | SCOPE_NAME_CODES
"""Codes of Cedar and scopes on names that may not stop the start."""
_PLACE: Final = re.compile(r"(.*):(\d+):(\d+)", re.DOTALL)
_NO_FOLDER: Final = "`{}` is no folder that can be written to"
_NO_RULES: Final = RuleSet((), {}, ())


class ConfigProblem(msgspec.Struct, frozen=True):
    """Error or warning about a configuration, or a remark.

    `place`: file, line and column; a variable or an option; or nothing.
    """

    place: str
    severity: Severity
    message: str

    def text(self) -> str:
        """Return the problem as a line."""
        return f"{self.place}: {self.severity}: {self.message}" if self.place else f"{self.severity}: {self.message}"


def problems_of(error: PdpError) -> list[ConfigProblem]:
    """Return the problems that an error reports."""
    if isinstance(error, ConfigError):
        return [ConfigProblem(place, "error", message) for place, message in error.problems]
    if isinstance(error, PolicyError):
        return [ConfigProblem(str(error.place), "error", str(error).removeprefix(f"{error.place}: "))]
    return [ConfigProblem("", "error", str(error))]


def find_problems(composition: Wiring, settings: Settings) -> Iterator[ConfigProblem]:
    """Yield the problems of all that settings name."""
    found = []
    for problem in _unplaced_problems(composition, settings):
        found.append(problem)
        place = problem.place or settings.origins.place_named_in(problem.message)
        yield msgspec.structs.replace(problem, place=place)
    if not any(problem.severity == "error" for problem in found) and not settings.policies.source:
        yield from _closing_forbids(composition, settings)


def find_overlooked_files(settings: Settings) -> list[ConfigProblem]:
    """Return the warnings of files beside those of patterns. Errors of patterns are reported elsewhere."""
    try:
        found = list(overlooked_files(settings))
    except PdpError:
        return []
    return [ConfigProblem(settings.origins.nearest(key), "warning", message) for key, message in found]


def _closing_forbids(composition: Wiring, settings: Settings) -> Iterator[ConfigProblem]:
    """Yield the warnings of a start about forbids that close Trino; an error that only the whole service shows."""
    try:
        bundle = composition.build_pdp(settings, Facts.empty(), composition.read_rules(settings)).bundle
    except PdpError as error:
        yield from problems_of(error)
        return
    closing = (warning for warning in bundle.warnings if warning.startswith("the forbid `"))
    yield from (ConfigProblem("", "warning", warning) for warning in closing)


def _unplaced_problems(composition: Wiring, settings: Settings) -> Iterator[ConfigProblem]:
    rules = {key: KeyRules(settings, key) for key in RULE_KEYS}
    if error := refuse_nessie(os.environ):
        yield ConfigProblem("environment", "error", error)
    for warning in unread_warnings(os.environ):
        yield ConfigProblem("environment", "warning", warning)
    for key, message in idle_settings(settings):
        yield ConfigProblem(settings.origins.nearest(key), "warning", message)
    for key, message in idle_names(settings):
        yield ConfigProblem(settings.origins.nearest(key), "warning", message)
    yield from find_overlooked_files(settings)
    yield from _raised(checked_certificates, settings)
    yield from _policy_problems(composition, settings, rules)
    try:
        facts = (composition.inspect_facts or composition.read_facts)(settings)
    except PdpError as error:
        yield from problems_of(error)
    else:
        yield from _unasked(composition, settings, facts, rules["rules"])
        yield from find_stored_roles(settings, facts, rules)
        yield from _doubled_ids(composition, settings, facts)
    for idp, provider in settings.identity.providers.items():
        for each in provider.each_issuer:
            if each.is_file:
                yield from _raised(read_key_file, idp, settings.path(each.jwks))
    yield from _raised(composition.build_catalogs, settings)
    yield from _raised(settings.chain_keys)
    yield from _raised(read_authorities, settings)
    yield from _folder_problems(settings)


def _policy_problems(
    composition: Wiring, settings: Settings, rules: Mapping[FileKey, KeyRules]
) -> Iterator[ConfigProblem]:
    if source := settings.policies.source:
        for key in source.keys:
            yield from _raised(read_public_key, settings.path(key))
        message = "policies of `policies.source` are not checked here: `pdp bundle verify` unpacks a bundle to check"
        yield ConfigProblem("", "warning", message)
        return
    for key, of_key in rules.items():
        found = _rule_errors(of_key)
        yield from (_of_finding(finding, key) for finding in found or of_key.name_remarks)
        with contextlib.suppress(PdpError):  # a missing file is among the errors
            yield from (_of_finding(finding, key) for finding in of_key.ignored_keys)
        yield from (ConfigProblem(str(notice.place), "info", notice.message) for notice in seen_roles(of_key))
    yield from map(_warning, unfed_forbids(rules["forbid"], settings))
    yield from _unfed_cedar(settings)
    yield from _unstated(composition, settings, rules["forbid"])
    yield from find_row_access_problems(settings)
    yield from _unprotected(composition, settings)
    for finding in (*find_cedar_remarks(settings), *find_scope_remarks(settings)):
        if finding.code in _NAME_REMARKS and finding.severity == "warning":
            yield _of_finding(finding)
    yield from _raised(_bare_pdp, composition, settings)


def _bare_pdp(composition: Wiring, settings: Settings) -> Pdp:
    """Return a service without rules and row policies. Their problems are listed elsewhere."""
    others = {"rules": (), "forbid": (), "row_access": ()}
    bare = settings.model_copy(update={"policies": settings.policies.model_copy(update=others)})
    return composition.build_pdp(bare, Facts.empty(), (_NO_RULES, _NO_RULES))


def find_rule_errors(settings: Settings, key: FileKey) -> list[Finding]:
    """Return the errors of the rules of a key, or its own error if a file is missing or empty."""
    return _rule_errors(KeyRules(settings, key))


def _rule_errors(rules: KeyRules) -> list[Finding]:
    try:
        return rules.errors
    except PdpError as error:
        return [finding_of(problem) for problem in problems_of(error)]


def find_stored_roles(settings: Settings, facts: Facts, rules: Mapping[FileKey, KeyRules]) -> Iterator[ConfigProblem]:
    """Yield the problems of policies on roles of the store: roles that no setting feeds, and another case."""
    yield from map(_warning, stored_permits(rules["rules"], settings, facts))
    if settings.policies.source:
        return
    severity: Severity = "error" if settings.policies.strict_names else "warning"
    with contextlib.suppress(PdpError):  # the problems of files stand elsewhere
        for notice in stored_names(rules.values(), settings, facts):
            yield ConfigProblem(str(notice.place), severity, notice.message)


def _unasked(composition: Wiring, settings: Settings, facts: Facts, rules: KeyRules) -> Iterator[ConfigProblem]:
    """Yield a warning for each text with capitals in a permit, if no name of Trino meets the text."""
    if not settings.trino.catalogs or settings.policies.source or not rules.rules:
        return
    try:
        spelled = _bare_pdp(composition, settings).bundle.spelled
    except PdpError:  # listed among the problems of policies already
        return
    yield from map(_warning, unasked_permits(rules, settings, facts, spelled))


def _warning(notice: Notice) -> ConfigProblem:
    return ConfigProblem(str(notice.place), "warning", notice.message)


def _unfed_cedar(settings: Settings) -> Iterator[ConfigProblem]:
    """Yield the same for forbids of Cedar, and for roles that lift them. Errors of files are reported elsewhere."""
    try:
        notices = [*unfed_cedar(settings), *cedar_spares_stored(settings)]
    except PdpError:
        return
    for notice in notices:
        yield ConfigProblem(str(notice.place), "warning", f"{notice.message} (`policies.cedar.policies`)")


def _unstated(composition: Wiring, settings: Settings, rules: KeyRules) -> Iterator[ConfigProblem]:
    """Yield a warning for each caller that names principals without evidence that policies read."""
    access = None
    with contextlib.suppress(PdpError):  # the problems of files stand elsewhere
        access = composition.row_access(settings)
    for message in unstated_forbids(rules, settings, access):
        yield ConfigProblem(settings.origins.nearest(("identity", "callers")), "warning", message)


def _unprotected(composition: Wiring, settings: Settings) -> Iterator[ConfigProblem]:
    """Yield a warning for each catalog of Trino whose materialized views can store rows restricted elsewhere."""
    try:
        access = composition.row_access(settings)
    except PdpError:
        return
    for message in unprotected_catalogs(settings.trino, access):
        yield ConfigProblem(settings.origins.nearest(("trino", "catalogs")), "warning", message)


def _doubled_ids(composition: Wiring, settings: Settings, facts: Facts) -> Iterator[ConfigProblem]:
    """Yield a warning for each id of a row policy that both files and the store give."""
    with contextlib.suppress(PdpError):  # the problems of files stand elsewhere
        access = composition.row_access(settings)
        for message in find_doubled_ids(access.tables, facts.row_rules()):
            yield ConfigProblem(settings.origins.nearest(("policies", "row_access")), "warning", message)


def find_world_problems(settings: Settings) -> list[ConfigProblem]:
    """Return the problems of the world file or of the seed, else permits on roles that this file alone knows."""
    file = settings.store.world_file() or settings.store.seed
    if file is None:
        return []
    try:
        facts = load_world(settings.path(file), listed_warehouses(settings))
    except PdpError as error:
        return problems_of(error)
    return list(find_stored_roles(settings, facts, {key: KeyRules(settings, key) for key in RULE_KEYS}))


def find_world_file_problems(file: Path) -> list[ConfigProblem]:
    """Return the problems of a world file of any warehouses."""
    return _raised(load_world, file, ())


def find_cedar_remarks(settings: Settings) -> list[Finding]:
    """Return the findings of the configured Cedar files, if any; the error of a missing or empty file alone."""
    if not settings.policies.cedar.policies:
        return []
    try:
        return [cedar_finding(remark) for remark in lint_cedar(configured_sources(settings))]
    except PdpError as error:
        return [finding_of(problem) for problem in problems_of(error)]


def cedar_finding(remark: CedarRemark) -> Finding:
    """Return a remark on a Cedar file in the form of lint."""
    place = remark.place
    return Finding(
        remark.code, remark.severity, place.file, place.line, place.column, remark.policy, remark.message, remark.hint
    )


def find_scope_remarks(settings: Settings) -> list[Finding]:
    """Return the findings of the configured permission files; the error of a missing or empty file alone."""
    try:
        files = policy_files(settings, "scopes.permissions")
        strict = settings.policies.scopes.strict
        return scope_findings(files.paths, strict=strict, known=name_check(settings).known) if files.paths else []
    except PdpError as error:
        return [finding_of(problem) for problem in problems_of(error)]


def scope_findings(files: Sequence[Path], *, strict: bool, known: KnownNames = NO_NAMES) -> list[Finding]:
    """Return the findings of permission files in the form of lint."""
    try:
        remarks = list(lint_entries(list(read_entries(files)), strict=strict, known=known))
    except PolicyError as error:
        return [finding_of(problem) for problem in problems_of(error)]
    return [
        Finding(each.code, each.severity, each.place.file, each.place.line, each.place.column, each.entry, each.message)
        for each in remarks
    ]


def finding_of(problem: ConfigProblem) -> Finding:
    """Return a problem in the form of lint."""
    at = _PLACE.fullmatch(problem.place)
    file, line, column = (at[1], int(at[2]), int(at[3])) if at else (problem.place, 0, 0)
    return Finding(CONFIGURATION, problem.severity, file, line, column, "", problem.message)


def find_row_access_problems(settings: Settings) -> list[ConfigProblem]:
    """Return the first error of each file of row policies; without any, those of all files together, and warnings."""
    try:
        files = policy_files(settings, "row_access")
    except PdpError as error:
        return problems_of(error)
    if not files.paths:
        return []
    from pdp.engines.row_access.entries import names_of  # noqa: PLC0415
    from pdp.engines.row_access.validation import compile_policies  # noqa: PLC0415  its parser of SQL takes 30 MB

    warehouses, names = known_warehouses(settings), names_of(settings)

    def compile_files(paths: Sequence[Path]) -> RowPolicies:
        with files.naming_key():
            return compile_policies(read_documents(paths), warehouses, names)

    found = [problem for path in files.paths for problem in _raised(compile_files, [path])]
    if found or (found := _raised(compile_files, files.paths)):
        return found
    documents = read_documents(files.paths)
    filled = {each.name for each in documents if each.document.has_entries}
    notices = compile_files(files.paths).warnings
    warnings = [ConfigProblem(str(notice.place), "warning", notice.message) for notice in notices]
    return [*_raised(files.require_content, filled), *warnings]


def _raised(action: Callable[..., object], *arguments: object) -> list[ConfigProblem]:
    """Return the problems of the error that an action raises; none if it succeeds."""
    try:
        action(*arguments)
    except PdpError as error:
        return problems_of(error)
    return []


def _of_finding(finding: Finding, key: FileKey | None = None) -> ConfigProblem:
    place = f"{finding.file}:{finding.line}:{finding.column}" if finding.line else finding.file
    if finding.code == CONFIGURATION:
        return ConfigProblem(place, finding.severity, finding.message)
    rule = f"rule `{finding.rule}`: " if finding.rule else ""
    named = f" (`policies.{key}`)" if key else ""
    hint = f"; {finding.hint}" if finding.hint else ""
    return ConfigProblem(place, finding.severity, f"{rule}{finding.message}{named}{hint}")


def _folder_problems(settings: Settings) -> Iterator[ConfigProblem]:
    """Yield the folders that the service could not write to, and a file in place of a socket. Nothing is created."""
    for number, sink in enumerate(settings.audit.sinks):
        if sink.push:
            yield from _raised(open_receiver, settings, sink.push)
        key: tuple[str, ...] = ("file",) if sink.file else (sink.kind, "spool")
        folder = settings.path(sink.file or (sink.push.spool if sink.push else "."))
        nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
        if not sink.stdout and not _is_writable(nearest):
            yield from problems_of(settings.error(("audit", "sinks", number, *key), _NO_FOLDER.format(nearest)))
    if settings.server.unix:
        socket = settings.path(settings.server.unix)
        if socket.exists() and not socket.is_socket():
            yield from problems_of(settings.error(("server", "unix"), f"`{socket}` exists and is not a socket"))
        elif not _is_writable(socket.parent):
            yield from problems_of(settings.error(("server", "unix"), _NO_FOLDER.format(socket.parent)))


def _is_writable(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
