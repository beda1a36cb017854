"""Real OPA on loopback with the twenty rules as Rego, in three common styles."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TEAMS = "\n".join(f'team["user{number}"] := "big.table_0{number}"' for number in range(12))

_RULE = f"""
{_TEAMS}
named := {{"big.table_0900", "big.table_0901"}}
user := input.context.identity.user
groups := {{group | some group in input.context.identity.groups}}
visible(path) if user == "admin"
visible(path) if startswith(path, team[user])
visible(path) if {{ user == "alice"; startswith(path, "big.table_00") }}
visible(path) if {{ user in {{"alice", "bob"}}; startswith(path, "big.table_05") }}
visible(path) if {{ "analysts" in groups; startswith(path, "big.table_07") }}
visible(path) if path in named
visible(path) if startswith(path, "big.table_099")
"""

STYLES = {
    "hand-tuned": f"""package trino
import rego.v1
{_TEAMS}
named := {{"big.table_0900", "big.table_0901"}}
user := input.context.identity.user
groups := {{group | some group in input.context.identity.groups}}
prefixes contains "big.table_099"
prefixes contains team[user]
prefixes contains "big.table_00" if user == "alice"
prefixes contains "big.table_05" if user in {{"alice", "bob"}}
prefixes contains "big.table_07" if "analysts" in groups
prefixes contains "" if user == "admin"
starts := [prefix | some prefix in prefixes]
batch contains i if {{
    some i, resource in input.action.filterResources
    path := concat(".", [resource.table.schemaName, resource.table.tableName])
    strings.any_prefix_match(path, starts)
}}
batch contains i if {{
    some i, resource in input.action.filterResources
    concat(".", [resource.table.schemaName, resource.table.tableName]) in named
}}
""",
    "ordinary": f"""package trino
import rego.v1
{_RULE}
batch contains i if {{
    some i, resource in input.action.filterResources
    visible(concat(".", [resource.table.schemaName, resource.table.tableName]))
}}
""",
    "allow with": f"""package trino
import rego.v1
{_RULE}
default allow := false
allow if {{
    table := input.action.resource.table
    visible(concat(".", [table.schemaName, table.tableName]))
}}
batch contains i if {{
    some i
    raw_resource := input.action.filterResources[i]
    allow with input.action.resource as raw_resource
}}
""",
}
"""Style -> policy. `allow with` is the form in Trino's documentation."""


def binary() -> str | None:
    """Return the path of OPA, built with Go if not installed; None without OPA and Go."""
    found = shutil.which("opa") or shutil.which("opa", path=str(Path.home() / "go" / "bin"))
    if found is None and shutil.which("go"):
        subprocess.run(["go", "install", "github.com/open-policy-agent/opa@v1.22.0"], check=True, timeout=600)
        found = shutil.which("opa", path=str(Path.home() / "go" / "bin"))
    return found


@contextmanager
def serving(opa: str, style: str) -> Iterator[str]:
    """Run OPA with the policy of one style and yield the URL for batches."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        policy = Path(folder) / "trino.rego"
        policy.write_text(STYLES[style])
        command = [
            opa,
            "run",
            "--server",
            "--disable-telemetry",
            "--log-level",
            "error",
            "--addr",
            address,
            str(policy),
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait(f"http://{address}/health", process)
            yield f"http://{address}/v1/data/trino/batch"
        finally:
            process.terminate()
            process.wait(10)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            if process.poll() is not None:
                raise RuntimeError("OPA did not start") from None
            time.sleep(0.05)
    raise RuntimeError("OPA did not answer")
