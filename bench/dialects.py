"""Dialects beside native checks of one service, and Polaris's questions beside OPA with the same twenty rules.

    python bench/dialects.py [--turns N] [--seconds N]

One line for each dialect: CPU of a request of both, and the ratio with its goal. Loads of both follow one another in turns,
and the middle ratio counts. Exit with an error at a wrong answer, or above a goal.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from contest import Contestant, requests_of
from figures import Figure, middle_pair
from load import check_answers, check_under_load, measure
from servers import opa_server, our_service
from tools import opa
from workloads.rule import quote, rego_rule
from workloads.single_checks import RoleRule, cel_text, domain_path, twenty_rules
from workloads.workload import QUERY, RULES_FILE, RightAnswer, Side, Workload, pdp_config

_MANY: Final = 1_000
_POLARIS: Final = "/v1/data/polaris/authz"


class Race(NamedTuple):
    """Two sides of the same questions, the connections of a load, and the greatest ratio of their CPU."""

    workload: Workload
    connections: int
    goal: float
    beside_opa: bool = False


def polaris_body(role: str, path: str) -> dict[str, Any]:
    """Return the body of a load for a read."""
    schema, name = path.split(".")
    parents = [{"type": "CATALOG", "name": "lake", "parents": []}, {"type": "NAMESPACE", "name": schema, "parents": []}]
    table = {"type": "TABLE_LIKE", "name": name, "parents": parents}
    return {
        "input": {
            "actor": {"principal": role, "roles": []},
            "action": "LOAD_TABLE_WITH_READ_DELEGATION",
            "resource": {"targets": [table], "secondaries": []},
            "context": {"request_id": QUERY},
        }
    }


def polaris_rego(rules: Sequence[RoleRule]) -> str:
    """Return the rules as OPA's users write them for Polaris."""
    table = "input.resource.targets[0]"
    namespaces = f'[parent.name | some parent in {table}.parents; parent.type == "NAMESPACE"]'
    texts = [
        "package polaris.authz", "", "default allow := false", "",
        f'path := concat(".", array.concat({namespaces}, [{table}.name]))', "",
    ]  # fmt: skip
    for rule in rules:
        actions = 'input.action == "LOAD_TABLE_WITH_READ_DELEGATION"'
        texts.append(
            rego_rule("allow", [f"input.actor.principal == {quote(rule.role)}", actions, *rule.test.rego("path")])
        )
    return "\n".join(texts)


def polaris_beside_opa(random: Random) -> Race:
    """Return Polaris's questions about reads, half of them allowed."""
    rules = twenty_rules(random)
    roles = sorted({rule.role for rule in rules})
    bodies: list[dict[str, Any]] = []
    right: list[RightAnswer] = []
    while len(bodies) < 512:
        rule, wanted = random.choice(rules), len(bodies) % 2 == 0
        role = rule.role if wanted else random.choice(roles)
        path = domain_path(random, rule if wanted else None)
        if any(each.role == role and each.test.holds(path) for each in rules) == wanted:
            bodies.append(polaris_body(role, path))
            right.append(wanted)
    polaris = {"catalogs": {"lake": "lake"}}
    config = pdp_config({"lake": {"refs": "none"}}, "cel", policies={"rules": [RULES_FILE]}, polaris=polaris)
    opened = "nessie.server.authorization.rules.open=op=='VIEW_REFERENCE'\n"
    ours = Side({"pdp.yaml": config, RULES_FILE: cel_text(rules) + opened}, _POLARIS, bodies)
    return Race(
        Workload("polaris", ours, Side({"policy.rego": polaris_rego(rules)}, _POLARIS, bodies), right), 32, 0.5, True
    )


def beside_native() -> list[Race]:
    """Return an evaluation beside a check, and a thousand evaluations and checks of Lakekeeper's API beside native ones."""
    names = {"subjects": {"user": "user:oidc~{id}"}, "resources": {"record": "table:lake/records/{id}"}, "actions": {"read": "read_data"}}  # fmt: skip
    callers = {"local": {"loopback": True, "may_assert": ["principals"], "empty": ["roles", "groups", "attributes"]}}
    world: dict[str, Any] = {"grants": [{"principal": "user:oidc~bob", "privilege": "select", "object": f"table:lake/records/r{at}"} for at in range(0, _MANY, 2)]}  # fmt: skip
    config = pdp_config(
        {"lake": {}}, "grants", policies={"rules": []}, store={"url": "file:world.json"}, authzen=names, identity={"callers": callers}
    )  # fmt: skip
    files = {"pdp.yaml": config, "world.json": quote(world)}
    one = {"principal": "user:oidc~bob", "action": "read_data"}
    checks = [one | {"resource": f"table:lake/records/r{at}"} for at in range(_MANY)]
    right = list(range(0, _MANY, 2))
    evaluations = [{"resource": {"type": "record", "id": f"r{at}"}} for at in range(_MANY)]
    around = {"subject": {"type": "user", "id": "bob"}, "action": {"name": "read"}}
    table = {"action": {"action": "read_data"}, "warehouse-id": "lake", "namespace": ["records"]}
    bridge = [
        {"identity": {"user": "oidc~bob"}, "operation": {"table": table | {"table": f"r{at}"}}} for at in range(_MANY)
    ]
    single = [around | each for each in evaluations[:512]]
    alone = [at % 2 == 0 for at in range(512)]
    whole = Side(files, "/v1/check", [{"checks": checks}])
    return [
        Race(
            Workload(
                "an evaluation", Side(files, "/access/v1/evaluation", single),
                Side(files, "/v1/check", [{"checks": [check]} for check in checks[:512]]), alone,
            ), 32, 1.3,
        ),
        Race(
            Workload("1,000 evaluations", Side(files, "/access/v1/evaluations", [around | {"evaluations": evaluations}]), whole, [right]),
            1, 2.0,
        ),
        Race(
            Workload(
                "1,000 batch checks", Side(files, "/management/v1/action/batch-check", [{"checks": bridge}]), whole, [right],
            ), 1, 2.0,
        ),
    ]  # fmt: skip


def run(race: Race, turns: int, seconds: int) -> Figure:
    """Run both sides in turns; return the CPU of a request of both in microseconds."""
    workload, pairs = race.workload, []
    with ExitStack() as held, tempfile.TemporaryDirectory(prefix="pdp-bench-") as folder:
        ours = requests_of(workload, workload.ours, "plain", Path(folder) / "ours")
        theirs = requests_of(workload, workload.opa, "plain", Path(folder) / "peer")
        server = held.enter_context(our_service(workload.ours.files))
        peer = held.enter_context(opa_server(opa(), workload.opa.files)) if race.beside_opa else server
        both = Contestant(server, ours), Contestant(peer, theirs)
        for each in both:
            each.started()
            check_answers(each.server, each.requests)
            check_under_load(each.server, each.requests, race.connections)
        for turn in range(turns):
            order = both if turn % 2 == 0 else both[::-1]
            first, second = (measure(each.server, each.requests, race.connections, seconds).cpu for each in order)
            pairs.append((first, second) if turn % 2 == 0 else (second, first))
    return Figure(workload.name, *middle_pair(pairs), "us", f"<= {race.goal}")


def main() -> None:
    """Print a line for each dialect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="loads of each side (5)")
    parser.add_argument("--seconds", type=int, default=3, help="seconds of a load (3)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the questions (1)")
    options = parser.parse_args()
    random = Random(options.seed)
    missed = []
    for race in [polaris_beside_opa(random), *beside_native()]:
        figure = run(race, options.turns, options.seconds)
        peer = "OPA" if race.beside_opa else "native"
        print(f"{figure.name:<20} {figure.ours:9.1f} / {figure.peer:9.1f} us of {peer:<6} = {figure.ratio:.3f}  {figure.goal}", flush=True)  # fmt: skip
        missed += [] if figure.met else [figure.name]
    if missed:
        sys.exit(f"above the goal: {', '.join(missed)}")


if __name__ == "__main__":
    main()
