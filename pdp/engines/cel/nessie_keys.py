"""Keys of Nessie's configuration: rules, switches of its authorization, and keys of other parts.

Reads entries that `pdp.config.quarkus` has read, and writes the text of a rule file. A key that could be a rule and is
none is an error.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import javaproperties

from pdp.config.quarkus.expressions import EnvironmentNames, environment_entries, expand, spelling
from pdp.config.quarkus.profiles import ConfigSource, active_config
from pdp.config.quarkus.properties import ConfigEntry
from pdp.errors import Notice
from pdp.model.vocabulary import NESSIE_CHECKS

AUTHORIZATION: Final = "nessie.server.authorization."
"""The beginning of the keys of Nessie's authorization."""
PREFIX: Final = f"{AUTHORIZATION}rules."
DEFAULT_BRANCH: Final = "nessie.server.default-branch"
"""The beginning of the key of a rule."""
_SPACES: Final = ("nessie", "quarkus", "smallrye", "mp", "kubernetes", "java")
"""First parts of the keys that a file of Nessie has for other purposes."""
_LOOKS_LIKE_RULE: Final = re.compile(r"(?:^|[.\"])rules?\.|authori[sz]ation", re.IGNORECASE)
PROFILE_KEYS: Final = frozenset({"quarkus.profile", "smallrye.config.profile", "mp.config.profile"})
"""Keys that choose profiles. Which of two different ones counts, releases of Quarkus decide differently."""
SWITCHES: Final = frozenset({
    "quarkus_profile", "smallrye_config_profile", "mp_config_profile", "quarkus_config_locations",
    "smallrye_config_locations",
})  # fmt: skip
"""Variables that choose other keys."""
CHOICES: Final = SWITCHES | {
    "quarkus_config_profile_parent", "smallrye_config_profile_parent", "mp_config_property_expressions_enabled",
}  # fmt: skip
"""Switches, and keys about parents of profiles and about expressions."""
_CHOICE: Final = re.compile(
    r"(?:%(?P<profiles>\w+?)_)?(?:(?:quarkus|smallrye_config|mp_config)_profile|(?P<parent>(?:quarkus|smallrye)_config_profile_parent))"
)
_SOURCES: Final = re.compile(
    r"smallrye_config_source_|quarkus_(?:kubernetes|consul|spring_cloud|azure_app)_config|quarkus_vault_secret_config"
)
_OF_EXPRESSIONS: Final = re.compile(r"(?:%\w+?_)?mp_config_property_expressions_enabled")
_ELSEWHERE: Final = frozenset({
    "quarkus.config.locations", "smallrye.config.locations", "quarkus.config.profile.parent",
    "smallrye.config.profile.parent",
})  # fmt: skip

OWN_NAME: Final = re.compile(r"^(?:[%_][^.]*?[._])?(?:nessie|quarkus|smallrye)[^a-z0-9]", re.IGNORECASE)
"""Name of a variable that Nessie reads, in capitals or with dots."""
_OWN_TEXT: Final = re.compile(r"^\s*(?:%[\w-]+\.)?\"?(?:nessie|quarkus|smallrye)\b", re.MULTILINE)
"""Text of a configuration file of Nessie."""
LOOKS_LIKE_RULES: Final = re.compile(
    rf"authori[sz]ation[^a-z0-9]+rules?(?![a-z])|nessie\W{{0,2}}.?server.?\W{{0,2}}authori[sz]ation"
    rf"|\b(?:{'|'.join(sorted(NESSIE_CHECKS))})\b",
    re.IGNORECASE | re.DOTALL,
)
"""Text about authorization."""
_OWN_OPTION: Final = re.compile(
    r"(?:^|[\s\0'\"])-D[\"']?(?:%|nessie\.|smallrye\.|mp\.config|quarkus\.(?:profile|config)|config_ordinal)"
    r"|\b(?:QUARKUS|SMALLRYE_CONFIG|MP_CONFIG)_PROFILE|^MP_CONFIG|^CONFIG_ORDINAL$|^mp\.config"
)
"""Option of Java, or variable, that chooses keys."""
NAMES_FILE: Final = re.compile(r"/deployments/config|(?:^|[\s\0/'\"])application[\w-]*\.(?:properties|ya?ml)")
"""Command with the name of a configuration file."""
_WITHOUT_CHOICE: Final = re.compile(r"(?:%[^.]*\.)?quarkus\.(?!profile)(?!.*config).*")


def chooses_keys(name: str) -> bool:
    """Tell whether a property can decide which rules are in force: not so for most of Quarkus itself."""
    own = OWN_NAME.search(name) or name == "config_ordinal" or name.startswith("mp.config.")
    return bool(own) and not _WITHOUT_CHOICE.fullmatch(name)


def chooses_profile(entry: ConfigEntry) -> bool:
    """Tell whether an entry chooses a profile, also within another profile."""
    match = _CHOICE.fullmatch(spelling(entry.key))
    return bool(match and not match["parent"])


def names_parent(entry: ConfigEntry, profiles: Sequence[str]) -> bool:
    """Tell whether an entry may give one of some profiles a parent profile."""
    match = _CHOICE.fullmatch(spelling(entry.key))
    if match is None or not match["parent"]:
        return False
    return not match["profiles"] or any(spelling(profile) in match["profiles"] for profile in profiles)


def names_source(entry: ConfigEntry) -> bool:
    """Tell whether an entry names a further source of configuration."""
    return bool(_SOURCES.search(spelling(entry.key))) and entry.text.strip().lower() not in ("", "false")


def is_of_nessie(entry: ConfigEntry) -> bool:
    """Tell whether a variable or a command is about Nessie."""
    return re.sub(r"^%[^_]*_", "", spelling(entry.key)).startswith("nessie_") or "-Dnessie." in entry.text


def may_end_expressions(entry: ConfigEntry) -> bool:
    """Tell whether an entry may turn property expressions off: a dollar is plain text then."""
    return bool(_OF_EXPRESSIONS.fullmatch(spelling(entry.key))) and not _is_yes(entry.text)


def _is_yes(text: str) -> bool:
    return text.strip().lower() in ("true", "1", "yes", "y", "on")


def looks_like_settings(entry: ConfigEntry) -> bool:
    """Tell whether the key or the text of an entry is about Nessie or Quarkus."""
    patterns = (LOOKS_LIKE_RULES, _OWN_TEXT, OWN_NAME, _OWN_OPTION)
    return spelling(entry.key) in SWITCHES or any(one.search(text) for one in patterns for text in entry[:2])


@dataclass
class NessieConfig:
    """Parts of a Nessie configuration, and notices about the rest.

    `disabled`: the entry that turns authorization off. `profile`: the entry that chooses a profile. `elsewhere`:
    entries that name further files or profiles. `branches`: entries with the name of the default branch, one in force.
    """

    rules: list[tuple[str, ConfigEntry]] = field(default_factory=list)
    disabled: ConfigEntry | None = None
    profile: ConfigEntry | None = None
    elsewhere: list[ConfigEntry] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    inactive: list[tuple[str, ConfigEntry]] = field(default_factory=list)
    branches: list[ConfigEntry] = field(default_factory=list)


def read_nessie(
    sources: Sequence[ConfigSource], profiles: Sequence[str], variables: EnvironmentNames | None = None
) -> NessieConfig:
    """Return the rules and switches that are in force under some profiles.

    Without `variables`, an expression that a variable of this process would change is an error.
    """
    active = active_config(sources, profiles, variables)
    lookup = partial(_from_entries, active.entries, variables) if variables else _own_lookup(active.entries)
    config = NessieConfig()
    others: dict[str, list[ConfigEntry]] = {}
    replaced = [pair for pair in active.duplicates if pair[0].startswith(AUTHORIZATION)]
    for name, entry in (*replaced, *active.entries.items()):
        if name.startswith(AUTHORIZATION):
            _read_authorization(config, name, expand(entry, lookup))
        elif name in PROFILE_KEYS:
            if config.profile is None or entry.text != ",".join(profiles):
                config.profile = entry
        elif name in _ELSEWHERE:
            config.elsewhere.append(entry)
        else:
            others.setdefault(_space(name, entry), []).append(entry)
    named = [*active.duplicates, *active.entries.items()]
    config.branches = [entry for name, entry in named if name == DEFAULT_BRANCH]
    config.inactive = [(name, entry) for name, entry in active.inactive if _is_rule(name, entry)]
    config.notices += _notices(others, config.inactive, profiles)
    return config


def _read_authorization(config: NessieConfig, name: str, entry: ConfigEntry) -> None:
    key = name.removeprefix(AUTHORIZATION)
    if name.endswith("[]"):
        raise entry.error(f"`{name.removesuffix('[]')}` is a list: a rule is one text")
    if name.startswith(PREFIX):
        config.rules.append((_rule_id(entry, name.removeprefix(PREFIX)), entry))
    elif key == "enabled":
        config.disabled = None if _is_true(entry) else entry
    elif key == "type":
        if entry.text.strip() != "CEL":
            raise entry.error(f"`{name}` is `{entry.text}`: only the type `CEL` has rules that pdp reads")
    else:
        raise entry.error(f"unknown key `{name}`: rules are `{PREFIX}<id>`, and `enabled` and `type` are known beside")


def _rule_id(entry: ConfigEntry, id: str) -> str:
    bare = id[1:-1] if len(id) > 1 and id[0] == id[-1] == '"' else id
    if not bare:
        raise entry.error("a rule without an id")
    return bare


def _is_true(entry: ConfigEntry) -> bool:
    if _is_yes(entry.text):
        return True
    if entry.text.strip().lower() in ("false", "0", "no", "n", "off"):
        return False
    raise entry.error(f"`{entry.key}` is `{entry.text}`, neither true nor false")


def _is_rule(name: str, entry: ConfigEntry) -> bool:
    """Tell whether an entry of another profile is about authorization; refuse a misspelt key in every profile."""
    return name.startswith(AUTHORIZATION) or not _space(name, entry)


def _space(name: str, entry: ConfigEntry) -> str:
    """Return the name space of a key that is no rule; raise PolicyError for a key that looks like a rule."""
    first = name.partition(".")[0]
    foreign = first in _SPACES and first != "nessie"
    if not foreign and _LOOKS_LIKE_RULE.search(name):
        raise entry.error(_misspelt(name))
    return first if first in _SPACES else name


def _misspelt(name: str) -> str:
    if '"' in name and AUTHORIZATION.rstrip(".") in name.replace('"', ""):
        return (
            f"`{name}` is no rule: Quarkus reads a YAML key with dots as one name; nest `nessie:`, `server:` and so on"
        )
    return f"`{name}` is no rule and looks like one: write `{PREFIX}<id>`"


def _notices(
    others: Mapping[str, Sequence[ConfigEntry]], inactive: Sequence[tuple[str, ConfigEntry]], profiles: Sequence[str]
) -> Iterator[Notice]:
    """Yield one notice for each name space, and one for the rules of other profiles."""
    for space, entries in others.items():
        if space in _SPACES:
            keys = "key" if len(entries) == 1 else "keys"
            yield Notice(entries[0].key_place, f"ignored {len(entries)} {keys} of `{space}`, which hold no rules")
        else:
            yield Notice(entries[0].key_place, f"ignored key `{space}`")
    if inactive:
        named = Counter(entry.key.partition(".")[0] for _, entry in inactive)
        counts = ", ".join(f"{count} of `{profile}`" for profile, count in named.items())
        message = f"not in force under the profile `{','.join(profiles)}`: {counts}"
        yield Notice(inactive[0][1].key_place, message)


def _from_entries(entries: Mapping[str, ConfigEntry], variables: EnvironmentNames, name: str) -> ConfigEntry | None:
    return entries.get(name) or variables.find(name)


def _own_lookup(entries: Mapping[str, ConfigEntry]) -> Callable[[str], ConfigEntry | None]:
    """Return a lookup in the entries of a file.

    The lookup refuses names that have another value in the environment of this process: Quarkus would take that value.
    """
    environment = EnvironmentNames(environment_entries(os.environ))

    def lookup(name: str) -> ConfigEntry | None:
        found, variable = entries.get(name), environment.find(name)
        if variable and (found is None or found.text != variable.text):
            raise (found or next(iter(entries.values()))).error(
                f"`${{{name}}}` would have the value of the environment variable `{variable.key}` in Quarkus: "
                "write the value into the file, or unset the variable"
            )
        return found

    return lookup


def rule_lines(rules: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a properties file with rules by id, without line ends."""
    for id, text in rules.items():
        value = text.replace("$", "\\$")  # a plain `$` begins an expression of Quarkus
        yield javaproperties.join_key_value(f"{PREFIX}{_quoted(id)}", value, ensure_ascii=False)


def _quoted(id: str) -> str:
    """Return an id as the last part of a key: in quotes where a reader would take quotes away or see a list."""
    has_quotes = len(id) > 1 and id[0] == id[-1] == '"'
    return f'"{id}"' if has_quotes or id.endswith("[]") else id
