"""Problems of the configured rules and of the names in policies that the store may know. Each file is read once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from functools import cache, cached_property

from pdp.config.idle_settings import unstated_notices
from pdp.config.policy_files import FileKey, policy_files
from pdp.config.references import name_check
from pdp.config.settings import Settings
from pdp.engines.cedar.kind import configured_model, configured_sources
from pdp.engines.cedar.lint import roles_in_another_case as cedar_roles_in_another_case
from pdp.engines.cel.lint.linter import (
    Finding,
    LintOptions,
    lint_files,
    roles_in_another_case,
    spellings,
    unasked_spellings,
)
from pdp.engines.cel.lint.remarks import NAME_CODES, remark_on_roles
from pdp.engines.cel.rules import (
    Rule,
    load_rules,
    permits_on_stored_roles,
    unfed_rules,
)
from pdp.engines.row_access.engine import RowAccessEngine
from pdp.engines.spelled_names import SpelledNames
from pdp.errors import Notice, PdpError
from pdp.facts.snapshot import Facts


class KeyRules:
    """Rules of a key of `policies`. Lint and the load read the files once each, when they are asked for."""

    def __init__(self, settings: Settings, key: FileKey) -> None:
        self.key = key
        self._settings = settings

    @cached_property
    def findings(self) -> list[Finding]:
        """Return the findings of lint; raise ConfigError for a missing file."""
        policies = self._settings.policies
        options = LintOptions(
            frozenset(policies.cel_extensions),
            profiles=policies.profiles,
            names=name_check(self._settings, forbid=self.key == "forbid"),
        )
        return lint_files(policy_files(self._settings, self.key).paths, options)

    @cached_property
    def errors(self) -> list[Finding]:
        """Return the errors of the rules; raise ConfigError for a missing file, and for a file without a rule."""
        errors = [finding for finding in self.findings if finding.severity == "error"]
        if not errors:
            filled = {rule.place.file for rule in self._loaded}
            policy_files(self._settings, self.key).require_content(filled)
        return errors

    @property
    def name_remarks(self) -> list[Finding]:
        """Return the findings on names."""
        return [finding for finding in self.findings if finding.code in NAME_CODES]

    @property
    def ignored_keys(self) -> list[Finding]:
        """Return the findings on keys that hold no rule in force; raise ConfigError for a missing file."""
        return [finding for finding in self.findings if finding.code == "ignored-key"]

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """Return the rules; none where a file or a rule has an error."""
        try:
            return () if self.errors else self._loaded
        except PdpError:
            return ()

    @cached_property
    def _loaded(self) -> tuple[Rule, ...]:
        policies = self._settings.policies
        paths = policy_files(self._settings, self.key).paths
        return load_rules(paths, frozenset(policies.cel_extensions), policies.profiles).rules


def seen_roles(rules: KeyRules) -> Iterator[Notice]:
    """Yield which roles the rules of a key see."""
    for rule in rules.rules:
        if "roles" in rule.program.variables:
            (checked,) = rule.program.readings()
            for remark in remark_on_roles(checked, forbid=rules.key == "forbid"):
                yield Notice(rule.place, f"rule `{rule.id}`: {remark.message} (`policies.{rules.key}`)")


def unfed_forbids(rules: KeyRules, settings: Settings) -> Iterator[Notice]:
    """Yield a notice for each forbid on evidence without a source in Trino or Polaris."""
    for notice in unfed_rules(rules.rules, settings):
        yield Notice(notice.place, f"{notice.message} (`policies.forbid`)")


def unstated_forbids(rules: KeyRules, settings: Settings, access: RowAccessEngine | None) -> Iterator[str]:
    """Yield a notice for each caller that names principals without evidence that policies read."""
    read = frozenset[str]().union(*(rule.program.evidence for rule in rules.rules))
    mapped = access.hidden_by() if access else frozenset[str]()
    if settings.policies.cedar.policies:
        with contextlib.suppress(PdpError):  # the errors of the files are listed elsewhere
            policies = configured_model(settings).policies.policies
            mapped = mapped.union(*(policy.evidence for policy in policies if policy.effect == "forbid"))
    return unstated_notices(settings.identity, read, mapped)


def stored_permits(rules: KeyRules, settings: Settings, facts: Facts) -> Iterator[Notice]:
    """Yield a notice for each permit on a role that the store knows and no setting feeds."""
    engines = {engine for authority in settings.authorities.values() for engine in authority.engines}
    if settings.identity.cel_roles == "all" or "cel" not in engines or settings.policies.source:
        return
    fed = {role for provider in settings.identity.providers.values() for role in provider.role_map.values()}
    fed.update(settings.trino.groups.values())
    for notice in permits_on_stored_roles(rules.rules, fed, facts):
        yield Notice(notice.place, f"{notice.message} (`policies.rules`)")


def unasked_permits(rules: KeyRules, settings: Settings, facts: Facts, names: SpelledNames) -> Iterator[Notice]:
    """Yield a notice for each text with capitals in a permit, if no name of Trino meets the text."""
    mapped = frozenset(catalog.warehouse for catalog in settings.trino.catalogs.values())

    @cache
    def known(warehouses: frozenset[str] | None) -> frozenset[str] | None:
        asked = mapped if warehouses is None else mapped & warehouses
        objects = facts.index.objects, names.declared
        return frozenset(path for some in objects for path in spellings(some, asked)) if asked else None

    for notice in unasked_spellings(rules.rules, known):
        yield Notice(notice.place, f"{notice.message} (`policies.rules`)")


def stored_names(rules: Iterable[KeyRules], settings: Settings, facts: Facts) -> Iterator[Notice]:
    """Yield a notice for each role of a policy that differs in case alone from a role of the store.

    Raise PdpError for a file of Cedar at fault.
    """
    check, roles = name_check(settings), facts.known_roles()
    for of_key in rules:
        for notice in roles_in_another_case(of_key.rules, check, roles):
            yield Notice(notice.place, f"{notice.message} (`policies.{of_key.key}`)")
    if settings.policies.cedar.policies:
        for notice in cedar_roles_in_another_case(configured_sources(settings), roles):
            yield Notice(notice.place, f"{notice.message} (`policies.cedar.policies`)")
