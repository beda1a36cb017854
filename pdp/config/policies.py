"""Keys of `policies` and `row_access`: the files that hold policies, and the spelling of members in these files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from pdp.config.section import Section
from pdp.config.sources import SourceSettings

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
    scopes: ScopesSettings = ScopesSettings()
    cedar: CedarSettings = CedarSettings()
    engines: Mapping[str, CustomEngineSettings] = Field({}, description="engines of other packages, by name")
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


class RowAccessSettings(Section):
    """Settings that row policies and masks share."""

    protected: tuple[str, ...] = Field(
        (), description="warehouses and namespaces below which a table without policies shows no rows"
    )
    member: MemberSettings = MemberSettings()
    through_views: ThroughViews = Field(
        "owner",
        description="whose policies hold behind a view that runs as its owner: the owner's, those of the user of the "
        "query, or both",
    )
