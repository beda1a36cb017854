"""Way of a warm check: the files of `pdp/` that one POST /v1/check runs through, in order of their first call.

Run: python bench/way.py [most files]

A real service answers on loopback. The third equal check is recorded: from its bytes to the answer, and until its audit
record is with the thread that writes files. Exits with 1 if more files run than the bound.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import uvloop

import pdp
from pdp.app.run import embedded_settings
from pdp.app.service import Service

MOST_FILES: Final = 35
"""Files of a warm check. Each has to be known to whoever follows a decision."""
WARM: Final = 2
"""Checks before the recorded one: the first makes a plan, the second remembers it."""
_ROOT: Final = Path(pdp.__file__).parent
_CHECK: Final = {"principal": "user:oidc~Alice", "action": "read_data", "resource": "table:lake/sales/orders"}
_GATHER_SECONDS: Final = 0.2
"""Longer than the pause in which the audit gathers records."""


def main(arguments: Sequence[str]) -> int:
    """Print the files with the number of their functions; return the exit code."""
    most = int(arguments[0]) if arguments else MOST_FILES
    with tempfile.TemporaryDirectory() as folder:
        calls = uvloop.run(_recorded(Path(folder)))
    files = Counter(_file(code) for code in calls)
    for file, functions in files.items():
        print(f"{functions:4} {file}")
    print(f"{len(calls)} functions in {len(files)} files; at most {most} files")
    return int(len(files) > most)


async def _recorded(folder: Path) -> list[CodeType]:
    """Return the functions of the product that the check calls, in order of their first call."""
    service = Service(_settings(folder))
    try:
        await service.start()
        reader, writer = await asyncio.open_connection(*service.addresses["http"].rsplit(":", 1))
        for _ in range(WARM):
            await _ask(reader, writer)
            await asyncio.sleep(_GATHER_SECONDS)
        with recording() as calls:
            await _ask(reader, writer)
            await asyncio.sleep(_GATHER_SECONDS)
        writer.close()
    finally:
        await service.stop()
    return calls


def _settings(folder: Path) -> Any:
    addresses = [f"server.{name}=127.0.0.1:0" for name in ("http", "grpc", "diagnostics")]
    audit = f"audit.sinks={json.dumps([{'file': str(folder / 'audit')}])}"
    return embedded_settings((*addresses, "server.lame_duck_seconds=0", "server.drain_seconds=0", audit))


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send the check, and read the answer."""
    body = json.dumps({"checks": [_CHECK]}).encode()
    head = f"POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).decode()
    if not answer.startswith("HTTP/1.1 200 "):
        raise RuntimeError(answer)
    length = next(line for line in answer.lower().splitlines() if line.startswith("content-length:"))
    decisions = json.loads(await reader.readexactly(int(length.partition(":")[2])))["decisions"]
    if len(decisions) != 1:
        raise RuntimeError(f"{decisions}")


@contextmanager
def recording(root: Path = _ROOT) -> Iterator[list[CodeType]]:
    """Record the functions in files below a folder that this thread calls, in order of their first call."""
    calls: dict[CodeType, None] = {}
    prefix = f"{root}/"

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(prefix):
            calls[frame.f_code] = None

    found: list[CodeType] = []
    gc.disable()  # finalizers of other requests are not on the way
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        gc.enable()
        found += _functions(calls)


def _functions(calls: Iterable[CodeType]) -> Iterator[CodeType]:
    """Yield functions: a lambda or a comprehension belongs to the function around it."""
    return (code for code in calls if not code.co_name.startswith("<"))


def _file(code: CodeType) -> str:
    return str(Path(code.co_filename).relative_to(_ROOT.parent))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
