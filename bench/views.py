"""Cost of a view chain relative to its target alone, from body to answer in this process. Prints a table.

python bench/views.py [views]
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec

from pdp.app.facts import build_pdp
from pdp.audit.records.record import AnyRecord
from pdp.decision.codec import decode_batch, encode_answer
from pdp.decision.service import Pdp
from pdp.engines.engine import EngineQuestion, Verdicts
from pdp.identity.callers import EMBEDDED_CALLER
from pdp.identity.evidence import admit
from pdp.model.events import OPEN_GATE, AnswerHold
from pdp.offline.cases.cases import Case
from pdp.offline.cases.runner import MemoryAudit, build_case_pdp
from pdp.views.codec import decode_load, encode_load
from pdp.views.loads import ViewSecurity

OWNER = "trino.run-as-owner"
ENGINES = {"trino": {"type": "trino", "owner_property": OWNER, "identities": {"oidc": {"audiences": ["trino"]}}}}
ROUNDS = 2000
Run = Callable[[], Coroutine[Any, Any, bytes]]


class DroppingAudit:
    """Audit without records, so that the speed of the disk does not matter."""

    gate: AnswerHold = OPEN_GATE

    def admit(self) -> None: ...

    def append(self, record: AnyRecord) -> None: ...

    def note(self, event: object) -> bool:
        return True


class CountingEngine:
    """Engine that counts its calls."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def decide(self, group: EngineQuestion, resources: Sequence[Any], facts: Any) -> Verdicts:
        self.calls += 1
        verdicts: Verdicts = self._engine.decide(group, resources, facts)
        return verdicts


def service(views: int) -> tuple[Pdp, ViewSecurity]:
    """Build a service with grants for every user on the namespace."""
    users = [f"user:oidc~u{number}" for number in range(views + 1)]
    grants = [{"principal": user, "privilege": "select", "object": "namespace:lake/ns"} for user in users]
    data = {"engines": ["grants"], "world": {"objects": [], "grants": grants}, "config": {"trusted_engines": ENGINES}}
    pdp, settings = build_case_pdp(Case("bench", Path.cwd(), data), build_pdp, MemoryAudit())
    pdp.audit = DroppingAudit()
    return pdp, ViewSecurity(pdp, settings)


def load_body(views: int, owner: str = "") -> bytes:
    """Return the body of a load through `views` views. `owner` can be a pattern with the number of the view."""
    known = [
        {"resource": f"view:lake/ns/v{number}", "properties": {OWNER: owner.format(number + 1)} if owner else {}}
        for number in range(views)
    ]
    body = {
        "principal": "user:oidc~u0",
        "action": "loadTable",
        "target": "table:lake/ns/t",
        "referencedBy": ",".join(f"ns%1Fv{number}" for number in range(views)),
        "views": known,
        "caller": {"idp": "oidc", "subject": "svc", "audiences": ["trino"]},
    }
    return json.dumps(body).encode()


def check_body(views: int) -> bytes:
    """Return the body of a plain batch with the same checks as the chain."""
    parts = [("view", f"v{number}", action) for number in range(views) for action in ("get_metadata", "select")]
    parts += [("table", "t", action) for action in ("get_metadata", "read_data", "write_data")]
    checks = [
        {"principal": "user:oidc~u0", "action": action, "resource": f"{type}:lake/ns/{name}"}
        for type, name, action in parts
    ]
    return json.dumps({"checks": checks}).encode()


async def measure(runs: dict[str, Run]) -> dict[str, list[float]]:
    """Return the sorted microseconds of each run. Runs take turns, so that other load affects all of them."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.perf_counter()
            await run()
            found[name].append((time.perf_counter() - start) * 1e6)
    return {name: sorted(times[ROUNDS // 10 :]) for name, times in found.items()}


async def main(views: int) -> None:
    pdp, security = service(views)

    def loading(body: bytes) -> Run:
        async def run() -> bytes:
            return encode_load(await security.load(decode_load(body), EMBEDDED_CALLER, "bench"))

        return run

    async def checking() -> bytes:
        return encode_answer(await pdp.check(admit(decode_batch(plain, 1000), EMBEDDED_CALLER)))

    plain = check_body(views)
    runs = {
        "the target alone": loading(load_body(0)),
        f"through {views} INVOKER views": loading(load_body(views)),
        f"through {views} DEFINER views of one owner": loading(load_body(views, "u1")),
        f"through {views} DEFINER views of {views} owners": loading(load_body(views, "u{}")),
        f"the same {2 * views + 3} checks as a plain batch": checking,
    }
    found = await measure(runs)
    alone = found["the target alone"]
    base = alone[len(alone) // 2]
    for name, times in found.items():
        median = times[len(times) // 2]
        calls = await count_groups(pdp, runs[name])
        print(
            f"  {name:<42}{median:>8.1f} us p50{times[0]:>8.1f} us min {median / base:>6.2f}x {median - base:>+8.1f} us",
            end="",
        )
        print(f"  {calls} groups")


async def count_groups(pdp: Pdp, run: Run) -> int:
    """Return the number of groups of checks in one run."""
    bundle = pdp.bundle
    counting: Any = CountingEngine(bundle.default.engines[0])
    alone = msgspec.structs.replace(bundle.default, engines=(counting,))
    pdp.bundle = msgspec.structs.replace(bundle, authorities={}, default=alone, forbids=())
    await run()
    pdp.bundle = bundle
    return int(counting.calls)


if __name__ == "__main__":
    gc.freeze()
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
