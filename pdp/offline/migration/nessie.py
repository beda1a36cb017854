"""Migration of Nessie's authorization: rules from files and variables, as one rule file with policy tests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pdp.config.quarkus.expressions import ENVIRONMENT_ORDINAL, EnvironmentNames, depending, is_unfinished, spelling
from pdp.config.quarkus.profiles import FILE_PROFILE, ORDINALS, PROD, ConfigFile, ConfigSource, file_sources, ordinal_of
from pdp.config.quarkus.properties import ConfigEntry
from pdp.config.quarkus.yaml_text import YamlText, pairs_of
from pdp.engines.cel.nessie_keys import (
    AUTHORIZATION,
    PREFIX,
    NessieConfig,
    chooses_profile,
    is_of_nessie,
    may_end_expressions,
    names_parent,
    read_nessie,
)
from pdp.engines.cel.sources import PROFILE_VARIABLE, read_entries
from pdp.errors import InvalidArgument, PolicyError
from pdp.offline.migration.manifests import is_host_file
from pdp.offline.migration.nessie_rules import (
    default_branch,
    keep_branches_closed,
    new_migration,
    settled_rules,
    usable_rules,
    write_rules,
)
from pdp.offline.migration.nessie_server import (
    CONFIG,
    IMAGE,
    READ_THERE,
    NessieServer,
    is_of_settings,
    is_read_beside,
    read_server,
    report_sources,
)
from pdp.offline.migration.report import (
    COPIED_OVER,
    Migration,
    Status,
    covering_paths,
    hiding_paths,
    missing_references,
    mounted_paths,
    shut_text,
)
from pdp.offline.migration.variables import (
    OF_OTHERS,
    SEVERAL,
    Container,
    check_unique,
    has_entry,
    is_part,
    read_text,
    references_to,
    servers_by_image,
    variables_by_container,
)

_OWN: Final = ("nessie.", "quarkus.", "smallrye.", "mp.")


def migrate_nessie(
    files: Sequence[Path], env_files: Sequence[Path] = (), profiles: Sequence[str] = (), warehouse: str = "nessie",
    *, accepted: Collection[str] = (),
) -> Migration:  # fmt: skip
    """Return the migration of files and of the variables in env files or manifests.

    `profiles` default to the variable QUARKUS_PROFILE, then to `prod`. `accepted` has names of widenings. Raise
    PolicyError if a file cannot be read, InvalidArgument for an unknown widening.
    """
    migration = new_migration(accepted)
    manifests = [file for file in files if is_manifest(file)]
    plain = [file for file in (*files, *env_files) if file not in manifests and (file in files or is_quarkus(file))]
    read = read_server([*manifests, *(file for file in env_files if file not in plain)], plain, migration)
    placed = [one for file in plain for one in _config_files(file, read, migration)]
    config_files = _of_one_server([*placed, *read.files], read, migration)
    _doubt_hidden(config_files, [*files, *env_files], read, migration)
    given, profiles = profiles, profiles or _profiles_of(read, config_files, migration)
    _doubt_parents(read, config_files, profiles)
    sources = _certain(migration, [*_sources(config_files, profiles, migration), *read.sources], read)
    names = _names_of(read, migration)
    config = read_nessie(sources, profiles, names)
    read.is_closed |= _report_switches(migration, config, profiles, is_given=bool(given))
    _report_siblings(migration, plain, {*files, *env_files}, profiles, read)
    report_sources(migration, sources, read)
    read.report_inactive(profiles, migration)
    rules = list(usable_rules(migration, list(settled_rules(migration, config, read))))
    branch = default_branch(migration, config, read, names)
    if not rules and not migration.left:
        raise InvalidArgument("no rules found: rules are `nessie.server.authorization.rules.<id>`")
    keep_branches_closed(migration, rules)
    write_rules(migration, rules, warehouse, branch)
    return migration


_OF_QUARKUS: Final = re.compile(r"%|nessie\.|quarkus")
_EXTRA: Final = re.compile(r"extra(?:Env|Volume|InitContainer)")


def is_manifest(file: Path) -> bool:
    """Tell whether a file is a manifest or holds values of a chart, and is no configuration of Quarkus."""
    if file.suffix == ".json" or is_host_file(file) or file.stem.lower() == "kustomization":
        return True
    if file.suffix not in ORDINALS or file.suffix == ".properties":
        return False
    roots = _documents(file)
    is_own = file.name.startswith("application") or any(
        _has_quarkus(root) or "rules" in pairs_of(root) for root in roots
    )
    return any(map(_has_manifest, roots)) or not is_own


def is_quarkus(file: Path) -> bool:
    """Tell whether a file among the env files is a configuration of Quarkus in YAML."""
    is_yaml = file.suffix in ORDINALS and file.suffix != ".properties"
    return is_yaml and not is_manifest(file) and any(map(_has_quarkus, _documents(file)))


def _documents(file: Path) -> Sequence[Any]:
    return YamlText(read_text(file), str(file)).documents


def _has_manifest(root: Any) -> bool:
    keys = pairs_of(root)
    if {"apiVersion", "kind", "services", "include", "advancedConfig"} & keys.keys() or any(map(_EXTRA.match, keys)):
        return True
    charts = [keys, *(below for value in keys.values() if "server" not in (below := pairs_of(value)))]
    return any({"rules", "enabled"} & pairs_of(chart.get("authorization")).keys() for chart in charts)


def _has_quarkus(root: Any) -> bool:
    keys = pairs_of(root)
    return "server" in pairs_of(keys.get("nessie")) or any(map(_OF_QUARKUS.match, keys))


def _profiles_of(read: NessieServer, files: Sequence[ConfigFile], migration: Migration) -> Sequence[str]:
    """Return the profiles of the server. Those of other containers do not count.

    If several servers differ, no profile is known, and every key of a profile may replace a rule.
    """
    properties = [entry for source in read.sources for entry in source.entries if entry.key == "quarkus.profile"]
    variables = [entry for entry in read.variables if entry.key == PROFILE_VARIABLE]
    containers = variables_by_container(read.contents)
    for found in (containers or {(): variables}).values():
        check_unique([one for one in found if one.key == PROFILE_VARIABLE])
    own = servers_by_image(read.contents, IMAGE) | {
        container for container, entries in containers.items() if any(map(is_of_nessie, entries))
    }  # fmt: skip
    chosen: dict[Container, set[str]] = {container: set() for container in own or containers or [()]}
    for entry in (*properties, *variables):
        holders = {name for name, found in containers.items() if any(has_entry(one, entry) for one in found)}
        if holders and not holders & chosen.keys():
            migration.add("left", entry.key_place, f"`{entry.key}`", OF_OTHERS)
        for container in holders & chosen.keys() if holders else chosen:
            if entry.key != PROFILE_VARIABLE or not chosen[container] & {one.text for one in properties}:
                chosen[container].add(entry.text)
    texts = {text for found in chosen.values() for text in found or {""}}
    unclear = [entry for entry in (*properties, *variables) if not _NAMED.fullmatch(entry.text)]
    asks = [entry for entry in _known(read, files)
            if chooses_profile(entry) and entry.text != (min(texts) or PROD[0])
            and entry not in (*properties, *variables)]  # fmt: skip
    if len(texts) == 1 and not (asks or unclear or any(map(chooses_profile, _without_text(read)))):
        return tuple((texts.pop() or PROD[0]).split(","))
    for entry in (*properties, *variables) if len(texts) > 1 or unclear else ():
        migration.add("left", entry.key_place, f"`{entry.key}`", _UNCLEAR if entry in unclear else _PROFILES)
    _doubt_profiles(read, files)
    return PROD


def _known(read: NessieServer, files: Sequence[ConfigFile]) -> Sequence[ConfigEntry]:
    held = [*(one.entries for one in read.sources), *(one.entries for one in files), read.variables]
    return [entry for entries in held for entry in entries]


def _without_text(read: NessieServer) -> Sequence[ConfigEntry]:
    return [*read.doubtful, *(entry for one in read.contents for entry in one.elsewhere)]


def _doubt_parents(read: NessieServer, files: Sequence[ConfigFile], profiles: Sequence[str]) -> None:
    """Doubt all rules of profiles if one may have a parent that is not among the profiles before the last."""
    for entry in (*_known(read, files), *_without_text(read)):
        if names_parent(entry, profiles) and entry.text not in profiles[:-1]:
            _doubt_profiles(read, files)


def _doubt_profiles(read: NessieServer, files: Sequence[ConfigFile]) -> None:
    """Note that each key of a profile may be in force, and may replace others."""
    entries = [*read.variables, *(entry for source in read.sources for entry in source.entries)]
    of_profiles = [entry for entry in entries if spelling(entry.key).startswith("%")]
    of_profiles += [entry for file in files for entry in file.entries
                    if entry.key.startswith("%") or FILE_PROFILE.fullmatch(file.name)]  # fmt: skip
    read.unread += [f"{entry.key}={entry.text}" for entry in of_profiles]
    read.setters += [entry.key for entry in of_profiles]


_NAMED: Final = re.compile(r"[^\s,]+(?:,[^\s,]+)*")
_UNCLEAR: Final = (
    "has an empty name or a blank, which releases of Quarkus read otherwise: write the profile, or remove it"
)
_PROFILES: Final = "is the profile of one server of several: give `--profile`, or migrate each server alone"


def _certain(migration: Migration, sources: Sequence[ConfigSource], read: NessieServer) -> Sequence[ConfigSource]:
    """Return sources whose rules have a certain text; do the same for variables. Other rules become `false`."""
    entries = [*read.variables, *(entry for source in sources for entry in source.entries)]
    doubtful = {id(entry) for entry in depending(entries, read.setters)}
    is_filled = any(one.is_filled for one in read.contents)
    if is_filled or any(map(may_end_expressions, (*entries, *_without_text(read)))):
        doubtful |= {id(entry) for entry in entries if "$" in entry.text}

    def certain(entry: ConfigEntry) -> ConfigEntry:
        if id(entry) not in doubtful or spelling(AUTHORIZATION) not in f"{spelling(entry.key)}_":
            return entry
        migration.add("left", entry.place(), f"key `{entry.key}`", _EXPRESSION)
        return entry._replace(text=shut_text(entry.text)) if "rules" in spelling(entry.key) else entry

    read.variables = list(map(certain, read.variables))
    return [ConfigSource(source.ordinal, list(map(certain, source.entries))) for source in sources]


_EXPRESSION: Final = (
    "has an expression with a value that may come of Java, a secret, another container, a profile or a template, "
    "or that is turned off: write the value itself"
)


def _names_of(read: NessieServer, migration: Migration) -> EnvironmentNames:
    """Return the variables by name. A rule of an uncertain name becomes `false`, and replaces what it may spell."""
    entries = []
    for entry in read.variables:
        is_rule = spelling(PREFIX) in f"{spelling(entry.key)}_"
        if is_rule and is_unfinished(entry.key):
            migration.add("left", entry.key_place, f"variable `{entry.key}`", _UNFINISHED)
            entry = entry._replace(text=shut_text(entry.text))  # noqa: PLW2901
        if entry.key != PROFILE_VARIABLE:
            entries.append(entry)
    ranks = sorted((entry for entry in entries if entry.key.lower() == "config_ordinal"), key=lambda one: one.key)
    check_unique(ranks)
    ordinal = ordinal_of((entry._replace(key="config_ordinal") for entry in ranks), ENVIRONMENT_ORDINAL)
    return EnvironmentNames(entries, ordinal, _OWN)


_UNFINISHED: Final = (
    "Quarkus opens quotes at `__` and closes them at the next one, and its releases differ in names that end before: "
    'write `..._RULES_A`, or `..._RULES__A_B__` for `rules."a.b"`'
)


def _config_files(file: Path, read: NessieServer, migration: Migration) -> Iterator[ConfigFile]:
    """Yield a given file under the name that the server has it under; report a file that is mounted elsewhere only.

    A file that no manifest mounts or copies stands where it is.
    """
    found = _config_file(file)
    places = [(path, container) for path, container in mounted_paths(file, read.contents) if path]
    if not places and any(one.is_copy for one in references_to(file, read.contents)):
        migration.add("ignored", file, "the file", COPIED_OVER)
        return
    if not places:
        yield found
        return
    servers = servers_by_image(read.contents, IMAGE)
    own = {
        path for path, name in places if path.parent == CONFIG and (not servers or not name or is_part(name, servers))
    }
    if not own or not all(READ_THERE.fullmatch(path.name) and path.suffix == file.suffix for path in own):
        migration.add("left", file, "the file", "is mounted or copied to where Nessie does not read it by itself")
        read.unread += [f"{entry.key}={entry.text}" for entry in found.entries]
        read.setters += [entry.key for entry in found.entries]
        return
    for path in sorted(own):
        yield found._replace(folder=str(CONFIG), name=path.name)


def _of_one_server(files: Sequence[ConfigFile], read: NessieServer, migration: Migration) -> Sequence[ConfigFile]:
    """Return the files, without those of several servers under one path, which are reported."""
    counts = Counter(file[1:3] for file in files if file.folder == str(CONFIG))
    several = [file for file in files if counts[file[1:3]] > 1]
    for file in several:
        migration.add("left", file.place, "the file", SEVERAL)
        read.unread += [f"{entry.key}={entry.text}" for entry in file.entries]
    return [file for file in files if file not in several]


def _doubt_hidden(files: Sequence[ConfigFile], given: Sequence[Path], read: NessieServer, to: Migration) -> None:
    """Report the files that another part replaces or changes in the container: the rules become `false`."""
    servers = servers_by_image(read.contents, IMAGE)
    missing = [one for one in missing_references(read.contents, given) if not one.is_ignored]
    copies = [_covered(path) for path, _ in hiding_paths([], [one for one in missing if one.is_copy])]
    read.is_closed |= any(map(is_of_settings, copies))
    paths = hiding_paths(read.contents, missing)
    hidden = [_covered(path) for path, name in paths if not name or not servers or is_part(name, servers)]
    places = [str(path) for file in given for path, _ in mounted_paths(file, read.contents)]
    hidden += [one for one in map(_covered, places) if CONFIG.is_relative_to(one)]
    read.is_closed |= any(one.values for one in read.contents) and any(map(is_of_settings, hidden))
    named = {file: references_to(file, read.contents) for file in given}
    copied = {str(file) for file, found in named.items() if found and all(one.is_copy for one in found)}
    for file in files:
        place = PurePosixPath(file.folder, file.name)
        over = [*hidden, *(covering_paths(read.contents) if file.place in copied else ())]
        is_over = any(place.is_relative_to(path) or PurePosixPath(path).is_relative_to(place) for path in over)
        if file.folder == str(CONFIG) and (is_over or any(map(is_read_beside, hidden))):
            to.add("left", file.place, "the file", _HIDDEN)
            read.unread += [f"{entry.key}={entry.text}" for entry in file.entries]


def _covered(path: str) -> str:
    """Return the path with changed files: the root for a folder, or a file of settings, in an unknown place."""
    place = PurePosixPath(path)
    may_be_there = READ_THERE.fullmatch(place.name) or place.suffix in ("", ".d")
    return "/" if may_be_there and not path.startswith(("/", "?")) else path


_HIDDEN: Final = "is replaced or changed in the container by another part: give the file that is there, and no other"


def _config_file(file: Path) -> ConfigFile:
    entries, own = read_entries(file)
    if own:
        raise PolicyError(_OWN_RULES, own[0].place())
    return ConfigFile(str(file), str(file.resolve().parent), file.name, entries)


def _sources(files: Sequence[ConfigFile], profiles: Sequence[str], migration: Migration) -> Sequence[ConfigSource]:
    """Return the sources of files. Report those of other profiles, and those that Quarkus may not read.

    The rules of the latter become `false`, and replace rules of other sources: which text is in force is not known.
    """
    found = file_sources(files, profiles)
    for file in found.inactive:
        profile = file.name.rpartition(".")[0].partition("-")[2]
        message = f"holds the keys of the profile `{profile}`, which is not active"
        migration.add("ignored", file.place, "the file", message)
    for file in found.orphans:
        main = re.sub(r"-.+(?=\.)", "", file.name) if file.name.startswith("app") else "microprofile-config.properties"
        message = (
            f"Quarkus reads it only beside `{main}` in the same folder: give that file, too, or leave this one out"
        )
        migration.add("left", file.place, "the file", message)
    rules = [entry for file in found.orphans for entry in file.entries if PREFIX in entry.key]
    return [*found.sources, ConfigSource(_ABOVE_ALL, [one._replace(text=shut_text(one.text)) for one in rules])]


_ABOVE_ALL: Final = 10**10
_OWN_RULES: Final = "the mapping `rules:` is a rule file of pdp already: give it to `policies.rules` as it is"


def _report_switches(migration: Migration, config: NessieConfig, profiles: Sequence[str], *, is_given: bool) -> bool:
    """Report the keys that switch authorization off, choose profiles, or name further files; tell whether one does."""
    if config.disabled:
        message = (
            "is false: Nessie asks no rule and allows everything; pdp enforces the migrated rules; "
            "to allow everything, keep the single rule `everything: 'true'`"
        )
        migration.add("left", config.disabled.key_place, f"key `{config.disabled.key}`", message)
    if config.profile and config.profile.text != ",".join(profiles):
        told = "counts, because it was given" if is_given else "is in force: give `--profile`"
        message = f"asks for `{config.profile.text}`, and `{','.join(profiles)}` {told}"
        migration.add("note" if is_given else "left", config.profile.key_place, f"key `{config.profile.key}`", message)
    for entry in config.elsewhere:
        message = f"names `{entry.text}`: give these files to this command, too, and leave the key out"
        status: Status = "left"
        if names_parent(entry, profiles) and entry.text in profiles[:-1]:
            status, message = "note", f"names the parent `{entry.text}`, which counts below `{profiles[-1]}`"
        elif names_parent(entry, profiles):
            message = f"names a parent: give `--profile {entry.text},{','.join(profiles)}`"
        migration.add(status, entry.key_place, f"key `{entry.key}`", message)
    for notice in config.notices:
        migration.add("ignored", notice.place, "other keys", notice.message)
    return any(not names_parent(entry, profiles) for entry in config.elsewhere)


def _report_siblings(
    migration: Migration, plain: Sequence[Path], files: Collection[Path], profiles: Sequence[str], read: NessieServer
) -> None:
    """Report files beside the given ones that Quarkus reads as well: each may replace every rule."""
    given = {file.resolve() for file in files}
    names = [f"application{part}{suffix}" for part in ("", *(f"-{one}" for one in profiles)) for suffix in ORDINALS]
    there = [file for file in plain if file.name.startswith("application")]
    folders = {file.resolve().parent for file in there if not any(mounted_paths(file, read.contents))}
    for folder in sorted(folders):
        for name in (*names, *(f"config/{name}" for name in names), ".env"):
            sibling = folder / name
            if sibling.exists() and sibling not in given:
                message = "is read by Quarkus as well, and was not given: give it, too"
                migration.add("left", sibling, "the file", message)
                read.is_closed = True
