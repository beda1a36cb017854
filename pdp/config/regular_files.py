"""Finder and reader of files that others write: each file once, regular files alone, up to a size.

Opening a pipe waits for a writer for ever, and a device has no end. One such name beside policies would stop reloads.
A mount of Kubernetes shows each file twice: `r.yaml` is a link into `..data`, a link to a folder such as `..2026_1`.
Files of other systems get advice.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

MAX_FILE_BYTES: Final = 64 << 20
_NAMED: Final = frozenset(
    (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)
)
"""Errors of names: who mends one changes the file, and so its stamp."""


class FileUnusable(OSError):
    """File of another kind or size than a reader takes. `strerror` is the cause."""


def is_passing(error: BaseException, *, own: bool = False) -> bool:
    """Tell whether an error comes from a failure of the machine, such as no free descriptors: the file may be sound.

    A missing or forbidden name is no such failure, unless the file is one of our `own`: others mend it by a change.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and not isinstance(cause, FileUnusable):
            return own or cause.errno not in _NAMED
        cause = cause.__cause__ or cause.__context__
    return False


def open_regular(path: Path) -> BinaryIO:
    """Return a regular file, open for reading; raise OSError at once for a pipe, a device, a socket or a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileUnusable(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, most_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Return the bytes of a regular file; raise OSError for another kind of file, or one beyond a size."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise FileUnusable(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:  # the file has grown meanwhile
        raise FileUnusable(errno.EFBIG, f"larger than {most_bytes} bytes", str(path))
    return data


def find_files(base: Path, pattern: str = "**/*") -> list[Path]:
    """Return the matches of a glob below a folder, sorted: each file once, and nothing of a hidden `..` folder.

    A pattern may name such a folder. Raise ValueError for no glob, OSError if a folder cannot be listed.
    """
    found: Iterable[Path] = base.glob(pattern)
    if not any(map(_is_hidden, Path(pattern).parts)):
        found = _mounted(base, found, recursive="**" in pattern)
    return unique_files(sorted(found))


def unique_files(paths: Iterable[Path]) -> list[Path]:
    """Return the paths without those that lead to the file of an earlier one."""
    by_file: dict[str, Path] = {}
    for path in paths:
        by_file.setdefault(os.path.realpath(path), path)
    return list(by_file.values())


def _mounted(base: Path, found: Iterable[Path], *, recursive: bool) -> Iterator[Path]:
    """Yield the paths outside hidden folders. `**` follows no link: `sub -> ..data/sub` is seen in the latter alone."""
    for path in found:
        *folders, name = path.relative_to(base).parts or ("",)
        shown = base.joinpath(*(folder for folder in folders if not _is_hidden(folder)), name)
        if _is_hidden(name) and path.is_dir():
            continue
        if shown == path or (recursive and shown.exists()):
            yield shown


def _is_hidden(part: str) -> bool:
    return part.startswith("..") and part != ".."


_CEDAR: Final = (
    "Cedar policies are no rules: name the file in `policies.cedar.policies`, and `cedar` in the engines of an "
    "authority (docs/cedar.md)"
)
_CODE: Final = (
    "permissions in code are not read: for LakeQL, name its permission files in `policies.scopes.permissions`, and "
    "`scopes` in the engines of an authority; resolvers ask `POST /v1/scopes` (docs/scopes.md). Else write grants of "
    "`select` and `modify` in a world file, or rules in CEL"
)
_SQL: Final = (
    "SQL is not read: write row policies in YAML, `policies: [{id, table, grantees, filter}]`, or give each statement "
    "to `pdp policy execute`"
)
_BY_SUFFIX: Final = {
    ".cedar": _CEDAR,
    ".cedarschema": "a Cedar schema is no rule file: name it in `policies.cedar.schema`",
    ".rego": "Rego is not read: write rules in CEL, or grants; Trino's OPA plugin asks pdp (`pdp trino-config`)",
    ".sql": _SQL,
    **dict.fromkeys((".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs"), _CODE),
}
_ROW_POLICY: Final = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?ROW\s+ACCESS\s+POLICY\s+(?:IF\s+NOT\s+EXISTS\s+)?(?P<id>\S+)\s+ON\s+(?P<table>\S+)"
    r"(?:\s+GRANT\s+TO\s*\((?P<grantees>[^)]*)\))?\s+FILTER\s+USING\s*\((?P<filter>.*)\)\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
CEDAR_ENTITIES: Final = (
    "Cedar entities are no world: name the file in `policies.cedar.entities`, or for each parent of a user or role "
    'write a grant `{principal: "user:oidc~...", privilege: assignee, object: "role:..."}`'
)
"""Advice for the entities of Cedar."""


def advice_for(suffix: str, text: str = "") -> str:
    """Return advice for a file of another system, "" for other files. A row policy in SQL is shown in YAML."""
    statements = [_ROW_POLICY.fullmatch(each) for each in _statements(text)] if suffix == ".sql" else []
    shown = [_policy(each) for each in statements if each and "<" not in each["id"]]
    if not shown or len(shown) < len(statements):
        return _BY_SUFFIX.get(suffix, "")
    return f"SQL is not read: write in YAML `policies: [{', '.join(shown)}]`, or give each to `pdp policy execute`"


def _statements(text: str) -> list[str]:
    """Return the statements of a text. A semicolon ends a statement if the next begins there."""
    code = re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE)
    return [each for each in re.split(r";\s*(?=CREATE\s|\Z)", code, flags=re.IGNORECASE) if each.strip()]


def _policy(statement: re.Match[str]) -> str:
    """Return a row policy of SQL as a mapping in YAML. Without GRANT TO, BigQuery grants to all authenticated users."""
    grantees = re.sub(r"[\"']", "", statement["grantees"] or "allAuthenticatedUsers")
    id, table = (statement[part].strip("`").replace("`", "") for part in ("id", "table"))
    # A JSON text is a YAML text, whatever quotes and line ends the condition has.
    condition = json.dumps(statement["filter"].strip(), ensure_ascii=False)
    return f"{{id: {id}, table: {table}, grantees: [{_quoted(grantees)}], dialect: bigquery, filter: {condition}}}"


def is_cedar_entity(entry: object) -> bool:
    """Tell whether a JSON value is an entity of Cedar."""
    return isinstance(entry, dict) and "uid" in entry


def _quoted(grantees: str) -> str:
    return ", ".join(f'"{grantee.strip()}"' for grantee in grantees.split(",") if grantee.strip())
