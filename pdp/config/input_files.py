"""Files that others write: read if they are regular, told apart from files of other systems, decoded with places.

Opening a pipe waits for a writer for ever, and a device has no end. One such name beside policies would stop reloads.
Knows no policy.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import yaml

from pdp.errors import InvalidArgument, Place, PolicyError
from pdp.model import strict
from pdp.model.strict import refuse_duplicates, sentence

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


_PATH: Final = re.compile(r"`\$([^`]*)`$")
_STEP: Final = re.compile(r"\[\d+\]|\.[^.\[]+")


def read_text(path: Path) -> str:
    """Return the text of a file; raise PolicyError for a file that cannot be read or is not UTF-8."""
    try:
        return read_regular(path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise PolicyError(f"cannot be read: {error.strerror}", Place(str(path), 0)) from None
    except UnicodeDecodeError:
        raise PolicyError("does not parse: it is not UTF-8", Place(str(path), 0)) from None


def parse_data(text: str, path: Path) -> Any:
    """Return the value of a text in the language of the file's name; raise PolicyError."""
    try:
        return _json(text) if path.suffix == ".json" else strict.load_yaml(text)
    except yaml.MarkedYAMLError as error:
        mark, cause = error.problem_mark, error.problem
        place = Place(str(path), mark.line + 1, mark.column + 1) if mark else Place(str(path), 0)
    except json.JSONDecodeError as error:
        place, cause = Place(str(path), error.lineno, error.colno), sentence(error.msg)
    except (ValueError, RecursionError, yaml.YAMLError, InvalidArgument) as error:
        place, cause = Place(str(path), 0), " ".join(str(error).split())
    raise PolicyError(f"does not parse: {cause}", place)


def place_of(file: str, text: str, where: Sequence[str | int]) -> Place:
    """Return the place of a value, or of the nearest one around the value."""
    found = strict.position_of(text, where)
    return Place(file, *found[:2]) if found else Place(file)


def path_in(message: str) -> list[str | int]:
    """Return the path at the end of a decoder's message, such as "- at `$.policies[0].id`"; empty without one."""
    path = _PATH.search(message)
    steps = _STEP.findall(path[1]) if path else []
    return [int(step[1:-1]) if step[0] == "[" else step[1:] for step in steps]


def _json(text: str) -> Any:
    data = json.loads(text)  # first, because the errors of this reader have a line
    refuse_duplicates(text.encode())
    return data
