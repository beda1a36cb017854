"""A million grants in one process: time and memory to load them, and the cost of a check beside a small world.

python bench/million.py
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

import lakehouses
from lakehouses import MILLION, TEN_THOUSAND, AskedRight, Layout

from pdp.engines.engine import EngineQuestion
from pdp.engines.grants.engine import GrantsEngine
from pdp.facts.objects import SERVER, Change, Grant, GrantAdded, Object, ObjectPut, key_from_text
from pdp.facts.snapshot import Facts
from pdp.model.question import Question, Resource
from pdp.model.references import parse_principal, parse_resource
from pdp.store.sql import open_store

EngineCheck: TypeAlias = tuple[EngineQuestion, tuple[Resource, ...]]
"""Arguments of one call of the engine."""


def load(objects: Iterable[Mapping[str, Any]], grants: Iterable[Mapping[str, str]]) -> Facts:
    """Return the entries of a world as facts in memory."""
    changes = list(object_changes(objects))
    return Facts.build(
        "bench", 0, [change.object for change in changes], (change.grant for change in grant_changes(grants))
    )


def object_changes(objects: Iterable[Mapping[str, Any]]) -> Iterator[ObjectPut]:
    """Yield the registration of each object."""
    for entry in objects:
        project = entry.get("parent", "").partition(":")[2]
        yield ObjectPut(Object(key_from_text(entry["object"]), project, entry.get("managedAccess", False)))


def grant_changes(grants: Iterable[Mapping[str, str]]) -> Iterator[GrantAdded]:
    """Yield the addition of each grant. Adjacent grants on the same object share its key, as if read from a store."""
    text, key = "", SERVER
    for grant in grants:
        if grant["object"] != text:
            text, key = grant["object"], key_from_text(grant["object"])
        yield GrantAdded(Grant(key, grant["privilege"], sys.intern(grant["principal"])))


def engine_check(question: AskedRight) -> EngineCheck:
    """Return a question as the group and resource for the engine."""
    principal, action, text = question
    resource = parse_resource(text)
    return EngineQuestion(Question(parse_principal(principal), action), resource.type, resource.warehouse, None), (
        resource,
    )


def per_check(engine: GrantsEngine, facts: Facts, checks: Sequence[EngineCheck]) -> float:
    """Return the microseconds of processor time for one resource. Each check is decided once."""
    start = time.process_time()
    for group, resources in checks:
        engine.decide(group, resources, facts)
    return (time.process_time() - start) * 1e6 / sum(len(resources) for _, resources in checks)


def engine_costs(engine: GrantsEngine, facts: Facts, layout: Layout) -> dict[str, float]:
    """Return the cost of a mixed check: `fresh` for the first check of a user, `known` for later checks of new objects."""
    rng = random.Random(23)
    users = [f"user:oidc~u{number}" for number in range(0, layout.users, layout.users // 1_000)]
    first = [(user, *question[1:]) for user, question in zip(users, layout.questions(rng, len(users)), strict=True)]
    later = [(rng.choice(users), *question[1:]) for question in layout.questions(rng, 20_000)]
    gc.freeze()
    fresh = per_check(engine, facts, [engine_check(question) for question in first])
    parts = [[engine_check(question) for question in later[at : at + 1_000]] for at in range(0, len(later), 1_000)]
    return {"fresh": fresh, "known": median(per_check(engine, facts, part) for part in parts)}


def million() -> None:
    """Measure a million grants, from memory and from a store.

    Each runs in its own process, so that the memory of the process is the memory of the facts.
    """
    print("a million grants on 100,000 tables, 5,000 users, 500 roles, in process (processor time)")
    with tempfile.TemporaryDirectory() as folder:
        big, stored = (in_own_process(part, f"sqlite:///{folder}/store.db") for part in ("from_memory", "from_store"))
    data = lakehouses.ten_thousand()
    small = engine_costs(GrantsEngine(), load(data["objects"], data["grants"]), TEN_THOUSAND)
    print(
        f"  facts from memory in {big['build']:.1f} s; {big['memory']:.0f} MB resident, {big['before']:.0f} MB before"
    )
    print(
        f"  facts from SQLite in {stored['build']:.1f} s; {stored['memory']:.0f} MB resident; the file {stored['file']:.0f} MB"
    )
    print(f"  writing them to SQLite took {big['written']:.0f} s")
    for what, text, goal in (("fresh", "the first of its user", ""), ("known", "never asked before", "goal 1.0x")):
        of_both = f"{big['costs'][what]:>9.2f} us, among 2,000 grants {small[what]:>6.2f}"
        print(f"  a mixed check, {text:<22} {of_both} {big['costs'][what] / small[what]:>8.2f}x  {goal}".rstrip())
    print()


def in_own_process(part: str, url: str) -> Any:
    """Return the result of a function of OWN_PROCESS, run in a new process."""
    command = [sys.executable, __file__, f"--{part}", url]
    return json.loads(subprocess.run(command, check=True, timeout=600, stdout=subprocess.PIPE).stdout)


def from_memory(url: str) -> dict[str, Any]:
    """Measure facts built from generated entries, without the time to generate them; then write them to the store."""
    objects, before = MILLION.objects(), resident()
    start = time.process_time()
    for _ in grant_changes(lakehouses.million_grants()):
        pass
    generation = time.process_time() - start
    start = time.process_time()
    facts = load(objects, lakehouses.million_grants())
    build = time.process_time() - start - generation
    gc.collect()
    memory = resident()
    costs = engine_costs(GrantsEngine(), facts, MILLION)
    start = time.process_time()
    write(url)
    return {"build": build, "before": before, "memory": memory, "costs": costs, "written": time.process_time() - start}


def write(url: str) -> None:
    """Write all objects and grants to an empty store, 100,000 changes at a time."""
    store = open_store(url)
    facts = store.load()
    changes: Iterator[Change] = chain(object_changes(MILLION.objects()), grant_changes(lakehouses.million_grants()))
    while some := list(islice(changes, 100_000)):
        facts = replace(facts, sequence=store.write("bench", facts, lambda log: some)[-1].sequence)
    store.close()


def from_store(url: str) -> dict[str, Any]:
    """Measure facts read from the store."""
    start = time.process_time()
    store = open_store(url)
    facts = store.load()
    build = time.process_time() - start
    gc.collect()
    memory = resident()
    if not facts.sequence:
        raise SystemExit("the store is empty")
    file = sum(path.stat().st_size for path in Path(url.removeprefix("sqlite:///")).parent.iterdir())
    store.close()
    return {"build": build, "memory": memory, "file": file / 1e6}


def resident() -> float:
    """Return the resident memory of this process in megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


OWN_PROCESS: Final = {"--from_memory": from_memory, "--from_store": from_store}

if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(OWN_PROCESS[sys.argv[1]](sys.argv[2])))
    else:
        million()
