"""Names that can match nothing, at each place that takes one: an error or a finding, and the same at every door.

`test_names_of_nobody` has the forms of names in rules. Here are the places that were silent: keys of Trino, words of
actions, arguments, roles of the store, patterns of Cedar and attributes that no entity has.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cli.config.test_names_of_nobody import CONFIG, command, starts, strict, write
from support.service.command_line import COMPOSITION

from pdp.config.load import load_settings
from pdp.facts.snapshot import Facts


def warnings_of(config: Path) -> str:
    """Return the warnings of a start."""
    settings = load_settings(config, (), {})
    return "\n".join(COMPOSITION.build_pdp(settings, Facts.empty(), COMPOSITION.read_rules(settings)).bundle.warnings)


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
