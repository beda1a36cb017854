# mypy: ignore-errors
"""A separate package with engines and resolvers of its own, as another team would write it."""

import asyncio
import os
from hashlib import sha256
from pathlib import Path

from pdp.engines.engine import ABSTAIN, FORBID, PERMIT, READS_POLICIES, Cost, Verdicts
from pdp.model.answer import Trace

NAME = "acme"
if os.environ.get("ACME_IMPORTED"):
    Path(os.environ["ACME_IMPORTED"]).write_text("imported")


class NameEngine:
    """Permits tables whose names begin with a prefix, and forbids tables with the name `secret`."""

    name, reads, cost = "acme_names", READS_POLICIES, Cost.MICROSECONDS

    def __init__(self, options):
        self.prefix = options.get("prefix", "public_")
        self.digest = sha256(self.prefix.encode()).hexdigest()

    def applies(self, action, type):
        return type == "table" and action in ("read_data", "get_metadata")

    def verdict(self, resource):
        if resource.path[-1] == "secret":
            return FORBID, f"{self.name}:secret"
        return (PERMIT, f"{self.name}:{self.prefix}") if resource.path[-1].startswith(self.prefix) else (ABSTAIN, None)

    def decide(self, group, resources, facts):
        found = [self.verdict(resource) for resource in resources]
        return Verdicts(bytes([effect for effect, _ in found]), [by for _, by in found])

    def explain(self, group, resource, facts):
        effect, by = self.verdict(resource)
        return Trace(
            f"{self.name}: {resource.path[-1]}", ("silent", "permit", "forbid")[effect], by or "another prefix"
        )


class RemoteEngine(NameEngine):
    """The same verdicts, of a service that must be awaited. Notes each question in a file."""

    name, cost = "acme_remote", Cost.MILLISECONDS

    def __init__(self, options):
        super().__init__(options)
        self.log = options.get("log")

    async def decide(self, group, resources, facts, deadline):
        await asyncio.sleep(0.001)
        if self.log:
            note(self.log, resources)
        return super().decide(group, resources, facts)


class BrokenEngine(NameEngine):
    """Permits everything, in a wrong form that an option names."""

    name = "acme_broken"

    def __init__(self, options):
        super().__init__({})
        self.form = options["form"]

    def applies(self, action, type):
        if self.form == "applies" and action == "read_data":
            raise ValueError("no")
        return super().applies(action, type)

    def decide(self, group, resources, facts):
        count, by = len(resources), [f"{self.name}:yes"] * len(resources)
        if self.form == "raises":
            raise ValueError("no")
        forms = {
            "none": None,
            "long": Verdicts(bytes([PERMIT]) * (count + 1), [*by, by[0]]),
            "few_reasons": Verdicts(bytes([PERMIT]) * count, by[1:]),
            "list": Verdicts([PERMIT] * count, by),
            "effect": Verdicts(bytes([9]) * count, by),
            "no_reason": Verdicts(bytes([PERMIT]) * count, [None] * count),
            "other_reason": Verdicts(bytes([PERMIT]) * count, ["grants:all"] * count),
            "truth": [True] * count,
            "applies": Verdicts(bytes([PERMIT]) * count, by),
            "errors": Verdicts(bytes([PERMIT]) * count, by, {count: ("x",)}),
        }
        return forms[self.form]


class LateEngine(NameEngine):
    """Permits everything, too late or with an error."""

    name = "acme_late"

    def __init__(self, options):
        super().__init__({})
        self.form = options["form"]
        self.file = Path(options.get("file", os.devnull))

    async def decide(self, group, resources, facts, deadline):
        while not self.file.exists():  # noqa: ASYNC110  a file has no event
            await asyncio.sleep(0.01)
        if self.form == "late":
            await asyncio.sleep(60)
        if self.form == "raises":
            raise TimeoutError
        count = len(resources) + (self.form == "long")
        return Verdicts(bytes([PERMIT]) * count, [f"{self.name}:yes"] * count)


class FileEngine(NameEngine):
    """Permits the prefix that a file names."""

    name = "acme_file"

    def __init__(self, options):
        super().__init__({"prefix": Path(options["file"]).read_text().strip()})


class AwaitedFileEngine(FileEngine):
    """The same, awaited."""

    name = "acme_awaited_file"

    async def decide(self, group, resources, facts, deadline):
        return super().decide(group, resources, facts)


class UnstableEngine(NameEngine):
    """Permits the prefix of the options, with another digest in each process."""

    name = "acme_unstable"

    def __init__(self, options):
        super().__init__(options)
        self.digest = str(os.getpid())


class FileResolver:
    """Permits the tables that a file names. The file is read at each question."""

    @property
    def file(self):
        return Path(os.environ["ACME_TABLES"])

    @property
    def digest(self):
        return sha256(self.file.read_bytes()).hexdigest()

    def __call__(self, user, catalog, schema, table):
        return table in self.file.read_text().split()


in_file = FileResolver()


def note(file, resources):
    with Path(file).open("a") as log:
        log.writelines(f"{resource.path[-1]}\n" for resource in resources)


def no_engine(options):
    return object()


def is_admin(user, catalog, schema, table):
    return user is not None and user.get("role") == "admin"


RESULTS = {}


def recorded(user, catalog, schema, table):
    return RESULTS["resolver"](user, catalog, schema, table)
