"""Keys of `identity` and `trusted_engines`: callers, identity providers, and engines that may name view owners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from pdp.config.section import Section, defaults, is_loopback
from pdp.config.server import RemoteSection

EVIDENCE = ("principals", "roles", "groups", "attributes", "delegated", "properties", "callers")
Evidence = Literal["principals", "roles", "groups", "attributes", "delegated", "properties", "callers"]
Description = Literal["roles", "groups", "attributes"]
"""Evidence that describes a principal."""
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signature algorithms with a private key. `none` and algorithms with a shared key are excluded."""
_USUAL: Final[tuple[Algorithm, ...]] = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
Idp = Annotated[str, Field(pattern=r"^[a-z0-9-]+$")]
Name = Annotated[str, Field(min_length=1)]


def _idps(given: Any) -> Any:
    """Replace `_` by `-` in provider ids. Environment variables cannot hold `-`, and provider ids never hold `_`.

    Raise ValueError for ids that become one.
    """
    if not isinstance(given, Mapping):
        return given
    ids: dict[str, Any] = {}
    for key, value in given.items():
        idp = str(key).replace("_", "-")
        if idp in ids:
            raise ValueError(f"`{idp}` stands twice: `_` in the id of a provider is read as `-`")
        ids[idp] = value
    return ids


def _jwks(place: str) -> str:
    return place if "://" not in place else checked_key_url(place)


def checked_key_url(place: str) -> str:
    """Return the URL of keys; raise ValueError unless it is https, or http on loopback, without a user."""
    url = urlsplit(place)
    if url.username is not None or url.password is not None:
        raise ValueError("a URL with a user or a password would show them in logs: leave them out")
    if url.scheme == "https" and url.hostname:
        return place
    if url.scheme == "http" and is_loopback(url.hostname or ""):
        return place
    raise ValueError(f"`{place}` is neither https, nor http on loopback, nor a file: anybody could replace its keys")


def grantee_id(text: str) -> str:
    """Return the id of a user or role; raise ValueError for any other text."""
    return text if text.startswith("role:") and text != "role:" else _principal_id(text)


def _principal_id(text: str) -> str:
    idp, tilde, subject = text.removeprefix("user:").partition("~")
    if not tilde or not subject or not idp or idp.strip("abcdefghijklmnopqrstuvwxyz0123456789-"):
        raise ValueError(f"`{text}` is not `user:<idp>~<subject>`")
    return f"user:{idp}~{subject}"


def _paths(given: Any) -> Any:
    """Put a single path into a list."""
    return (given,) if isinstance(given, str) else given


Paths = Annotated[tuple[Name, ...], BeforeValidator(_paths), Field(min_length=1)]
_KNOWN_TYPES: Final = {"email": "text"}
"""Attribute that engines read -> the type that they expect."""
LISTS: Final = ("roles", "groups")
"""Lists among the evidence of a token."""


class ClaimSettings(Section):
    """Paths of claims. `a.b` is the claim `b` within the claim `a`. A path, or a list of paths."""

    subject: Paths = Field(("sub",), description="the claim that holds the subject; of several the first present one")
    roles: Paths = Field(
        ("roles",), description="the claims that hold the roles, all together: each a list of texts, or one text"
    )
    groups: Paths = Field(("groups",), description="the claims that hold the groups, in the same way")
    audience: Paths = Field(("aud",), description="the claims that hold the audiences")
    attributes: Mapping[str, Paths] = Field(
        default_factory=dict,
        description="attribute that rules see -> the claim that holds it; the first present one",
    )
    types: Mapping[str, Literal["text", "texts", "number", "bool", "object"]] = Field(
        default_factory=dict,
        description="attribute -> the type of its claim: another type is refused. `email` is a text; others without an "
        "entry have any type",
    )
    separator: str | None = Field(
        None,
        description="what stands between roles or groups in one text, such as `,`; without it a text with a blank, a "
        "comma, a semicolon, a quote or a bracket is refused, and with it a part with any of these but blanks",
    )
    keys_of: tuple[Literal["roles", "groups"], ...] = Field(
        (), description="evidence that is the keys of an object, as Zitadel's roles"
    )
    required: tuple[Name, ...] = Field(
        (), description="`roles`, `groups` or attributes that are unknown where a token lacks the claim"
    )
    optional: tuple[Name, ...] = Field(
        (),
        description="`roles`, `groups` or attributes that a token may lack, also where no token had the claim: "
        "otherwise such a claim is unknown to forbids that read it, if its path is written here",
    )

    @field_validator("types")
    @classmethod
    def _require_attributes(cls, types: Mapping[str, str], info: ValidationInfo) -> Mapping[str, str]:
        if unknown := [name for name in types if name not in (info.data.get("attributes") or ())]:
            raise ValueError(f"`{unknown[0]}` is none of `attributes`")
        return types

    @field_validator("required", "optional")
    @classmethod
    def _require_known(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        known = {*LISTS, *(info.data.get("attributes") or ())}
        if unknown := [name for name in names if name.removeprefix("attributes.") not in known]:
            raise ValueError(f"`{unknown[0]}` is neither `roles`, nor `groups`, nor one of `attributes`")
        return names

    @model_validator(mode="after")
    def _refuse_both(self) -> Self:
        if both := sorted(self.evidence(self.required) & self.evidence(self.optional)):
            raise ValueError(f"`{both[0]}` is both `required` and `optional`")
        return self

    def evidence(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names of evidence as in rules: `roles`, `groups`, `attributes.<name>`."""
        return frozenset(name if name in LISTS or "attributes." in name else f"attributes.{name}" for name in names)

    def type_of(self, attribute: str) -> str | None:
        """Return the type of an attribute; None for any type."""
        return self.types.get(attribute) or _KNOWN_TYPES.get(attribute)

    @cached_property
    def paths(self) -> Mapping[str, tuple[str, ...]]:
        """Return the paths of each evidence."""
        attributes = {f"attributes.{name}": paths for name, paths in self.attributes.items()}
        return {"roles": self.roles, "groups": self.groups, **attributes}

    @cached_property
    def doubted(self) -> frozenset[str]:
        """Return the evidence with written paths, without the `required` and `optional` evidence."""
        written = frozenset(self.paths) - frozenset(LISTS) | (frozenset(LISTS) & self.model_fields_set)
        return written - self.evidence((*self.optional, *self.required))


def _require_place(issuer: str, jwks: str) -> None:
    """Raise ValueError for an issuer without keys whose name is no URL to discover them."""
    if jwks:
        return
    try:
        checked_key_url(issuer)
    except ValueError:
        raise ValueError(f"`jwks` is missing: `{issuer}` is no https URL that leads to the keys") from None
    if any(sign in issuer for sign in "?#"):
        raise ValueError("`jwks` is missing: an issuer with `?` or `#` leads to no keys")


class IssuerSettings(Section):
    """Issuer of a provider with several."""

    issuer: Name = Field(description="the `iss` of its tokens, to the letter")
    jwks: Annotated[Name, AfterValidator(_jwks)] = Field("", description="its public keys, as `jwks` of the provider")

    @model_validator(mode="after")
    def _require_keys(self) -> Self:
        _require_place(self.issuer, self.jwks)
        return self

    @property
    def is_file(self) -> bool:
        """Tell whether the keys are in a file."""
        return bool(self.jwks) and "://" not in self.jwks


class ProviderSettings(RemoteSection):
    """Identity provider. Its tokens name principals `<idp>~<subject>`."""

    issuer: Name = Field("", description="the `iss` of its tokens, to the letter; this, or `issuers`")
    jwks: Annotated[Name, AfterValidator(_jwks)] = Field(
        "",
        description="its public keys: a URL (https, or http on loopback), or a file; without it the issuer's document "
        "`/.well-known/openid-configuration` says where they are",
    )
    jwks_hosts: tuple[Annotated[str, Field(pattern=r"^[a-z0-9._:-]+$")], ...] = Field(
        (), description="other hosts, or `host:port`, where the issuer's document may place the keys"
    )
    jwks_token_file: str | None = Field(
        None,
        description="a file with a bearer token for the issuer's document and the keys, read at each fetch, as a pod "
        "of Kubernetes has one",
    )
    issuers: tuple[IssuerSettings, ...] = Field(
        (),
        description="several issuers, each with its own keys, in place of `issuer` and `jwks`: one subject is one "
        "principal, whichever issuer names it",
    )
    audiences: tuple[Name, ...] = Field(
        (), description="a token needs one of them; with none, only tokens that a caller or trusted engine names count"
    )
    algorithms: tuple[Algorithm, ...] = Field(_USUAL, min_length=1, description="signatures that are taken")
    leeway_seconds: float = Field(30, ge=0, le=300, description="how far its clock may be off")
    sender_constrained: Literal["deny", "allow"] = Field(
        "deny",
        description="tokens with `cnf`, which count only with a proof of the sender's key (DPoP, mTLS): the service "
        "checks no proof, and `allow` takes them from everybody who has them",
    )
    claims: ClaimSettings = defaults(ClaimSettings)
    users: tuple[Name, ...] = Field(
        (),
        description="subjects of all its users, where it has a list: the owner of a view outside of the list is an "
        "error; without a list every subject may be a user",
    )
    role_map: Mapping[str, Name] = Field(
        default_factory=dict, description="token role -> the id of the role whose grants it brings"
    )
    refresh_seconds: float = Field(300, gt=0, le=86_400, description="how often its keys are fetched")
    retry_seconds: float = Field(
        10, gt=0, le=3600, description="the least time between fetches for unknown keys, or after one that failed"
    )
    fetch_timeout_seconds: float = Field(5, gt=0, le=60, description="how long one fetch may take")
    max_stale_seconds: float = Field(
        3600, gt=0, le=604_800, description="how long keys count that cannot be fetched again"
    )

    @model_validator(mode="after")
    def _require_issuer(self) -> Self:
        if self.issuers and (self.issuer or self.jwks):
            raise ValueError("write either `issuer` and `jwks`, or `issuers`")
        if not self.issuers and not self.issuer:
            raise ValueError("`issuer` is missing, or `issuers`")
        if not self.issuers:
            _require_place(self.issuer, self.jwks)
        return self

    @cached_property
    def each_issuer(self) -> tuple[IssuerSettings, ...]:
        """Return all issuers with their keys."""
        return self.issuers or (IssuerSettings.model_construct(issuer=self.issuer, jwks=self.jwks),)


class BearerSettings(Section):
    """Tokens of one provider that identify a caller. Each given list must match."""

    idp: Idp = Field(description="the provider, one of `identity.providers`")
    subjects: tuple[Name, ...] = Field((), description="the token's subject is one of them")
    audiences: tuple[Name, ...] = Field((), description="one of the token's audiences is one of them")

    @model_validator(mode="after")
    def _names_somebody(self) -> Self:
        if not self.subjects and not self.audiences:
            raise ValueError("`subjects` or `audiences` must name somebody: the right is not every user's")
        return self


class MtlsSettings(Section):
    """Client certificates that identify a caller, signed by `server.tls.client_ca`."""

    subjects: tuple[Name, ...] = Field(
        min_length=1,
        description="a name of the certificate: `CN=trino,O=acme` (RFC 4514), its common name, a `DNS:` or `URI:` name",
    )


class CallerSettings(Section):
    """Recognition of one caller, and the evidence that the caller may assert."""

    loopback: Literal[True] | None = Field(None, description="peers on this machine")
    ignore_tokens: Literal[True] | None = Field(
        None,
        description="beside `loopback: true`: an `Authorization` of these peers counts as absent, for clients that "
        "always send one; an error beside `identity.providers`",
    )
    unix_socket: Literal[True] | None = Field(None, description="peers on `server.unix`")
    bearer: BearerSettings | None = Field(None, description="tokens of a provider")
    mtls: MtlsSettings | None = Field(None, description="certificates of clients")
    may_assert: tuple[Evidence, ...] = Field((), description="kinds of evidence taken from its requests")
    empty: tuple[Description, ...] = Field(
        (), description="what no principal of its requests has; other evidence that it may not assert is unknown"
    )
    may_write: bool = Field(False, description="whether it may change grants and policies")

    @model_validator(mode="after")
    def _require_unstated(self) -> Self:
        if stated := sorted({*self.empty} & {*self.may_assert}):
            raise ValueError(f"`{stated[0]}` is in `may_assert` and in `empty`: its requests say what principals have")
        return self

    @model_validator(mode="after")
    def _require_one_recognition(self) -> Self:
        if sum(way is not None for way in (self.loopback, self.unix_socket, self.bearer, self.mtls)) != 1:
            raise ValueError("a caller is known by exactly one of `loopback`, `unix_socket`, `bearer`, `mtls`")
        if self.ignore_tokens and not self.loopback:
            raise ValueError(
                "`ignore_tokens` stands beside `loopback: true` alone: no other caller is known by its address"
            )
        return self


class IdentitySettings(Section):
    """Callers, identity providers, and the form of principals in rules."""

    providers: Annotated[Mapping[Idp, ProviderSettings], BeforeValidator(_idps)] = Field(
        default_factory=dict, description="identity providers, by the id that stands before `~` in principals"
    )
    cel_provider: str = Field(
        "oidc", pattern=r"^[a-z0-9-]+$", description="the provider whose subjects CEL's `role` shows without prefix"
    )
    cel_roles: Literal["token", "all"] = Field(
        "token",
        description="the roles that permits of CEL see: those of tokens, of requests and of `role_map`, or with `all` "
        "also stored ones, so that whoever gives a role in the store gives what these permits give",
    )
    callers: Mapping[str, CallerSettings] = Field(
        default_factory=dict,
        description="the first that matches counts; without any, loopback callers may assert everything",
    )
    instance_admins: tuple[Annotated[str, AfterValidator(_principal_id)], ...] = Field(
        (), description="users who pass every control-plane action: all but read_data, write_data and view select"
    )
    inspect: Literal["read_assignments", "deny"] = Field(
        "read_assignments",
        description="whether a caller with a token may ask about others: on objects whose grants it may read, or never",
    )

    @field_validator("callers")
    @classmethod
    def _require_distinct_callers(cls, callers: Mapping[str, CallerSettings]) -> Mapping[str, CallerSettings]:
        for way in ("loopback", "unix_socket"):
            if sum(getattr(rule, way) is not None for rule in callers.values()) > 1:
                raise ValueError(f"only one caller can be `{way}: true`: two cannot be told apart")
        return callers

    @model_validator(mode="after")
    def _require_known_providers(self) -> Self:
        for name, rule in self.callers.items():
            if rule.ignore_tokens and self.providers:
                raise ValueError(
                    f"`callers.{name}.ignore_tokens` and `providers`: a token of a provider must count, or be refused"
                )
            if rule.bearer and rule.bearer.idp not in self.providers:
                raise ValueError(f"`callers.{name}.bearer.idp` names no provider: `{rule.bearer.idp}`")
        issuers = [each.issuer for provider in self.providers.values() for each in provider.each_issuer]
        if len(set(issuers)) < len(issuers):
            raise ValueError("two `providers` have the same issuer: a token must belong to one provider")
        return self


class EngineIdentitySettings(Section):
    """Tokens of a provider that identify a trusted engine. A single audience or subject suffices."""

    audiences: tuple[Name, ...] = Field((), description="audiences that only this engine's tokens have")
    subjects: tuple[Name, ...] = Field((), description="subjects of this engine's own tokens")

    @model_validator(mode="after")
    def _names_somebody(self) -> Self:
        if not self.subjects and not self.audiences:
            raise ValueError("`audiences` or `subjects` must name somebody")
        return self


class TrustedEngineSettings(Section):
    """Query engine that may name the views of a query and their owners."""

    type: Literal["trino"] = Field(description="the kind of engine")
    owner_property: Name = Field(description="the view property that names the owner of a DEFINER view")
    identities: Annotated[Mapping[Idp, EngineIdentitySettings], BeforeValidator(_idps)] = Field(
        min_length=1, description="how its tokens are recognised, by idp"
    )
    enforces_row_access: bool = Field(
        False, description="whether it applies row filters and masks itself, so that it may have storage credentials"
    )
    applies_read_restrictions: bool = Field(
        False,
        description="whether it applies `read-restrictions` of Iceberg or fails, so that it may read the files of a "
        "restricted table together with them; almost no released client does",
    )
    delegated_storage: Literal["read", "as_owner"] = Field(
        "read", description="the most access to tables behind DEFINER views: `read`, or `as_owner`, as the view's owner"
    )

    @model_validator(mode="after")
    def _enforces_in_one_way(self) -> Self:
        if self.enforces_row_access and self.applies_read_restrictions:
            raise ValueError("`enforces_row_access` gives files without read restrictions: leave one of the two out")
        return self
