"""Names in settings that must be known: warehouses, their catalogs, identity providers. A wrong name opens nothing.

A name is no pattern, so a `*` in a name is an error, but for the keys that take patterns. So is a name in a form that
nobody sends: the setting would match nobody without a word.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from pdp.config.names import KnownNames, NameCheck, name_fault
from pdp.config.origins import Key, key_text, suggest
from pdp.config.section import Section
from pdp.config.settings import Settings
from pdp.config.warehouses import ID_OF_TEMPLATE, AuthzenSettings, PolarisSettings

_MAP_KEY: Final = "<name>"
STARRED: Final[Mapping[str, str]] = {
    "policies.rules": "files, as globs",
    "policies.forbid": "files, as globs",
    "policies.row_access": "files, as globs",
    "policies.scopes.permissions": "files, as globs",
    "policies.cedar": "files, as globs",
    "row_access.member.service_accounts": "patterns of addresses",
    "audit.sample_allows.<name>": "patterns of surfaces, actions and principals",
    "trino.execute_query.allow": "`*` alone is everybody with a name",
    "identity.callers.<name>.mtls.subjects": "a certificate may be for `DNS:*.acme.com`, which is then its name",
    "server": "addresses and files",
    "warehouses.<name>.catalog.uri": "an address",
    "warehouses.<name>.catalog.prefix": "part of an address",
    "warehouses.<name>.catalog.token": "a secret",
    "warehouses.<name>.catalog.token_file": "a file",
    "warehouses.<name>.catalog.ca_file": "a file",
    "policies.folder": "a folder",
    "policies.source": "addresses, files and secrets",
    "policies.engines.<name>.options": "known to the engine alone",
    "store.url": "an address or a file",
    "store.seed": "a file",
    "cache": "an address, files and secrets",
    "audit.sinks": "addresses and files",
    "audit.hmac_key": "a secret",
    "audit.hmac_key_file": "a file",
    "identity.providers.<name>.jwks": "an address or a file",
    "identity.providers.<name>.issuers": "addresses and files",
    "identity.providers.<name>.ca_file": "a file",
    "identity.providers.<name>.jwks_token_file": "a file",
    "outgoing": "addresses, hosts and a file",
    "lakes.<name>.uri": "an address",
    "lakes.<name>.token": "a secret",
    "lakes.<name>.credential": "a secret",
    "lakes.<name>.properties": "known to Iceberg alone",
    "lakes.<name>.spark": "known to Spark alone",
}
"""Key whose texts may have a `*`, with all keys below, and the meaning of such a text."""
_EVERYBODY: Final = "trino.execute_query.allow"
_CERTIFICATES: Final = "identity.callers.<name>.mtls.subjects"


def known_warehouses(settings: Settings) -> frozenset[str]:
    """Return the warehouses that a configuration names: `warehouses`, else those of the catalogs of engines.

    Empty if it names none. Then every name is taken.
    """
    return frozenset(settings.warehouses) or engine_warehouses(settings) | {*settings.polaris.catalogs.values()}


def engine_warehouses(settings: Settings, *, trino: bool = True) -> frozenset[str]:
    """Return the warehouses behind the catalogs of query engines, with or without those of Trino."""
    by_trino = (catalog.warehouse for catalog in settings.trino.catalogs.values() if trino)
    return frozenset((*by_trino, *settings.starrocks.catalogs.values(), *settings.ranger.services.values()))


def listed_warehouses(settings: Settings) -> frozenset[str]:
    """Return the warehouses that `warehouses` lists: all that worlds and grants may name, unless there are none.

    A service can have grants on warehouses that Trino does not see, so Trino's catalogs are no such list.
    """
    return frozenset(settings.warehouses)


def unknown_warehouse(name: str, known: Collection[str]) -> str:
    """Return the error of a warehouse that the configuration does not name; empty for a known one."""
    if not known or name in known:
        return ""
    return f"no warehouse `{name}` is configured{suggest(name, known)}"


def unknown_names(settings: Settings) -> Iterator[tuple[Key, str]]:
    """Yield the key and the error of each name in settings that is unknown, or lacks what another key needs of it."""
    known = known_warehouses(settings)
    for name, authority in settings.authorities.items():
        for place, warehouse in enumerate(authority.warehouses):
            yield ("authorities", name, "warehouses", place), unknown_warehouse(warehouse, known)
    named = {engine for authority in settings.authorities.values() for engine in authority.engines}
    for name in settings.policies.engines:
        unused = "" if name in named else f"no authority names the engine `{name}`{suggest(name, named)}"
        yield ("policies", "engines", name), unused
    for name, catalog in settings.trino.catalogs.items():
        key = ("trino", "catalogs", name, "warehouse")
        yield key, unknown_warehouse(catalog.warehouse, known)
        described = settings.warehouses.get(catalog.warehouse)
        if settings.trino.create_over_listed == "deny" and (described is None or described.catalog is None):
            yield key, f"`trino.create_over_listed: deny` needs `warehouses.{catalog.warehouse}.catalog`"
    for section, map, warehouses in _mapped_warehouses(settings):
        for name, warehouse in warehouses.items():
            yield (section, map, name), unknown_warehouse(warehouse, known)
    yield from _unknown_of_authzen(settings.authzen, known)
    providers = settings.identity.providers
    for name, engine in settings.trusted_engines.items():
        for idp in engine.identities if providers else ():
            message = "" if idp in providers else f"no provider `{idp}` is configured{suggest(idp, providers)}"
            yield ("trusted_engines", name, "identities", idp), message
    yield from _wrong_forms(settings)
    yield from _wrong_forms_of_polaris(settings.polaris)
    groups = settings.starrocks.groups.items()
    yield from ((("starrocks", "groups", group), _prefixed_role(role)) for group, role in groups)
    yield from ((key, message) for key, message, is_error in _judged_names(settings) if is_error)


def _mapped_warehouses(settings: Settings) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Yield the section and key of each map of foreign names to warehouses, with the map."""
    yield "polaris", "catalogs", settings.polaris.catalogs
    yield "starrocks", "catalogs", settings.starrocks.catalogs
    yield "ranger", "services", settings.ranger.services
    yield "lakekeeper", "warehouses", settings.lakekeeper.warehouses


def _unknown_of_authzen(authzen: AuthzenSettings, known: Collection[str]) -> Iterator[tuple[Key, str]]:
    """Yield the errors of templates in unknown warehouses, and of actions that no question has."""
    for type, text in authzen.resources.items():
        kind, _, path = text.partition(":")
        warehouse = path.partition("/")[0].partition("@")[0]
        if kind not in ("project", "role", "user", "tag", "server") and ID_OF_TEMPLATE not in warehouse:
            yield ("authzen", "resources", type), unknown_warehouse(unquote(warehouse), known)
    if authzen.actions:
        from pdp.model.trino_operations import RULE_ACTIONS  # noqa: PLC0415  most configurations map no action
        from pdp.model.vocabulary import ALIASES  # noqa: PLC0415

        actions = RULE_ACTIONS.union(*ALIASES.values())
        for name, action in authzen.actions.items():
            error = "" if action in actions else f"no action `{action}` is known{suggest(action, actions)}"
            yield ("authzen", "actions", name), error


def idle_names(settings: Settings) -> Iterator[tuple[Key, str]]:
    """Yield the key and the warning of each name in settings without a sure match."""
    for key, message, is_error in _judged_names(settings):
        if not is_error:
            yield key, f"`{key_text(key)}`: {message}"


def _judged_names(settings: Settings) -> Iterator[tuple[Key, str, bool]]:
    """Yield the key and the fault of each name in settings, and whether it is an error, as a denial of nothing is."""
    check, trino = name_check(settings), settings.trino
    if foreign := _foreign_cel_provider(settings):
        yield ("identity", "cel_provider"), foreign, check.stops(is_wrong=False)
    for place, name in enumerate(trino.session_properties.deny):
        # a denied property matches in any case
        if fault := name_fault("property", "equals", name.lower(), check.known):
            yield ("trino", "session_properties", "deny", place), fault.message, check.stops(is_wrong=fault.is_wrong)
    refs: list[tuple[Key, str | None]] = [
        *((("warehouses", name, "default_ref"), one.default_ref) for name, one in settings.warehouses.items()),
        *((("trino", "catalogs", name, "ref"), one.ref) for name, one in trino.catalogs.items()),
    ]
    for key, ref in refs:
        if ref and not _wrong_ref(ref) and (fault := name_fault("ref", "equals", ref)):
            yield key, fault.message, check.stops(is_wrong=fault.is_wrong)
    permitted: list[tuple[tuple[str, str], str, Sequence[str]]] = [
        (("functions", "allow"), "routine", trino.functions.allow),
        (("functions", "builtin_catalogs"), "catalog", trino.functions.builtin_catalogs),
        (("procedures", "allow"), "routine", trino.procedures.allow),
    ]
    for where, kind, names in permitted:
        for place, name in enumerate(names):
            is_bare = where[0] == "procedures" and "." not in name  # a table procedure, in any case
            fault = name_fault(kind, "equals", f"any.any.{name.lower()}" if is_bare else name, check.known)
            if fault:
                yield ("trino", *where, place), fault.message.replace("any.any.", ""), check.stops(is_wrong=False)


def _wrong_forms(settings: Settings) -> Iterator[tuple[Key, str]]:
    """Yield the key and the error of each name in a form that Trino or a token never sends."""
    trino = settings.trino
    for name in trino.catalogs:
        yield (
            ("trino", "catalogs", name),
            (f"Trino sends names of catalogs in lower case: write `{name.lower()}`" if name != name.lower() else ""),
        )
        yield ("trino", "catalogs", name, "ref"), _wrong_ref(trino.catalogs[name].ref or "")
    for name, warehouse in settings.warehouses.items():
        yield ("warehouses", name, "default_ref"), _wrong_ref(warehouse.default_ref or "")
    users: list[tuple[Key, str]] = [
        *((("admin_users", place), name) for place, name in enumerate(trino.admin_users)),
        *((("execute_query", "allow", place), name) for place, name in enumerate(trino.execute_query.allow)),
        *((("impersonation", name), name) for name in trino.impersonation),
        *(
            (("impersonation", one, place), name)
            for one, names in trino.impersonation.items()
            for place, name in enumerate(names)
        ),
    ]
    for key, user in users:
        error = _prefixed(user, trino.user_prefix.removesuffix("~"), "Trino sends the bare name of a user")
        yield ("trino", *key), error
    for group, role in trino.groups.items():
        yield ("trino", "groups", group), _prefixed_role(role)
    bearers = {name: caller.bearer for name, caller in settings.identity.callers.items() if caller.bearer}
    subjects = [
        *(
            (("identity", "callers", name, "bearer", "subjects"), one.idp, one.subjects)
            for name, one in bearers.items()
        ),
        *(
            (("identity", "providers", idp, "users"), idp, one.users)
            for idp, one in settings.identity.providers.items()
        ),
        *(
            (("trusted_engines", name, "identities", idp, "subjects"), idp, one.subjects)
            for name, engine in settings.trusted_engines.items()
            for idp, one in engine.identities.items()
        ),
    ]
    for path, idp, names in subjects:
        for place, name in enumerate(names):
            yield (*path, place), _prefixed(name, idp, "a token has the bare subject")
    for idp, provider in settings.identity.providers.items():
        for token_role, role in provider.role_map.items():
            yield ("identity", "providers", idp, "role_map", token_role), _prefixed_role(role)


def _wrong_forms_of_polaris(polaris: PolarisSettings) -> Iterator[tuple[Key, str]]:
    for place, admin in enumerate(polaris.admins):
        error = _prefixed(admin, polaris.user_prefix.removesuffix("~"), "Polaris sends the bare name of a principal")
        yield ("polaris", "admins", place), error
    for name, role in polaris.roles.items():
        yield ("polaris", "roles", name), _prefixed_role(role)


def _wrong_ref(ref: str) -> str:
    """Return the error of a ref that no request has; empty for any other, and for none.

    Requests have bare names. Git and Nessie agree on the signs that no name has.
    """
    if prefix := _REF_PREFIX.match(ref):
        return f"requests have the bare name of a ref: leave out `{prefix[0]}`"
    name, at, _ = ref.partition("@")
    if at:
        return f"a ref is a name without a hash or a time: write `{name}`, without what is behind `@`"
    if "%" in ref:
        return f"requests have the name of a ref without escapes: write `{unquote(ref)}`"
    if _UNSEEN_IN_REF.search(ref):
        return "no ref has control characters or other signs that nobody sees: write the name anew"
    sign = _NO_REF.search(ref)
    if sign:
        shown = "a blank" if sign[0].isspace() else f"`{sign[0]}` there"
        return f"no name of a ref has {shown}: write the name as requests have it, such as `main`"
    return ""


_REF_PREFIX: Final = re.compile("refs/heads/|refs/tags/|refs/|branch:|tag:|ref:|@", re.IGNORECASE)
_UNSEEN_IN_REF: Final = re.compile(
    r"[^\S ]|[\x00-\x1f\x7f-\x9f\xad\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)
_NO_REF: Final = re.compile(r"[ ~^:?\[\\#]|[.][.]|^/|/$|//|[.]$")


def _prefixed(name: str, idp: str, why: str) -> str:
    """Return the error of a name that is written as a principal; empty for a bare name. Shows no value."""
    for prefix in (f"user:{idp}~", "user:", f"{idp}~"):
        if name.startswith(prefix):
            return f"{why}: leave out `{prefix}`"
    return ""


def _prefixed_role(name: str) -> str:
    return "the id of a role has no prefix: leave out `role:`" if name.startswith("role:") else ""


def _foreign_cel_provider(settings: Settings) -> str:
    """Return the fault of a `cel_provider` that is no provider: no `role` is a bare subject. Empty without one."""
    providers, idp = settings.identity.providers, settings.identity.cel_provider
    if not providers or idp in providers:
        return ""
    other = min(providers)
    return (
        f"names `{idp}`, which is none of `identity.providers`: in rules, `role` of a user "
        f"is `{other}~<subject>`; write `cel_provider: {other}` for the bare subject"
    )


def known_names(settings: Settings) -> KnownNames:
    """Return the names that a configuration has."""
    providers, catalogs = settings.identity.providers, settings.trino.catalogs.values()
    described = settings.warehouses.values()
    maps = [provider.role_map for provider in providers.values()]
    return KnownNames(
        known_warehouses(settings),
        frozenset(one.project for one in described if one.project),
        frozenset(ref for ref in (*(one.default_ref for one in described), *(one.ref for one in catalogs)) if ref),
        frozenset((*settings.trino.groups.values(), *settings.starrocks.groups.values())).union(
            *(known.values() for known in maps)
        ),
        frozenset[str]().union(*maps),
        frozenset(providers),
        settings.identity.cel_provider,
        frozenset(providers[idp].users) if (idp := settings.identity.cel_provider) in providers else frozenset(),
        frozenset(settings.trino.catalogs),
        settings.trino.unmanaged_catalogs == "allow",
        frozenset(settings.trino.functions.builtin_catalogs),
    )


def name_check(settings: Settings, *, forbid: bool = True) -> NameCheck:
    """Return the judgement of names by a configuration. `forbid`: of policies that forbid or hide."""
    return NameCheck(known_names(settings), forbid, settings.policies.strict_names)


_BLANKS: Final = frozenset(
    {
        "identity.providers.<name>.claims.separator",
        "warehouses.<name>.namespace_separator",
        "trino.session_properties.deny",
        "trino.procedures.allow",
        "trino.functions.allow",
    }
)
"""Kinds of keys that may have blanks, or whose names are judged in another place."""


def misspelt_names(settings: Settings) -> Iterator[tuple[Key, str]]:
    """Yield the key and the error of each name with a `*` in place of a pattern, or with blanks around it.

    Shows no value.
    """
    for key, kind, text in _texts(settings, (), ()):
        if "*" in text and not _may_have_star(".".join(kind), text):
            yield key, "`*` is no wildcard here: write each name"
        elif text != text.strip() and not _may_have_blanks(".".join(kind)):
            yield key, "a name has no blanks around it: leave them out"


def _may_have_star(kind: str, text: str) -> bool:
    if kind == _EVERYBODY:
        return text == "*"
    if kind == _CERTIFICATES:
        return text.startswith("DNS:*.") and text.count("*") == 1
    return _is_free(kind)


def _may_have_blanks(kind: str) -> bool:
    return kind in _BLANKS or (kind != _EVERYBODY and _is_free(kind))


def _is_free(kind: str) -> bool:
    """Tell whether a kind of key has any text, and no name."""
    return any(kind == free or kind.startswith(f"{free}.") for free in STARRED)


def _texts(value: Any, key: Key, kind: Sequence[str]) -> Iterator[tuple[Key, Sequence[str], str]]:
    """Yield the key, the kind of key and the text of all texts. A key of a map is a text, too."""
    if isinstance(value, str):
        yield key, kind, value
    elif isinstance(value, Section):
        for name in type(value).model_fields:
            yield from _texts(getattr(value, name), (*key, name), (*kind, name))
    elif isinstance(value, Mapping):
        for name, inside in value.items():
            below = (*key, str(name)), (*kind, _MAP_KEY)
            yield *below, str(name)
            yield from _texts(inside, *below)
    elif isinstance(value, tuple):
        for place, inside in enumerate(value):
            yield from _texts(inside, (*key, place), kind)
