"""Names that can match nothing, at each place that takes one: an error or a finding, and the same at every door.

tests/cli/config/test_names_of_nobody.py has the forms of names in rules. Here are keys of Trino, words of actions,
arguments, and roles of the store.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.service.command_line import COMPOSITION
from support.service.named_configuration import CONFIG, command, starts, strict, with_rules, write

from pdp.config.load import load_settings
from pdp.config.names import KnownNames, name_fault
from pdp.engines.cel import rules
from pdp.engines.cel.lint import linter
from pdp.engines.cel.program import RULE_VARIABLES, compile_program
from pdp.engines.cel.sources import read_rule_file
from pdp.facts.snapshot import Facts
from pdp.model.trino_operations import RULE_ACTIONS, RULE_OPS, TRINO_OPERATIONS
from pdp.model.vocabulary import CATALOG_ACTIONS, CEL_CHECKS, rule_checks


def warnings_of(config: Path) -> str:
    """Return the warnings of a start."""
    loaded = load_settings(config, (), {})
    return "\n".join(COMPOSITION.build_pdp(loaded, Facts.empty(), COMPOSITION.read_rules(loaded)).bundle.warnings)


def with_trino(folder: Path, base: dict[str, Any] = CONFIG, **keys: Any) -> Path:
    return write(folder, {**base, "trino": {**CONFIG["trino"], **keys}})


WRONG_PROPERTIES = {
    "system.query_priority": "write `query_priority`",
    "System.query_priority": "write `query_priority`",
    "query-max-cpu-time": "write `query_max_cpu_time`",
    "query.max.cpu-time ": "has no blanks",
    " query_priority": "has no blanks",
    "lk.bar ": "has no blanks",
    "lk. bar": "has no blanks",
    "lk.": "or `catalog.name`",
    ".bar": "or `catalog.name`",
    "lk..bar": "or `catalog.name`",
    "lk.hr.bar": "write `lk.bar`",
    "lk/bar": "names of properties",
    "query_priority=5": "names of properties",
}
UNKNOWN_PROPERTIES = {
    "lake.bar": "no catalog `lake`",
    "nosuch.foo": "no catalog `nosuch`",
    "lk.max-size": "`lk.max_size`",
    "lk": "`lk.<name>`",
}
SOUND_PROPERTIES = ("query_priority", "QUERY_MAX_RUN_TIME", "lk.bar", "LK.Bar", "lk.bar_2", "time_zone_id")


def test_a_denied_session_property_that_trino_never_sends(tmp_path: Path) -> None:
    names = ["query_priority", *WRONG_PROPERTIES]
    config = with_trino(tmp_path, session_properties={"deny": names})
    error, (code, output) = starts(config), command("config", "check", "-c", config)
    assert code == 1
    for said in (error, output):
        for place, wanted in enumerate(WRONG_PROPERTIES.values(), 1):
            line = next(line for line in re.split("(?=`trino)", said) if f"deny.{place}`" in line)
            assert wanted in line
        assert "deny.0" not in said


def test_a_denied_session_property_of_nothing_that_is_configured(tmp_path: Path) -> None:
    keys = {"session_properties": {"deny": list(UNKNOWN_PROPERTIES)}}
    config = with_trino(tmp_path, **keys)
    code, output = command("config", "check", "-c", config)
    assert code == 0
    for said in (warnings_of(config), output, starts(with_trino(tmp_path, strict(), **keys))):
        assert [wanted for wanted in UNKNOWN_PROPERTIES.values() if wanted not in said] == []


def test_denied_session_properties_that_trino_sends(tmp_path: Path) -> None:
    keys = {"session_properties": {"deny": list(SOUND_PROPERTIES)}}
    assert starts(with_trino(tmp_path, strict(), **keys)) == ""
    keys["session_properties"]["deny"].append("postgres.foo")  # a catalog that no warehouse stands behind
    assert starts(with_trino(tmp_path, strict(), unmanaged_catalogs="allow", **keys)) == ""


def test_a_permitted_routine_that_trino_never_sends_is_a_warning(tmp_path: Path) -> None:
    """A permit that matches nobody closes, so the service starts."""
    keys = {
        "functions": {"allow": ["Lk.system.f", "lk.f"], "builtin_catalogs": ["LK"]},
        "procedures": {"allow": ["lk.System.register_table", "system.register_table", "optimize ", "optimize"]},
    }
    wanted = ["functions.allow.0", "functions.allow.1", "functions.builtin_catalogs.0"]
    wanted += [f"procedures.allow.{place}" for place in range(3)]
    config = with_trino(tmp_path, **keys)
    for said in (warnings_of(config), command("config", "check", "-c", config)[1]):
        assert re.findall(r"`trino[.](\S+)`:", said) == wanted
    assert re.findall(r"`trino[.](\S+)`:", starts(with_trino(tmp_path, strict(), **keys))) == wanted


def test_strict_names_stop_a_foreign_provider_of_rules(tmp_path: Path) -> None:
    for base, stops in ((CONFIG, False), (strict(), True)):
        config = write(tmp_path, {**base, "identity": {**CONFIG["identity"], "cel_provider": "keycloak"}})
        code, output = command("config", "check", "-c", config)
        assert (bool(starts(config)), code, "none of `identity.providers`" in output) == (stops, stops, True)


WRONG_FORBIDS = {
    "action == 'READ_DATA'": "write `read_data`",
    "action in ['select', 'reed_data']": "`reed_data` fits no action",
    "'Drop' == action": "write `drop`",
    "action.startsWith('Grant')": "differ in case",
    "action.matches('^(?i)zzz')": "fits no action",
    "action == 'read_grants'": "write `read_assignments`",
    "op == 'read_entity_value'": "write `READ_ENTITY_VALUE`",
    "op == 'READ_ENTITY'": "`READ_ENTITY` fits no op",
    "op == 'trino:selectfromcolumns'": "write `trino:SelectFromColumns`",
    "op == 'SelectFromColumns'": "`SelectFromColumns` fits no op",
    "op == 'catalog:CREATE_ROLE'": "write `catalog:create_role`",
    "op.matches('^Trino:')": "fits no op",
    "op == 'trino:CreateCatalog' && arguments.schema == 'HR'": "Trino sends `hr`",
    "arguments['table'] in ['Pay']": "Trino sends `pay`",
    "arguments.function == 'Lk.system.f'": "Trino sends `lk.system.f`",
    "arguments.function == 'lk.f'": "catalog.schema.name",
    "arguments.property == 'Query_X'": "Trino sends `query_x`",
    "arguments.property == 'system.query_x'": "write `query_x`",
    "arguments.property.startsWith('LK.')": "Trino sends `lk.`",
    "has(arguments.usr) && arguments.usr == 'root'": "no question has the argument `usr`",
    "op == 'trino:ImpersonateUser' && arguments.username == 'root'": "no question has the argument `username`",
    "op == 'trino:SelectFromColumns' && warehouse == 'lake'": "`warehouse` is empty",
    "op == 'trino:DropTable' && path.startsWith('hr.')": "`path` is empty",
    "op in ['trino:DropTable', 'trino:DropView'] && ref == 'main'": "`ref` is empty",
    "op.startsWith('trino:') && contentType == 'ICEBERG_TABLE'": "`contentType` is empty",
    "action == 'trino:DropTable' && path == 'hr.pay'": "`path` is empty",
    "roles[0] == 'role:hr'": "write `hr`",
    "path.startsWith('lake/')": "test `warehouse == 'lake'`",
    "path == 'namespace:lake'": "test `warehouse == 'lake'`",
    "op.startsWith('read_')": "differ in case",
    "action.startsWith('red_')": "fits no action",
    "action.endsWith('_DATA') || op.contains('READ')": "differ in case",
    "'read_data' in actions": "test `action == 'read_data'`",
    "'Read_Data' in actions && path == 'hr.pay'": "test `action == 'read_data'`",
    "actions.exists(a, a == 'read_data')": "test `action == 'read_data'`",
    "actions.exists(a, a in ['drop', 'x'])": "test `action == 'drop'`",
    "actions.exists(a, a.startsWith('read'))": "test `action`",
    "actions[0] == 'READ_ENTITY_VALUE'": "test `op == 'READ_ENTITY_VALUE'`",
    "'catalog_drop_entity' in actions": "differ in case",
    "'DROP_ENTITY' in actions": "write `CATALOG_DROP_ENTITY`",
    "'UPDATE_ENTITY' in actions": "write `CATALOG_UPDATE_ENTITY`",
    "type == 'TABLE' && role == 'x'": "test `contentType == 'ICEBERG_TABLE'`",
    "type in ['view', 'namespace']": "test `contentType == 'ICEBERG_VIEW'`",
    "type.startsWith('ICEBERG')": "test `contentType`",
    "type == 'GARBAGE_COLLECTOR' && op == 'READ_ENTITY_VALUE'": "no question meets",
    "path == 'hr..pay'": "write `hr.pay`",
    "path in ['hr.pay', '.hr']": "write `hr`",
    "path == 'hr.'": "write `hr`, or `path.startsWith('hr.')`",
    "path.startsWith('hr..')": "no empty part",
    "path.endsWith('.')": "no empty part",
    "path.contains('hr..p')": "no empty part",
    "path.matches('^hr[.][.]pay$')": "no empty part",
    "path == 'hr.pa\\ty'": "no control character",
    "op == 'READ_ENTITY_VALUE' && action == 'drop'": "no question meets",
    "op in ['READ_ENTITY_VALUE'] && action in ['drop', 'rename']": "no question meets",
    "op == 'READ_ENTITY_VALUE' && op == 'UPDATE_ENTITY'": "no question meets",
    "op == 'READ_ENTITY_VALUE' && role == 'x' && action.startsWith('create_')": "no question meets",
    "(op == 'DELETE_ENTITY' || op == 'catalog:rename') && action == 'read_data'": "no question meets",
    "!(op != 'DELETE_ENTITY' || action != 'read_data')": "no question meets",
    "op == 'VIEW_REFERENCE' && path.startsWith('hr.')": "no question meets",
    "action == 'create_table' && contentType == 'ICEBERG_VIEW' && op == 'CREATE_ENTITY'": "no question meets",
    "op.lowerAscii() == 'delete_entity' && action.upperAscii() == 'READ_DATA'": "no question meets",
    "op == 'trino:SelectFromColumns' && arguments.catalog == 'lk' && arguments.schema == 'a1'": "test `action == 'read_data'`",
    "op.startsWith('trino:') && arguments.catalog == 'lk' && has(arguments.schema) && arguments.schema == 'c7'": "`lk` has a",
    "arguments.catalog in ['lk'] && arguments.table.startsWith('t')": "words of the vocabulary",
    "action in ['trino:DropTable', 'trino:DropView'] && arguments.catalog == 'lk'": "test `action == 'drop'`",
    "op == 'trino:DropCatalog' && arguments.catalog == 'lk'": "whose name `arguments.catalog` has",
    "op == 'list_tables' && path == 'a2'": "test `action == 'list_tables'`",
    "action == 'list_tables' && path == 'a2'": "forbid `action == 'include_in_list'`",
    "op == 'READ_ENTRIES' && path.startsWith('a2.')": "forbid `action == 'include_in_list'`",
    "op == 'DropTable'": "write `trino:DropTable`",
    "path == 'lk.a6.pay'": "write `a6.pay`",
    "op == 'trino:SetCatalogSessionProperty' && arguments.property == 'foo'": "write `lk.foo`",
    "action == 'trino:SetCatalogSessionProperty' && 'foo' == arguments['property']": "write `lk.foo`",
    "op == 'trino:SetSystemSessionProperty' && arguments.property in ['a', 'lk.foo']": "write `foo`",
    "op == 'trino:SetViewAuthorization' && has(arguments.user) && arguments.user == 'root'": "no question that the rule",
    "op == 'CREATE_ENTITY' && has(arguments.name) && arguments.name == 'b7'": "has the argument `name`",
    "op == 'trino:ExecuteFunction' && arguments.function == 'lk.hr.f'": "test `action == 'get_metadata'`",
    "op in ['trino:ExecuteFunction', 'trino:FilterFunctions'] && arguments.function.startsWith('lk.hr.')": "`path == 'hr'`",
    "op == 'trino:CreateFunction' && arguments.catalog == 'lk'": "test `action == 'update_properties'`",
    "op == 'trino:DropFunction' && arguments['function'].matches('^lk[.]hr[.].*')": "functions of `lk.hr`",
    "bytes(path) == b'lake/hr/pay'": "write `hr.pay`",
    "bytes(path) == bytes('hr..pay')": "write `hr.pay`",
    "string(role) == 'user:al'": "write `al`",
    "dyn(roles[0]) == 'role:hr'": "write `hr`",
    "dyn(path) == 5": "no text that is made of `path` here meets `5`",
    "dyn(path) == b'hr.pay'": "meets `b'hr.pay'`",
    "dyn(role) in [1, 2.5]": "no text that is made of `role` here meets",
    "bytes(role) == dyn('al')": "meets",
    "role + '' == 'user:oidc~al'": "write `al`",
    "role == 'user:' + 'al'": "write `al`",
    "role in ['b', 'us' + 'er:' + 'al']": "write `al`",
    "role in ['b'] + ['user:al']": "write `al`",
    "'x' + role == 'xuser:al'": "write `al`",
    "role + '@corp' == 'al'": "no text that is made of `role`",
    "('user:' + role).startsWith('role:')": "no text that is made of `role`",
    "roles.exists(r, r + '' == 'role:hr')": "write `hr`",
    "path + '' == 'lake/hr/pay'": "write `hr.pay`",
    "'' + action == 'READ_DATA'": "write `read_data`",
    "action == 'READ_DATA'.upperAscii()": "write `read_data`",
}
UNKNOWN_IN_FORBIDS = {
    "op == 'trino:SelectFromColumns'": "test `action == 'read_data'`",
    "action == 'trino:DropTable' && role == 'x'": "test `action == 'drop'`",
    "op == 'VIEW_REFLOG'": "no check type any more",
    "role.contains('oidc~')": "have no prefix",
    "role.endsWith('oidc~ann')": "have no prefix",
    "role.contains('role:')": "have no prefix",
    "role.matches('user:oidc~svc-.*')": "have no prefix",
    "role == 'oidc:alice'": "write `alice`",
    "role == 'okta/alice'": "write `okta~alice`",
    "path.contains('/salaries')": "dots between its parts",
    "path.contains('@main')": "a path has no ref",
    "path.matches('s.*@main')": "a path has no ref",
    "path.matches('namespace:lake')": "no type and no warehouse",
    "'group:eu' in groups": "write `eu`",
    "groups.exists(g, g == 'group:eu')": "write `eu`",
    "groups[0] == 'group:eu'": "write `eu`",
    "warehouse == 'lk'": "`lk` is a catalog of Trino",
    "ref == 'refs/heads/main'": "write `main`",
    "ref == 'Main'": "write `main`",
    "contentType == 'iceberg_table'": "write `ICEBERG_TABLE`",
    "action.startsWith('READ_')": "test `op`",
    "action.endsWith('_ENTITY')": "test `op`",
    "path == 'hr .pay'": "has blanks around",
    "path.startsWith(' hr.')": "has blanks around",
    "path.endsWith('. pay')": "has blanks around",
    "op.startsWith('trino:') && role == 'x'": "such as `action == 'read_data'`",
    "op.startsWith('trino:Drop')": "is asked only where no warehouse stands behind a catalog",
    "op.startsWith('trino:') && arguments.catalog == 'lk'": "words of the vocabulary",
    "op == 'trino:DropTable' && arguments.catalog in ['lk', 'hive'] && arguments.schema == 'hr'": "`lk` has a warehouse",
    "(arguments.catalog == 'hive' || arguments.catalog == 'lk') && op == 'trino:DropTable'": "`lk` has a warehouse",
    "op == 'trino:DropTable' && arguments.catalog.startsWith('l')": "`lk` has a warehouse",
    "op == 'trino:DropTable' && arguments.catalog.matches('^(lk|hive)$')": "`lk` has a warehouse",
    "arguments['catalog'].endsWith('k') && op.startsWith('trino:') && arguments.schema == 'hr'": "`lk` has a warehouse",
    "op.matches('^trino:(Drop|Rename).*') && role == 'x'": "the rule is asked only where no warehouse",
    "role == 'x' && op.endsWith('InsertIntoTable')": "test `action == 'write_data'`",
    "op.contains('FromColumns')": "test `action == 'read_data'`",
    "op.lowerAscii() == 'trino:droptable'": "test `action == 'drop'`",
    "action.upperAscii().startsWith('TRINO:')": "the rule is asked only where no warehouse",
    "op.size() == 15 && op.startsWith('trino:Drop')": "is asked only where no warehouse",
    "action == 'create_table' && path == 'hr'": "test `path.startsWith('hr.')`",
    "action in ['create_table', 'create_view'] && 'hr' == path && role == 'x'": "test `path.startsWith('hr.')`",
    "path.startsWith('lk.')": "test `warehouse`",
    "path == 'lk.hr'": "write `hr`",
    "path == 'hr.pay$files'": "write `hr.pay`",
    "path.startsWith('hr.pay$')": "write `hr.pay`",
    "contentType == 'TABLE'": "write `ICEBERG_TABLE`",
    "contentType in ['view', 'UDF']": "write `ICEBERG_VIEW`",
    "contentType == 'ICEBERG_TABLES'": "write `ICEBERG_TABLE`",
    "api.apiName == 'trino' && path == 'hr.pay'": "`api.apiName` is ''",
    "api['apiName'] == 'nessie'": "write `Nessie`",
    "role == 'contractor' && path == 'hr.pay'": "test `'contractor' in roles`",
    "op == 'catalog:create_role' && arguments.name == 'role:c2'": "write `c2`",
    "has(properties.pii) && properties.pii == 'yes'": "reads `properties`, which Trino does not send",
}
STAYS_A_WARNING = {"has(properties.pii) && properties.pii == 'yes'"}
"""Forbids that `strict_names` does not refuse: they are at fault in no name."""
SOUND_FORBIDS = (
    "op in ['READ_ENTITY_VALUE', 'trino:SelectFromColumns'] && path == 'hr.pay'",
    "op == 'trino:SelectFromColumns' && arguments.catalog == 'tpch' && arguments.schema == 'tiny'",
    "op == 'trino:ExecuteQuery' || op == 'trino:SetSystemSessionProperty' && arguments.property == 'query_x'",
    "op.startsWith('trino:') || op.startsWith('catalog:grant_') || op.startsWith('lakeql_')",
    "op == 'trino:ExecuteProcedure' && arguments.function == 'lk.system.f' && arguments.catalog == 'lk'",
    "op == 'catalog:rename' || op == 'catalog:get_metadata' || op == 'catalog:create_role' && arguments.name == 'Hr'",
    "op == 'trino:DropTable' && warehouse == '' && path == ''",
    "action in ['read_data', 'select', 'rename', 'trino:ExecuteQuery', 'READ_ENTITY_VALUE']",
    "action.matches('^(drop|delete)$') || op.matches('.*_ENTITY$') || action.upperAscii() == 'READ_DATA'",
    "ref == 'feature/x' && contentType == 'UDF' && groups.exists(g, g == 'eu')",
    "'CATALOG_DROP_ENTITY' in actions || actions.exists(a, a.startsWith('SNAP_')) || 'OWN_WORD' in actions",
    "type == 'GARBAGE_COLLECTOR' && op == 'UPDATE_REPOSITORY_CONFIG' || type == 'own' || type.startsWith('T')",
    "path.contains('.') && path.startsWith('hr.') && path != 'hr.my pay' && 'user:' + role == 'user:al'",
    "op == 'READ_ENTITY_VALUE' && action in ['read_data', 'drop'] || role + '@corp' != 'al'",
    "role == 'x' && false",
    "op == 'trino:ExecuteProcedure' && arguments.function == 'lk.hr.f' || arguments.function == 'hive.hr.f'",
    "op == 'trino:DropTable' && arguments.catalog.startsWith('hi') && arguments.schema == 'hr'",
    "op == 'trino:DropTable' && (arguments.catalog == 'lk' || arguments.catalog != 'hive')",
    "op == 'trino:DropTable' && (arguments.catalog == 'lk' || arguments.catalog == arguments.schema)",
    "op == 'trino:DropTable' && (arguments.catalog == 'lk' || arguments.schema == 'hr')",
    "op.endsWith('SessionProperty') || op.matches('^trino:(Execute|Kill)Query.*') || op.contains('ImpersonateUser')",
    "action in ['create_table', 'create_namespace'] && path == 'hr' || action == 'create_view' && path == 'hr.v'",
    "op.startsWith('trino:') && arguments.catalog == 'hive' && arguments.schema == 'hr' || op == 'trino:ExecuteQuery'",
    "op == 'trino:ExecuteFunction' && arguments.catalog == 'lk' && arguments.function.startsWith('lk.system.')",
    "op == 'trino:CreateCatalog' && arguments.catalog == 'hive' || action == 'list_tables' && role == 'x'",
    "op.endsWith('SessionProperty') && (arguments.property == 'foo' || arguments.property == 'lk.foo')",
    "op != 'trino:SetCatalogSessionProperty' && has(arguments.property) && arguments.property == 'foo'",
    "warehouse == 'lake' && path == 'lk.hr.pay' || path == 'hr.$files' || path.endsWith('$x') || path == 'hr.a$b'",
    "contentType in ['ICEBERG_TABLE', 'UDF', 'OWN_TYPE', ''] && api.apiName in ['Nessie', 'Iceberg', 'own', '']",
    "bytes(path) == b'hr.pay' || string(path) == 'hr.pay' || dyn(path) in ['hr.pay'] || dyn(bytes(role)) == b'al'",
    "op == 'catalog:create_role' && arguments.name == 'c2' && arguments.project == 'p1' && size(bytes(path)) < 900",
)


def test_forbids_that_bind_nobody(tmp_path: Path) -> None:
    """The start, config check and lint refuse each, or name each as a finding, which `strict_names` makes an error."""
    named = {f"f{number}": rule for number, rule in enumerate(WRONG_FORBIDS)}
    config = with_rules(tmp_path, named)
    for arguments in (("config", "check"), ("lint",)):
        code, output = command(*arguments, "-c", config)
        assert code == 1
        for id, wanted in zip(named, WRONG_FORBIDS.values(), strict=True):
            said = [line for line in output.splitlines() if f"rule `{id}`" in line and ": error: " in line]
            assert any(wanted in line for line in said), (named[id], output)
    for rule, wanted in WRONG_FORBIDS.items():
        assert wanted in starts(with_rules(tmp_path, {"f": rule})), rule
        assert starts(with_rules(tmp_path, {"f": rule}, forbid=False)) == "", rule


def test_forbids_that_may_bind_nobody(tmp_path: Path) -> None:
    named = {f"f{number}": rule for number, rule in enumerate(UNKNOWN_IN_FORBIDS)}
    config = with_rules(tmp_path, named)
    outputs = [command("config", "check", "-c", config), command("lint", "-c", config)]
    assert [code for code, _ in outputs] == [0, 0]
    for said in (warnings_of(config), *(output for _, output in outputs)):
        for id, wanted in zip(named, UNKNOWN_IN_FORBIDS.values(), strict=True):
            words = "Trino sends no properties" if named[id] in STAYS_A_WARNING and "[unsent" in said else wanted
            lines = [line for line in said.splitlines() if f"rule `{id}`" in line or f"forbid `{id}`" in line]
            assert any(words in line for line in lines), (named[id], said)
    for rule, wanted in UNKNOWN_IN_FORBIDS.items():
        stopped = starts(with_rules(tmp_path, {"f": rule}, strict_names=True))
        assert (wanted in stopped) is (rule not in STAYS_A_WARNING), rule


def test_forbids_that_bind(tmp_path: Path) -> None:
    config = with_rules(tmp_path, {f"f{at}": rule for at, rule in enumerate(SOUND_FORBIDS)}, strict_names=True)
    assert starts(config) == ""


def test_a_forbid_on_functions_of_a_catalog_that_is_asked_by_name(tmp_path: Path) -> None:
    config = with_rules(tmp_path, {"f": "op == 'trino:ExecuteFunction' && arguments.function == 'lk.hr.f'"})
    assert "functions of `lk.hr`" in starts(config)
    keys = yaml.safe_load(config.read_text())
    keys["trino"]["functions"] = {"builtin_catalogs": ["lk"]}
    config.write_text(yaml.safe_dump(keys))
    assert starts(config) == ""


def test_every_op_and_action_that_rules_are_asked_is_a_word() -> None:
    for (type, action), checks in CEL_CHECKS.items():
        assert {check.op for check in checks} <= RULE_OPS, type
        assert action in RULE_ACTIONS
    for type, actions in CATALOG_ACTIONS.items():
        for action in actions:
            assert {check.op for check in rule_checks(type, action)} <= RULE_OPS
            assert action in RULE_ACTIONS
    for name in TRINO_OPERATIONS:
        assert [check.op for check in rule_checks("server", f"trino:{name}")] == [f"trino:{name}"]
        assert f"trino:{name}" in RULE_OPS & RULE_ACTIONS


PARTS = st.lists(st.sampled_from(["hr", "pay", "lake", "a", "x1"]), min_size=1, max_size=3)
SPELLINGS = (
    "lake/{slashed}",
    "table:lake/{slashed}",
    "namespace:lake/{slashed}",
    "{slashed}",
    "lake.{dotted}",
    "Lake/{slashed}",
)


@given(PARTS, st.sampled_from(SPELLINGS), st.sampled_from(["==", "starts"]), st.sampled_from(["", "/"]))
@settings(max_examples=200)
def test_a_hint_that_is_followed_binds_what_was_meant(parts: list[str], spelling: str, test: str, end: str) -> None:
    """A path in another form means a place in the warehouse. The rule that a message tells to write holds there."""
    if parts[0] == "lake" and spelling == "{slashed}":
        return  # may mean either
    dotted = ".".join(parts)
    text = spelling.format(slashed="/".join(parts), dotted=dotted)
    text = text + end if test == "starts" and "/" in text else text
    known = KnownNames(frozenset({"lake"}))
    fault = name_fault("place", "equals" if test == "==" else "starts", text, known)
    if fault is None or not fault.is_wrong:
        return
    place = re.search(r"`warehouse == '([^']*)'`", fault.message)
    written = re.search(r"write `((?!warehouse ==)[^`]*)`", fault.message)
    tests = [f"warehouse == '{place[1].lower()}'"] if place else []
    if written:
        tests.append(f"path == '{written[1]}'" if test == "==" else f"path.startsWith('{written[1]}')")
    asked = dotted if test == "==" else f"{dotted}.t"
    assert tests, fault.message
    values = [{"path": asked, "warehouse": "lake"}.get(name, "") for name in RULE_VARIABLES]
    assert compile_program(" && ".join(tests)).evaluate(*values) is True, (text, fault.message)


def test_the_name_of_a_warehouse_before_a_slash_is_no_namespace() -> None:
    """`path.startsWith('lake.')` would bind no table of the warehouse `lake`."""
    for text in ("lake/", "lake/hr", "namespace:lake/", "Lake/"):
        for test in ("equals", "starts"):
            fault = name_fault("path", test, text, KnownNames(frozenset({"lake"})))
            assert fault is not None
            assert "write `lake" not in fault.message.lower()


STORE = "objects: [warehouse:lake, role:contractor, role:external, role:hr, role:Ops]\n"
STORE += "grants: [{principal: 'user:oidc~ann', privilege: assignee, object: role:seen}]\n"


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("'HR' in roles", "write `hr`"),
        ("roles.exists(r, r == 'Hr')", "write `hr`"),
        ("!(roles.exists(r, r in ['ops']))", "write `Ops`"),
        ("'Seen' in roles", "write `seen`"),
        ("'hr' in roles || 'Ops' in roles || 'seen' in roles || 'new' in roles", ""),
    ],
)
@pytest.mark.parametrize("forbid", [True, False])
def test_a_role_in_another_case_than_the_role_of_the_store(
    tmp_path: Path, rule: str, wanted: str, forbid: bool
) -> None:
    """The start does not ask the store about names: a role that somebody registers could stop a reload."""
    config = with_rules(tmp_path, {"f": rule}, forbid=forbid)
    (tmp_path / "world.yaml").write_text(STORE)
    for arguments in (("config", "check"), ("lint",)):
        code, output = command(*arguments, "-c", config)
        assert (code, "differ in case" in output, wanted in output) == (0, bool(wanted), True), output
    config = with_rules(tmp_path, {"f": rule}, forbid=forbid, strict_names=True)
    (tmp_path / "world.yaml").write_text(STORE)
    assert (starts(config), command("config", "check", "-c", config)[0]) == ("", int(bool(wanted)))


def test_a_role_of_cedar_in_another_case_than_the_role_of_the_store(tmp_path: Path) -> None:
    head = "permit (principal, action, resource);\n"
    names = {"HR": True, "seen": False, "SEEN": True, "Ops": False, "new": False}
    forbids = "".join(
        f'@id("{name}") forbid (principal in Lakekeeper::Role::"{name}", action, resource);\n' for name in names
    )
    policies = {**CONFIG["policies"], "scopes": {}, "cedar": {"policies": ["p.cedar"]}}
    config = {**CONFIG, "authorities": {"default": {"engines": ["cedar"]}}, "policies": policies}
    file = write(tmp_path, config, p_cedar=head + forbids, world_yaml=STORE)
    for arguments in (("config", "check"), ("lint",)):
        code, output = command(*arguments, "-c", file)
        said = [line for line in output.splitlines() if "differs in case" in line]
        assert code == 0
        assert [f"`{name}` of Cedar" in "".join(said) for name in names] == list(names.values()), output
        assert all(f"{tmp_path / 'p.cedar'}:" in line for line in said)


def test_the_files_of_a_key_are_read_for_three_purposes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`config check` reads each file for lint, for the remarks on rules and for the warnings of a start, once each."""
    config = with_rules(tmp_path, {"f": "'hr' in roles && path == 'HR.x'"})
    read: list[str] = []
    original = read_rule_file

    def noted(path: Path, *more: Any) -> Any:
        read.append(path.name)
        return original(path, *more)

    for module in (linter, rules):
        monkeypatch.setattr(module, "read_rule_file", noted)
    assert command("config", "check", "-c", config)[0] == 0
    assert sorted(read) == ["forbid.yaml"] * 3


IGNORED = {
    "beside.yaml": "rules: {f: \"path == 'a'\"}\nrules2: {x: 'true'}\nforbids: {y: 'true'}\n",
    "nested.yaml": "rules: {g: \"path == 'a'\"}\nversion: 2\n",
    "other.properties": "nessie.server.authorization.rules.h=path=='a'\nx=true\nquarkus.a=1\nquarkus.b=2\n"
    "%dev.nessie.server.authorization.rules.i=true\n",
}
"""File of rules -> its text, with keys that hold no rules in force."""


@pytest.mark.parametrize(("forbid", "fails"), [(True, False), (True, True), (False, False)])
def test_keys_without_rules_are_named_at_every_door(tmp_path: Path, forbid: bool, fails: bool) -> None:
    """In the same words, also beside an error: who mends the one finds the other."""
    config = with_rules(tmp_path, {"e": "role == 'user:al'" if fails else "role == 'al'"}, forbid=forbid)
    for name, text in IGNORED.items():
        (tmp_path / name).write_text(text)
    key = "forbid" if forbid else "rules"
    given = {**yaml.safe_load(config.read_text())["policies"], key: ["forbid.yaml", *IGNORED]}
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "policies": given}))
    places = {"beside.yaml": [2, 3], "nested.yaml": [2], "other.properties": [2, 3, 5]}
    ignored = [f"{tmp_path / name}:{line}:" for name, lines in places.items() for line in lines]
    found = {}
    for arguments in (("config", "check"), ("lint",)):
        lines = command(*arguments, "-c", config)[1].splitlines()
        said = [line for line in lines if "ignored" in line or "not in force" in line]
        assert all(any(line.startswith(place) and ": warning: " in line for line in said) for place in ignored), said
        found[arguments] = [line.replace("[ignored-key] ", "").removesuffix(f" (`policies.{key}`)") for line in said]
    checked, linted = found.values()
    assert sorted(checked) == sorted(linted)
    assert len(linted) == len(ignored)
    if not fails:
        started = [line for line in warnings_of(config).splitlines() if "ignored" in line or "not in force" in line]
        assert sorted(started) == sorted(line.replace(" warning:", "") for line in linted)


def test_config_check_names_forbids_that_close_trino_as_the_start_does(tmp_path: Path) -> None:
    rules = {
        "a": "ref != 'dev'",
        "b": "api.name == 'x'",
        "c": "op == 'trino:SelectFromColumns'",
        "d": "path == 'lk.hr'",
    }
    config = with_rules(tmp_path, rules)
    code, output = command("config", "check", "-c", config)
    told = [line for line in output.splitlines() if "closes Trino" in line]
    assert [id for id in rules if any(f"`{id}`" in line for line in told)] == ["a", "b", "c"], output
    assert code == 0
    started = [line for line in warnings_of(config).splitlines() if "closes Trino" in line]
    assert [line.removeprefix("warning: ") for line in told] == started
