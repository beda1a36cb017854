"""Keys of `policies`, of its source, and of `row_access`.

The files that hold policies, where else policies come from, and the spelling of members in these files.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from pdp.config.section import Section, defaults, is_loopback

_KINDS: Final = ("http", "oci", "git")
OCI_PATH: Final = re.compile(
    r"/(?P<name>[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*)"
    r"(:(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127})|@(?P<digest>sha256:[0-9a-f]{64}))"
)
"""Path of an artefact in a registry."""


class SourceSettings(Section):
    """Place of all policies whose paths are relative. One of `http`, `oci` and `git` is set."""

    http: str | None = Field(None, description="URL of a bundle, from `pdp bundle build`")
    oci: str | None = Field(
        None, description="bundle in a registry: `https://<registry>/<repository>:<tag>` or `...@sha256:<digest>`"
    )
    git: str | None = Field(None, description="folder of a git repository: its commit at `HEAD` counts, not its files")
    path: str | None = Field(None, description="folder of the policies within the repository of `git`")
    keys: tuple[str, ...] = Field(
        (), description="public keys (PEM files, Ed25519 or ECDSA P-256): a bundle needs a signature by one of them"
    )
    unsigned: bool = Field(False, description="take bundles without a signature: whoever can change the bundle permits")
    token_file: str | None = Field(None, description="file of a bearer token for the server, read at each request")
    username: str | None = Field(None, description="name of a user, whose password is in `token_file`")
    ca: str | None = Field(None, description="authorities of the server (PEM) in place of the system's")
    poll_seconds: float = Field(30, ge=0.1, le=86400, description="how often the service asks for a newer bundle")
    timeout_seconds: float = Field(10, gt=0, le=300, description="for one whole request to the server, with redirects")
    redirect_hosts: tuple[str, ...] = Field(
        (), description="other hosts to which the server may redirect, without the token"
    )
    max_mib: int = Field(64, ge=1, le=1024, description="most MiB of an unpacked bundle")
    folder: str = Field("policy-bundles", description="folder of the last good bundle, for a start without the server")

    @property
    def kind(self) -> str:
        """Return the key that names the place."""
        return next(kind for kind in _KINDS if getattr(self, kind) is not None)

    @property
    def place(self) -> str:
        """Return the URL or folder."""
        return str(getattr(self, self.kind))

    @model_validator(mode="after")
    def _check(self) -> Self:
        if sum(getattr(self, kind) is not None for kind in _KINDS) != 1:
            raise ValueError("set one of `http`, `oci` and `git`")
        if self.kind == "git":
            if self.keys or self.unsigned or self.token_file or self.ca:
                raise ValueError("`git` takes no keys and no token: who can write to the repository writes policies")
            return self
        if self.path is not None:
            raise ValueError("`path` belongs to `git`")
        if bool(self.keys) == self.unsigned:
            raise ValueError("set `keys`, or `unsigned: true`")
        self._check_url()
        return self

    def _check_url(self) -> None:
        try:
            url = urlsplit(self.place)
            host, _ = url.hostname, url.port
        except ValueError:
            raise ValueError(f"`{self.kind}` is no URL") from None
        if url.scheme not in ("http", "https") or not host or "@" in url.netloc or url.fragment:
            raise ValueError(f"`{self.kind}` is a URL with https://, a host, and no user or password")
        if self.kind == "oci" and (url.query or not OCI_PATH.fullmatch(url.path)):
            raise ValueError("`oci` is a URL such as https://registry.example.com/team/policies:prod")
        if self.username and (not self.token_file or ":" in self.username):
            raise ValueError("`username` needs a `token_file` with the password, and has no colon")
        if url.scheme == "http" and not is_loopback(host) and (self.unsigned or self.token_file):
            raise ValueError("http:// to another machine needs `keys` and takes no token: use https://")


TEMPLATE_FIELD: Final = re.compile(r"\{([^{}]*)\}")
"""Field of a member template."""
Profile: TypeAlias = Annotated[str, Field(pattern=r'^[^.,%{}"\s]+$')]
_BETWEEN = r"[^{}]*[^{}a-z0-9-][^{}]*"
_DIVIDED: Final = re.compile(rf"[^{{}}]*(\{{idp\}}{_BETWEEN}\{{subject\}}|\{{subject\}}{_BETWEEN}\{{idp\}})[^{{}}]*")
"""Unambiguous template: a sign that no provider's id contains separates the provider's id from the subject."""


def _template(template: str) -> str:
    fields = set(TEMPLATE_FIELD.findall(template))
    bare = TEMPLATE_FIELD.sub("", template)
    if "subject" not in fields or fields - {"subject", "idp"} or "{" in bare or "}" in bare:
        raise ValueError("a template holds `{subject}`, may hold `{idp}`, and no other braces")
    if "idp" in fields and not _DIVIDED.fullmatch(template):
        raise ValueError(
            "a sign that no provider's id holds stands between `{idp}` and `{subject}`, such as `~` or `@`"
        )
    return template


def _profiles(given: Any) -> Any:
    """Split a text at commas, as in `quarkus.profile`."""
    return [name.strip() for name in given.split(",")] if isinstance(given, str) else given


class PolicyFiles(Section):
    """Entry of a list of files with its options. A text alone is the file or glob."""

    path: str = Field(min_length=1, description="the file or glob; a text in place of the mapping is the same")
    allow_empty: bool = Field(
        False, description="whether it may match no file, and its files may hold no policy; otherwise the start stops"
    )


FORMS: Final = ("<text>", "<mapping>")
"""Forms of an entry in a list of files. pydantic puts them into the keys of its errors."""


def _form(entry: Any) -> str:
    return FORMS[isinstance(entry, (Mapping, Section))]


FilePattern = Annotated[
    Annotated[str, Field(min_length=1), Tag("<text>")] | Annotated[PolicyFiles, Tag("<mapping>")], Discriminator(_form)
]
"""File or glob; as a mapping, with `allow_empty`."""


class ScopesSettings(Section):
    """Permissions in LakeQL's shape, for the engine `scopes`."""

    permissions: tuple[FilePattern, ...] = Field((), description="files (globs) of permissions: .json or .yaml")
    strict: bool = Field(
        False, description="whether reads need a rule; otherwise a user without an entry or without rules may read"
    )
    read_resolver: str | None = Field(
        None, description="an entry point `pdp.scopes` that decides `readPermission` in place of the files"
    )
    write_resolver: str | None = Field(
        None, description="an entry point `pdp.scopes` that decides `writePermission` in place of the files"
    )
    resolver_seconds: float = Field(1, gt=0, le=60, description="for the resolvers of one group; later is a denial")


class CustomEngineSettings(Section):
    """Options of an engine of another package."""

    options: Mapping[str, Any] = Field({}, description="given to the engine; kept with the audit, so no secrets")
    timeout_seconds: float = Field(1, gt=0, le=60, description="for one answer of an async engine; later is a denial")


class CedarSchemaFiles(Section):
    """Schema of Cedar with its options. A text alone is the file of `replace`."""

    replace: str | None = Field(None, description="the schema in place of pdp's own; a text alone is the same")
    extend: str | None = Field(None, description="a fragment that adds types, actions or attributes of new types")

    @model_validator(mode="after")
    def _require_file(self) -> Self:
        if self.replace is None and self.extend is None:
            raise ValueError("`replace` or `extend` names a file")
        return self


CedarSchemaChoice = Annotated[
    Annotated[str, Field(min_length=1), Tag("<text>")] | Annotated[CedarSchemaFiles, Tag("<mapping>")],
    Discriminator(_form),
]
"""File of a schema; as a mapping, `replace` or `extend`."""

with warnings.catch_warnings():
    # pydantic warns of the name `schema`: an old method of its models, which nothing here calls
    warnings.filterwarnings("ignore", 'Field name "schema"', UserWarning)

    class CedarSettings(Section):
        """Files of the engine `cedar`."""

        policies: tuple[FilePattern, ...] = Field((), description="Cedar policies (globs): .cedar")
        entities: tuple[FilePattern, ...] = Field((), description="entities in Cedar's JSON (globs), several files")
        schema: CedarSchemaChoice | None = Field(  # type: ignore[assignment]
            None, description="a schema in place of pdp's own, or `{extend: <file>}` that adds to the schema"
        )


class PolicySettings(Section):
    """Locations of policies. Relative paths start at `folder`, or at the top of the `source`."""

    folder: str = Field(".", description="folder where relative paths of this section begin")
    source: SourceSettings | None = Field(
        None, description="a bundle or repository where relative paths of this section begin, in place of `folder`"
    )
    rules: tuple[FilePattern, ...] = Field(
        ("rules/*.properties",), description="CEL rule files (globs): .properties or .yaml"
    )
    profiles: Annotated[tuple[Profile, ...], BeforeValidator(_profiles)] = Field(
        ("prod",), description="Quarkus profiles of rule files (`%prod.nessie...`); of several, the last wins"
    )
    forbid: tuple[FilePattern, ...] = Field((), description="rule files whose rules deny when true, in every authority")
    cel_extensions: tuple[Literal["strings"], ...] = Field((), description="CEL extensions that rules may use")
    row_access: tuple[FilePattern, ...] = Field(
        (), description="files (globs) of row policies and masks: .yaml or .json"
    )
    scopes: ScopesSettings = defaults(ScopesSettings)
    cedar: CedarSettings = defaults(CedarSettings)
    engines: Mapping[str, CustomEngineSettings] = Field({}, description="engines of other packages, by name")
    strict_names: bool = Field(
        False,
        description="whether a policy with an unknown name stops the start; otherwise only a name in a wrong form or "
        "case does, in forbids, row policies, masks and scopes",
    )
    refresh_seconds: float = Field(
        5, ge=0.1, le=3600, description="how often the service looks for changed policies and certificates"
    )
    watch: bool = Field(
        False, description="whether events of the file system call for a look at once; needs the extra `watch`"
    )


class MemberSettings(Section):
    """Spelling of a principal in lists of grantees."""

    template: Annotated[str, AfterValidator(_template)] = Field(
        "user:{subject}",
        description="a user of `identity.cel_provider` as a member; `{subject}` of others is `<idp>~<subject>`, unless "
        "the template holds `{idp}`",
    )
    claim: str | None = Field(
        None,
        description="attribute in place of `{subject}`, such as `email`: a key of `claims.attributes` of a provider. A "
        "user without this attribute is no member",
    )
    service_accounts: tuple[str, ...] = Field(
        (),
        description="patterns of addresses, such as `*.iam.gserviceaccount.com`: a `user:` with such an address is a "
        "`serviceAccount:`",
    )


ThroughViews: TypeAlias = Literal["owner", "caller", "both"]
"""Readers of a table behind a view that runs as its owner."""


class BarrierSettings(Section):
    """Engines whose rewritten statements keep the expressions of the statement away from hidden rows."""

    duckdb: bool = Field(True, description="a source is read as whole rows before an expression that can fail on a row")
    spark: bool = Field(True, description="a sample of all rows around a source, where an expression can fail on a row")


class RowAccessSettings(Section):
    """Settings that row policies and masks share."""

    protected: tuple[str, ...] = Field(
        (), description="warehouses and namespaces below which a table without policies shows no rows"
    )
    member: MemberSettings = defaults(MemberSettings)
    through_views: ThroughViews = Field(
        "owner",
        description="whose policies hold behind a view that runs as its owner: the owner's, those of the user of the "
        "query, or both",
    )
    barrier: BarrierSettings = defaults(BarrierSettings)
