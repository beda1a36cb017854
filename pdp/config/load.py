"""Loading of settings: `pdp.yaml`, then the environment, then `--set`. A later source replaces earlier values.

Secrets may stand in files of their own. An unknown key is an error: a misspelt key must not open anything.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from pdp.config.origins import Key, Origins, every_key, key_text, known_keys, spelt_key, suggest
from pdp.config.policies import FORMS
from pdp.config.references import misspelt_names, unknown_names
from pdp.config.section import is_loopback, split_address
from pdp.config.settings import ANY_NAME, Settings, secret_keys, secret_of
from pdp.errors import ConfigError
from pdp.model import strict

ENV_PREFIX: Final = "PDP__"
_NAME: Final = re.compile(r"[\w.-]*")
"""Beginning of an option, without a secret."""
_IPV6: Final = re.compile(r"(?::[ ]+|^)\[[0-9a-fA-F:.]*\]:[0-9]+")


def load_settings(
    file: Path | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Return the settings of a file, changed by the environment and then by `section.key=value` overrides.

    Raise ConfigError with the name of the key if a value cannot be used, or names what no other key knows.
    """
    text = _read(file) if file else ""
    origins = Origins(file, text)
    data = _sections(text, file) if file else {}
    _refuse_misspelt(environ)
    given: dict[tuple[str, ...], str] = {}
    for variable in sorted(environ):
        if variable.startswith(ENV_PREFIX):
            names = _in_file_spelling(variable, data)
            if (other := given.setdefault(tuple(names), variable)) != variable:
                raise ConfigError(f"`{other}` and `{variable}` both set `{key_text(names)}`: leave one out")
            _set(data, names, environ[variable], (variable, origins))
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(f"`--set {_NAME.match(override)[0]}` is not `section.key=value`")  # type: ignore[index]
        _set(data, key.split("."), value, (f"--set {key}", origins))
    _refuse_empty_key(data, origins)
    settings = make_settings(data, file.resolve().parent if file else Path.cwd(), origins)
    if unknown := [(key, f"`{key_text(key)}`: {message}") for key, message in unknown_names(settings) if message]:
        raise origins.errors(unknown)
    return settings


UNSUPPORTED: Final[Mapping[str, Any]] = {"row_access.strict_dialects": True}
"""Keys of the public contract that this version supports only at their default. Any other value is an error, because an
ignored setting could leave access open."""


def make_settings(data: Mapping[str, Any], base: Path, origins: Origins | None = None) -> Settings:
    """Return the settings of merged data; raise ConfigError. Relative paths start at the folder `base`.

    `origins` tells errors the source of each value.
    """
    origins = origins or Origins()
    try:
        settings = Settings.model_validate(with_secrets(_without_unsupported(data, origins), base, origins))
    except ValidationError as error:
        raise origins.errors(map(_explain, error.errors())) from None
    if misspelt := [(key, f"`{key_text(key)}`: {message}") for key, message in misspelt_names(settings)]:
        raise origins.errors(misspelt)
    _check_addresses(settings, origins)
    _check_cache(settings, origins)
    settings._base, settings._origins = base, origins  # noqa: SLF001  pydantic keeps private attributes out of its constructor
    return settings


def _check_addresses(settings: Settings, origins: Origins) -> None:
    """Raise ConfigError if other machines could connect while the peer's loopback address identifies a caller."""
    server, callers = settings.server, settings.identity.callers
    by_loopback = [name for name, rule in callers.items() if rule.loopback]
    for key, address in (("http", server.http), ("grpc", server.grpc)):
        if is_loopback(split_address(address)[0]) or (callers and not by_loopback):
            continue
        why = f"`identity.callers.{by_loopback[0]}` is" if by_loopback else "without `identity.callers` callers are"
        message = f"`server.{key}`: `{address}` is not a loopback address, and {why} known by loopback alone"
        raise origins.error(("server", key), message)
    for name, rule in callers.items():
        if rule.mtls and not server.tls.client_ca:
            message = f"`identity.callers.{name}.mtls` needs `server.tls.client_ca`: nobody signs the clients"
            raise origins.error(("identity", "callers", name, "mtls"), message)


def _check_cache(settings: Settings, origins: Origins) -> None:
    """Raise ConfigError if anybody who can write to a Redis elsewhere could permit."""
    cache = settings.cache
    if cache.redis is not None and cache.mac_key is None and not cache.is_on_this_machine():
        message = "`cache.redis` is not on this machine, and `cache.mac_key` is not set: who writes there could permit"
        raise origins.error(("cache", "redis"), message)


def _without_unsupported(data: Mapping[str, Any], origins: Origins) -> dict[str, Any]:
    """Return the data without unsupported keys; raise ConfigError if such a key is not at its default."""
    supported = {key: dict(value) if isinstance(value, Mapping) else value for key, value in data.items()}
    for key, default in UNSUPPORTED.items():
        section, _, name = key.partition(".")
        place = supported.get(section) if name else supported
        if not isinstance(place, dict) or (name or section) not in place:
            continue
        value = place.pop(name or section)
        whole = {**default, **value} if isinstance(default, dict) and isinstance(value, Mapping) else value
        if whole != default:
            message = f"`{key}` is not supported by this version: leave it out, or at its default {default!r}"
            raise origins.error(tuple(key.split(".")), message)
    return supported


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read `{file}`: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"`{file}` is not YAML: it is not UTF-8") from None


def _sections(text: str, file: Path) -> dict[str, Any]:
    """Return the sections of a file; raise ConfigError."""
    try:
        data = strict.load_yaml(text, plain=True)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else str(file)
        line = "".join(text.splitlines()[mark.line : mark.line + 1]) if mark else ""
        hint = ": an address that begins with `[` needs quotes" if _IPV6.search(line) else ""
        what = "" if isinstance(error, strict.NumberSpellingError) else "not YAML: "
        raise ConfigError(f"{place}: {what}{yaml_problem(error, text)}{hint}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"`{file}` is not YAML: {yaml_problem(error, text)}") from None
    if data is None:
        raise ConfigError(f"`{file}` has no content: write `{{}}` for the defaults")  # they open much to loopback
    if not isinstance(data, dict):
        raise ConfigError(f"`{file}` must hold sections, such as `server:`")
    return data


def _section(data: dict[str, Any], names: Sequence[str], source: str) -> dict[str, Any]:
    """Return the section with some names, made where it is missing. `source` names the variable or option in errors."""
    section = data
    for name in names:
        below = section.setdefault(name, {})
        if not isinstance(below, dict):
            raise ConfigError(f"{source} goes below `{name}`, which is a value")
        section = below
    return section


def _lost_keys(section: Any, value: Any) -> Iterator[tuple[str, ...]]:
    """Yield the keys of a section without a new value, at all depths. A list is one value."""
    kept = value if isinstance(value, dict) else {}
    for key, below in section.items() if isinstance(section, dict) else ():
        lost = _lost_keys(below, kept[key]) if key in kept else iter([()])
        yield from ((str(key), *rest) for rest in lost)


def _in_file_spelling(variable: str, data: Mapping[str, Any]) -> list[str]:
    """Return the keys of a variable in the spelling of the file; a key that the file lacks is in lower case.

    Raise ConfigError if the variable may mean several keys of the file, or a key beyond the signs of variables.
    """
    keys: list[str] = []
    section: Any = data
    for name in variable.removeprefix(ENV_PREFIX).split("__"):
        section = section if isinstance(section, Mapping) else {}
        alike = [str(key) for key in section if _in_capitals(str(key)) == _in_capitals(name)]
        if len(alike) > 1:
            texts = " and ".join(f"`{key_text((*keys, key))}`" for key in alike)
            raise ConfigError(
                f"`{variable}` may mean {texts}, which are one name in variables: write the value in the file, or by "
                "`--set`"
            )
        new = alike[0] if alike else name.lower()
        if near := [str(key) for key in section if not alike and _folded(str(key)) == _folded(name)]:
            raise ConfigError(
                f"`{variable}` would set `{key_text((*keys, new))}` beside `{key_text((*keys, near[0]))}`: `_` stands "
                "for `-` in variables, and for no other sign, so write the value in the file"
            )
        keys.append(new)
        section = section.get(keys[-1])
    return keys


def _in_capitals(key: str) -> str:
    """Return a key as variables spell it."""
    return key.upper().replace("-", "_")


def _folded(key: str) -> str:
    """Return a key as people may spell the key in a variable: with `_` for all but letters and digits."""
    return re.sub(r"[\W_]+", "_", key.casefold())


def _refuse_misspelt(environ: Mapping[str, str]) -> None:
    """Raise ConfigError for misspelt overrides: a skipped override could open anything."""
    misspelt = [
        (name, f"the environment has `{name}`, which sets nothing: write `{write}`, or unset it")
        for name in sorted(environ)
        if (write := _meant(name))
    ]
    if misspelt:
        raise ConfigError("; ".join(message for _, message in misspelt), misspelt)


_LIKE_OVERRIDE: Final = re.compile("pdp[-_.](.*)", re.IGNORECASE | re.DOTALL)
_OF_KUBERNETES: Final = re.compile(
    r"PDP_(?!.*__)(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_[A-Z]+)?)?)"
)
"""Variable that Kubernetes and Docker set for a service `pdp` or `pdp-...`."""


def _meant(name: str) -> str:
    """Return the override in place of a misspelt one; empty for an override, and for a variable of other programs."""
    found = _LIKE_OVERRIDE.fullmatch(name.strip())
    if found is None or _OF_KUBERNETES.fullmatch(name):
        return ""
    text = _in_capitals(found[1]).strip("_").lower()
    keys = text.split("__")
    if name.startswith(ENV_PREFIX) and keys[0] in Settings.model_fields:
        return ""
    is_divided = len(keys) > 1
    spelt = _spelt(re.findall("[^_.]+", text))
    if spelt and not (is_divided and keys[-1] in known_keys(Settings, keys[:-1])):
        return f"{ENV_PREFIX}{'__'.join(spelt).upper()}"
    return _override(found[1]) if is_divided and not name.startswith(ENV_PREFIX) else ""


_READ_ELSEWHERE: Final = frozenset({"PDP_DEVELOPMENT", "PDP_LOG_LEVEL"})
"""Variables of the service that set no key."""


def unread_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each variable in a form of the service that nothing reads, with the nearest one; empty without one."""
    near = {"_".join(key): f"{ENV_PREFIX}{'__'.join(key).upper()}" for key in every_key(Settings)}
    for name in sorted(environ.keys() - _READ_ELSEWHERE):
        found = _LIKE_OVERRIDE.fullmatch(name.strip())
        if found and not name.startswith(ENV_PREFIX) and not _OF_KUBERNETES.fullmatch(name):
            close = difflib.get_close_matches(_in_capitals(found[1]).lower(), near, 1)
            yield name, near[close[0]] if close else ""


def _spelt(words: Sequence[str]) -> Sequence[str]:
    """Return the key spelt by words, maybe of the file of a secret; empty for words without a key."""
    *outer, last = words or [""]
    secret = spelt_key(Settings, [*outer, *filter(None, [last.removesuffix("file")])]) if last.endswith("file") else ()
    if secret and secret_of(secret):
        return [*secret[:-1], f"{secret[-1]}_file"]
    unsupported = (key.split(".") for key in UNSUPPORTED if re.sub("[._]", "", key) == "".join(words))
    return spelt_key(Settings, words) or next(unsupported, ())


def _override(text: str) -> str:
    """Return the variable of a misspelt override, with `__` behind the section."""
    text = re.sub("_{3,}", "__", _in_capitals(text).strip("_"))
    section = next((name for name in Settings.model_fields if text.startswith(f"{name.upper()}_")), "")
    rest = text[len(section) :].lstrip("_")
    return f"{ENV_PREFIX}{section.upper()}__{rest}" if section else ENV_PREFIX + text


def _set(data: dict[str, Any], names: Sequence[str], text: str, source: tuple[str, Origins]) -> None:
    """Set a key to the text of a variable or option: a secret to the letter, all others as YAML.

    No section loses a key, at any depth. `null` for one within another is meant so.
    """
    where, origins = source
    key, section = tuple(names), _section(data, names[:-1], where)
    value = text if secret_of(key) else _yaml_value(text, where, key)
    is_meant = len(key) > 1 and text.strip() == "null"
    if lost := [] if is_meant else sorted(_lost_keys(section.get(key[-1]), value)):
        place, keys = key_text(names), ", ".join(f"`{key_text((*names, *below))}`" for below in lost)
        raise ConfigError(f"{where} replaces the section `{place}`, and so takes away {keys}: set its keys one by one")
    section[key[-1]] = value
    if secret_of(key):
        origins.differing.pop(key, None)
        if differs_in_yaml(text):
            origins.differing[key] = where
    origins.note(key, where)


def _yaml_value(text: str, where: str, key: Key) -> Any:
    try:
        return strict.load_yaml(text, plain=True)
    except strict.NumberSpellingError as error:
        raise ConfigError(f"{where}: {yaml_problem(error, text, key)}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if not _IPV6.fullmatch(text):
            raise ConfigError(f"{where} is not YAML: {yaml_problem(error, text, key)}: a text needs quotes") from None
        return text


def _refuse_empty_key(data: Mapping[str, Any], origins: Origins) -> None:
    """Raise ConfigError for an empty key of the audit: the chain would have no key without a word."""
    audit = data.get("audit")
    for name in ("hmac_key", "hmac_key_file"):
        if isinstance(audit, Mapping) and name in audit and audit[name] in (None, ""):
            message = f"`audit.{name}` is set and empty: leave it out for a chain without a key"
            raise origins.error(("audit", name), message)


def _explain(problem: Any) -> tuple[Key, str]:
    """Return the key of a problem, and a text with key and cause, and the nearest known name of an unknown key."""
    key = tuple(part for part in problem["loc"] if part not in FORMS)
    text = f"`{key_text(key)}`: {problem['msg'][:1].lower()}{problem['msg'][1:]}"
    if problem["type"] == "extra_forbidden":
        text = f"unknown key `{key_text(key)}`{suggest(str(key[-1]), known_keys(Settings, key[:-1]))}"
    if problem["type"] == "model_type":
        text = f"`{key_text(key)}`: input should be a valid dictionary"
    return key, text


def differs_in_yaml(text: str) -> bool:
    """Tell whether YAML reads a text as another text or as null.

    Earlier versions refused texts without a reading as text. With a differing text another secret counted.
    """
    try:
        value = strict.load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return False
    return value is None or (isinstance(value, str) and value != text)


def yaml_problem(error: Exception, text: str, outer: Key = ()) -> str:
    """Return the cause of an error of YAML, without the text below a secret key.

    `outer` is the key of the whole text.
    """
    if isinstance(error, yaml.MarkedYAMLError):
        mark, problem = error.problem_mark, str(error.problem)
        key = (*outer, *strict.keys_around(text, mark.line, mark.column)) if mark else outer
        within = next((key[:length] for length in range(1, len(key) + 1) if secret_of(key[:length])), None)
        named = f"`{key_text(key)}`: " if key and isinstance(error, strict.NumberSpellingError) else ""
        return f"the value of `{key_text(within)}` needs quotes" if within else named + problem
    if isinstance(error, yaml.YAMLError):
        return " ".join(str(error).split())
    # Python quotes the text of a number or a date that it cannot convert
    return "nested too deeply" if isinstance(error, RecursionError) else "a number or a date is none: quote the text"


def with_secrets(data: Mapping[str, Any], base: Path, origins: Origins) -> Mapping[str, Any]:
    """Return the data of settings with the secrets of files; raise ConfigError. Paths start at the folder `base`."""
    for secret in secret_keys():
        if not secret.has_file_key:
            data = _with_path(data, secret.path, (), (base, origins))
    return data


def _with_path(values: Any, path: Sequence[str], key: Key, place: tuple[Path, Origins]) -> Any:
    """Return the values of a section with the secret at a path below, in each section of a map."""
    if not isinstance(values, Mapping):
        return values
    step, *rest = path
    if not rest:
        return _with_secret(values, (*key, step), *place)
    names = list(values) if step == ANY_NAME else [step] if step in values else []
    return {**values, **{name: _with_path(values[name], rest, (*key, name), place) for name in names}}


def _with_secret(values: Mapping[str, Any], key: Key, base: Path, origins: Origins) -> Mapping[str, Any]:
    """Return the values of a section with the secret of `key`, if a file holds it."""
    name = str(key[-1])
    file_key = (*key[:-1], f"{name}_file")
    if file_key[-1] not in values:
        return values
    text, file_text = key_text(key), key_text(file_key)
    rest = dict(values)
    value = rest.pop(str(file_key[-1]))
    if name in rest:
        raise origins.error(file_key, f"`{text}` and `{file_text}` cannot both be set")
    if not isinstance(value, str):
        raise origins.error(file_key, f"`{file_text}`: input should be a valid string")
    file = base / value
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        # the name is not shown: it may be the secret itself, in the wrong key
        message = f"cannot read `{file_text}`, the name of a file from `{base}`: {type(error).__name__}"
        raise origins.error(file_key, message) from None
    if not secret:
        raise origins.error(file_key, f"`{file_text}`: `{file}` is empty")
    origins.note(key, file_text)
    return {**rest, name: secret}
