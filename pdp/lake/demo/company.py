"""Company of a demonstration: its teams and tables, the folder of its service, and the tokens of its senders.

The tokens come from an identity provider that exists in this folder alone.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec

WAREHOUSE: Final = "lake"
IDP: Final = "oidc"
_NOTE: Final = """\
A demonstration: no person, table or access in this folder is real.

The service that wrote the audit here ran with a clock of its own (pdp/lake/demo/clock.py), so that a month passed
in less than a minute. Times of records are the times of that clock. Ids of records, and times of files, are real.
"""


class Team(msgspec.Struct, frozen=True):
    """Members of a role. `interests` weigh the namespaces of their queries; `queries` sets the number for a day.

    A team that `writes` owns the tables of its first interest.
    """

    members: tuple[str, ...]
    interests: Mapping[str, int]
    queries: float
    writes: bool = False


class Company(msgspec.Struct, frozen=True):
    """Namespaces with their tables, and teams by the name of their role."""

    tables: Mapping[str, tuple[str, ...]]
    teams: Mapping[str, Team]

    def all_tables(self) -> list[tuple[str, str]]:
        """Return the namespace and the name of each table."""
        return [(namespace, table) for namespace, tables in self.tables.items() for table in tables]


def read_company() -> Company:
    """Return the company of the demonstration."""
    return msgspec.yaml.decode(files(__package__).joinpath("company/company.yaml").read_bytes(), type=Company)


def write_configuration(folder: Path) -> Path:
    """Write the configuration and the policies of the company into a new folder; return the file `pdp.yaml`."""
    with as_file(files(__package__).joinpath("company")) as source:
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("company.yaml"))
    members = "".join(
        f'  - {{principal: "user:{IDP}~{member}", privilege: assignee, object: "role:{role}"}}\n'
        for role, team in read_company().teams.items()
        for member in team.members
    )
    with (folder / "world.yaml").open("a", encoding="utf-8") as world:
        world.write(members)
    (folder / "README.txt").write_text(_NOTE, encoding="utf-8")
    return folder / "pdp.yaml"


def replace_policies(folder: Path) -> None:
    """Put the policies of the second half of the month into effect, for the next start of the service."""
    (folder / "forbid-later.properties").replace(folder / "forbid.properties")


_ISSUER: Final = "https://login.fernhill.example"
_KEY: Final = "demo"
_SECONDS: Final = 86_400
"""Life of a token in real seconds: libraries that check tokens do not follow the clock of the demonstration."""


def write_tokens(folder: Path, subjects: Iterable[str]) -> dict[str, str]:
    """Write the public key of the provider into a folder; return a token for each subject. The private key is lost."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": _KEY, "use": "sig"}
    (folder / "keys.json").write_bytes(msgspec.json.encode({"keys": [public]}))
    now = int(time.time())
    claims = {"iss": _ISSUER, "aud": "pdp", "iat": now - 60, "exp": now + _SECONDS}
    return {subject: jwt.encode({**claims, "sub": subject}, key, "ES256", {"kid": _KEY}) for subject in subjects}
