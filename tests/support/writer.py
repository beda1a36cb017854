"""A service of its own: opens the store at an address, and writes so many grants; or stops inside of a write."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from functools import partial

from support.service.stores import added, adding, followed

from pdp.facts.objects import Change
from pdp.store.sql import open_store
from pdp.store.store import LogEntry


def main(url: str, first: int, count: int) -> None:
    """Write grants one by one, from number `first` on."""
    store = open_store(url)
    facts = store.load()
    for number in range(first, first + count):
        facts = followed(facts, store.write("process", facts, partial(adding, number)))
    store.close()


def hang(url: str, count: int) -> None:
    """Write many grants in one revision, again and again, and say so before each."""
    store = open_store(url)
    facts = store.load()
    number = 0
    while True:
        number += count

        def prepare(log: Sequence[LogEntry], number: int = number) -> list[Change]:
            sys.stdout.write("writing\n")
            sys.stdout.flush()
            return added(*range(number, number + count))

        facts = followed(facts, store.write("hanging", facts, prepare))
        time.sleep(0.01)


if __name__ == "__main__":
    if sys.argv[1] == "hang":
        hang(sys.argv[2], int(sys.argv[3]))
    else:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
