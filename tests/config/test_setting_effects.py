"""Each key that always has an effect shows the effect: two configurations that differ in the key alone differ outside.

The differences are answers to Trino and to checks, callers, principals of tokens, and errors. No service starts. A key
that takes a process, a clock or another server names the test that shows the key. `test_idle_settings` has the keys that
may be without effect.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import copy
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import psutil  # type: ignore[import-untyped]
import pytest
from aiohttp import web
from support.clients.http_client import client_of
from support.generators.setting_keys import NAME, setting_keys
from support.paths import ROOT
from support.servers.audit_receiver import receiving
from support.servers.idp import ISSUER, jwk, rsa_key, token
from support.service.audit_sinks import new_instance, record_line, until
from support.service.serving import settings_of

from pdp.app.assembly import read_rules
from pdp.app.facts import build_pdp, build_relations
from pdp.app.sources.source import open_source
from pdp.audit.push.delivery import open_spool_output
from pdp.audit.queue.sinks import SinkMetrics
from pdp.config.idle_settings import RULES
from pdp.config.load import load_settings
from pdp.config.settings import Settings
from pdp.decision.codec import decode_batch
from pdp.dialects.trino.endpoints import FailureHandler, TrinoSurface
from pdp.errors import PdpError
from pdp.identity.callers import EMBEDDED_CALLER, Callers, Peer
from pdp.identity.evidence import admit
from pdp.identity.tokens import Tokens
from pdp.lake.session import choose_catalog
from pdp.rewrite.process.messages import RewriteCall, StatementUser
from pdp.rewrite.process.worker import RewriteProcess
from pdp.row_access.service import _setup
from pdp.store.world import parse_world
from pdp.surfaces.admission import BodyLimits
from pdp.telemetry import Telemetry
from pdp.views.codec import decode_load
from pdp.views.loads import ViewSecurity

NOTHING: Final = object()
WORLD: Final = parse_world(
    {
        "objects": ["table:lake/hr/pay", "table:pond/hr/pay", "role:r"],
        "grants": [{"principal": "user:oidc~ann", "privilege": "select", "object": "warehouse:lake"}],
    }
)
BASE: Final[dict[str, Any]] = {
    "warehouses": {"lake": {"default_ref": "main"}, "pond": {"default_ref": "main"}},
    "authorities": {"default": {"engines": ["cel"]}},
    "policies": {"rules": ["permit.yaml"], "forbid": ["forbid.yaml"], "row_access": ["rows.yaml"]},
    "trino": {"catalogs": {"lk": {"warehouse": "lake"}}},
    "identity": {
        "providers": {
            "oidc": {"issuer": ISSUER, "jwks": "jwks.json", "audiences": ["pdp"]},
            "kc": {"issuer": "https://kc.example", "jwks": "jwks.json", "audiences": ["pdp"]},
        }
    },
}
Outcome = Callable[[Settings], Any]


def trino(
    operation: str, resource: Any = None, *, user: str = "ann", groups: tuple[str, ...] = (), **more: Any
) -> Outcome:
    """Return the probe of an answer to Trino."""
    action = {"operation": operation, **({"resource": resource} if resource else {}), **more}
    body = {"input": {"context": {"identity": {"user": user, "groups": list(groups)}}, "action": action}}

    def probe(settings: Settings) -> Any:
        surface = TrinoSurface(build_pdp(settings, WORLD, read_rules(settings)), 1000, 10)
        return json.loads(asyncio.run(surface.allow(json.dumps(body).encode(), EMBEDDED_CALLER)))

    return probe


def check(
    resource: str = "table:lake/hr/pay", action: str = "read_data", principal: str = "user:oidc~ann", own: str = ""
) -> Outcome:
    """Return the probe of the answer to a check, by a program on this machine, or about the owner of a token."""
    asked = {"action": action, "resource": resource, **({} if own else {"principal": principal})}

    def probe(settings: Settings) -> Any:
        pdp = build_pdp(settings, WORLD, read_rules(settings))
        who = EMBEDDED_CALLER
        if own:
            peer = Peer(host="127.0.0.1", authorization=(f"Bearer {own}",))
            who = asyncio.run(Callers(settings, Tokens(settings, Telemetry())).identify(peer))
        batch = admit(decode_batch(json.dumps({"checks": [asked]}).encode(), 10), who)
        answer = asyncio.run(pdp.decide(batch)).answer
        return [*answer.allowed], [*answer.by], dict(answer.errors)

    return probe


def caller(**peer: Any) -> Outcome:
    """Return the probe of the caller behind a peer."""

    def probe(settings: Settings) -> Any:
        callers = Callers(settings, Tokens(settings, Telemetry()))
        found = asyncio.run(callers.identify(Peer(**peer)))
        return found.name, sorted(found.may_assert), found.may_write, found.may_inspect, found.engines, found.own

    return probe


def lasting(seconds: int = 86_400) -> dict[str, Any]:
    """Return the claim of an end, by default after that of any run: some tokens are made when tests are collected."""
    return {"exp": int(time.time()) + seconds}


def said(key: Any = None, algorithm: str = "RS256", seconds: int = 86_400, **claims: Any) -> Outcome:
    """Return the probe of the principal of a token that ends in `seconds`."""

    def probe(settings: Settings) -> Any:
        text = token(key, algorithm, **lasting(seconds), **claims)
        return asyncio.run(Tokens(settings, Telemetry()).verify(text))

    return probe


def load(**more: Any) -> Outcome:
    """Return the probe of a load of a table through a view, by a trusted engine."""
    body = {
        "principal": "user:oidc~ann", "target": "table:lake/a/b/t", "action": "loadCredentials", "referencedBy": "a%1Fv",
        "views": [{"resource": f"view:lake/a/{name}", "properties": {"o": "bob"}} for name in ("v", "w")],
        "caller": {"idp": "oidc", "subject": "alice"}, **more,
    }  # fmt: skip

    def probe(settings: Settings) -> Any:
        views = ViewSecurity(build_pdp(settings, WORLD, read_rules(settings)), settings)
        loaded = asyncio.run(views.load(decode_load(json.dumps(body).encode()), EMBEDDED_CALLER, "test"))
        return loaded.decision.allowed, loaded.storage_access, [step.resource for step in loaded.steps]

    return probe


def large_trino_body(settings: Settings) -> None:
    """Check a body of Trino with a thousand values; the error is the effect."""
    asyncio.run(BodyLimits.of_trino(settings.limits).check(b"[" + b"1," * 1000 + b"1]"))


def failed(settings: Settings) -> str:
    """Return the outcome of a request of Trino after an error inside of the service."""
    pdp = build_pdp(settings, WORLD, read_rules(settings))
    return FailureHandler(pdp).handle("SelectFromColumns", RuntimeError("x"))


def rewritten(dialect: str) -> Outcome:
    """Return the probe of a statement with a hidden row and an expression that may fail."""

    def probe(settings: Settings) -> Any:
        pdp = build_pdp(settings, WORLD, read_rules(settings))
        process = RewriteProcess(_setup(pdp.bundle, WORLD, ()))
        call = RewriteCall("SELECT 1 / x FROM lake.hr.pay", dialect, StatementUser("user", "oidc~ann"))
        found = process.answer(call)
        return found.sql or found.message

    return probe


def spark_session(settings: Settings) -> Any:
    """Return all that a session of Spark gets of a lake."""
    chosen = choose_catalog("l", settings.lakes)
    return chosen.table("decisions"), chosen.properties, chosen.secrets


def policy_folder(settings: Settings) -> list[str]:
    """Return the folders beside the configuration once the source of policies is open."""
    open_source(settings)
    return sorted(file.name for file in settings.path(".").iterdir() if file.is_dir())


def silence(settings: Settings) -> bool:
    """Tell whether a source that has not answered is left alone a moment later."""
    source = open_source(settings)
    assert source is not None
    source.look()
    time.sleep(0.2)
    return source.is_silent()


def delivered(seconds: float = 20, conduct: str = "ok") -> Outcome:
    """Return the probe of what a receiver of records gets, or of the trouble, in `seconds` at most."""

    def probe(settings: Settings) -> Any:
        (sink,) = settings.audit.sinks
        with receiving(lambda number: conduct) as receiver:
            address = {"url": receiver.url} if sink.http else {"endpoint": f"http://127.0.0.1:{receiver.port}"}
            push: Any = sink.push.model_copy(update=address) if sink.push else None
            instance = new_instance()
            output = open_spool_output(settings, push, instance, SinkMetrics(Telemetry(), "s"))
            output.append(b"".join(record_line(instance, seq, "x" * 100) for seq in range(30)))
            with contextlib.suppress(AssertionError):
                until(lambda: not output.waiting() or output.trouble(), seconds)
            trouble = bool(output.trouble())
            sent = [(batch.body.count(b"x" * 100), batch.headers) for batch in receiver.batches]
            receiver.stop()
            output.close(0)
        folders = [name for name in ("own", "audit-spool") if settings.path(name).exists()]
        shown = [(count, head.get("content-encoding"), head.get("x-key")) for count, head in sent]
        return trouble, shown, folders

    return probe


def spooled(settings: Settings) -> str:
    """Return the outcome of four megabytes of records beside a receiver that is away."""
    (sink,) = settings.audit.sinks
    instance = new_instance()
    assert sink.push is not None
    output = open_spool_output(settings, sink.push, instance, SinkMetrics(Telemetry(), "s"))
    try:
        for seq in range(4):
            output.append(record_line(instance, seq, "x" * (1 << 20)))
    except OSError as error:
        return error.strerror or ""
    finally:
        output.close(0)
    return ""


def readings(settings: Settings) -> int:
    """Return the number of times that the names of a catalog are read in a little more than a second."""

    async def read() -> int:
        asked: list[str] = []

        async def answer(request: web.BaseRequest) -> web.Response:
            asked.append(request.path)
            return web.json_response({"namespaces": []} if request.path.endswith("/namespaces") else {})

        runner = web.ServerRunner(web.Server(answer, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        own = f"http://127.0.0.1:{runner.addresses[0][1]}"
        lake = settings.warehouses["lake"]
        assert lake.catalog is not None
        catalog = lake.catalog.model_copy(update={"uri": own})
        warehouses = {**settings.warehouses, "lake": lake.model_copy(update={"catalog": catalog})}
        relations = build_relations(settings.model_copy(update={"warehouses": warehouses}), Telemetry())
        relations.start()
        await asyncio.sleep(1.5)
        await relations.stop()
        await runner.cleanup()
        return sum(path.endswith("/namespaces") for path in asked)

    return asyncio.run(read())


def start(settings: Settings) -> None:
    """Make the service's policies; the error is the effect."""
    build_pdp(settings, WORLD, read_rules(settings))


TABLE: Final = {"table": {"catalogName": "lk", "schemaName": "hr", "tableName": "pay", "columns": ["x"]}}
SELECT: Final = "SelectFromColumns"
FUNCTION: Final = {"function": {"catalogName": "lk", "schemaName": "system", "functionName": "f"}}
BEARER: Final = {"bearer": {"idp": "oidc", "subjects": ["alice"]}, "may_assert": ["principals"]}
ENGINE: Final = {"type": "trino", "owner_property": "o", "identities": {"oidc": {"subjects": ["alice"]}}}
PROVIDER: Final = "identity.providers.oidc"
LAKE: Final = {"uri": "https://catalog.example"}
SOURCE: Final = {"http": "http://127.0.0.1:1/b", "unsigned": True}
PUSH: Final = {"url": "http://127.0.0.1:1", "batch_seconds": 0.01}
OTLP: Final = {"endpoint": "http://127.0.0.1:1", "batch_seconds": 0.01}
ISSUERS: Final = {"audiences": ["pdp"], "issuers": [{"issuer": ISSUER, "jwks": "jwks.json"}]}
OTHER: Final = rsa_key("two")


def by_token(**more: Any) -> dict[str, Any]:
    return {"host": "127.0.0.1", "authorization": (f"Bearer {token(**{**lasting(), **more})}",)}


Case = tuple[Outcome, Any, Mapping[str, Any]]
"""A probe, the value of the key, and keys and texts of files that both configurations have."""
SHOWN: Final[dict[str, Case]] = {
    "trino.admin_users": (trino("KillQueryOwnedBy", {"user": {"user": "bob"}}), ["ann"], {}),
    "trino.execute_query.allow": (trino("ExecuteQuery"), ["bob"], {}),
    "trino.functions.allow": (trino("ExecuteFunction", FUNCTION), ["lk.system.f"], {}),
    "trino.functions.builtin_catalogs": (trino("ExecuteFunction", FUNCTION), ["lk"], {}),
    "trino.procedures.allow": (trino("ExecuteProcedure", FUNCTION), ["lk.system.f"], {}),
    "trino.session_properties.deny": (trino("SetSystemSessionProperty", {"systemSessionProperty": {"name": "x"}}), ["x"], {}),
    "trino.impersonation": (trino("ImpersonateUser", {"user": {"user": "bob"}}), {"ann": ["bob"]}, {}),
    "trino.unmanaged_catalogs": (trino("AccessCatalog", {"catalog": {"name": "tpch"}}), "allow", {}),
    "trino.groups": (trino(SELECT, TABLE, groups=("g",)), {"g": "r"}, {"forbid": "'r' in roles"}),
    "trino.unknown": (trino(SELECT, TABLE), ["attributes"], {"forbid": "has(attributes.x)"}),
    "trino.user_prefix": (trino(SELECT, TABLE), "kc~", {"forbid": "role == 'kc~ann'"}),
    "trino.catalogs.lk.ref": (trino(SELECT, TABLE), "dev", {"forbid": "ref == 'dev'"}),
    "trino.catalogs.lk.warehouse": (trino(SELECT, TABLE), "pond", {"forbid": "warehouse == 'pond'"}),
    "trino.catalogs.lk.materialized_views": (trino("RefreshMaterializedView", {"table": {**TABLE["table"]}}), "denied", {"policies.row_access": []}),
    "trino.external_locations": (
        trino("CreateTable", {"table": {"catalogName": "lk", "schemaName": "hr", "tableName": "n",
                                        "properties": {"external_location": "s3://a/b"}}}), "allow", {},
    ),
    "trino.create_over_listed": (start, "deny", {}),
    "authorities.default.engines": (check(), ["grants"], {}),
    "authorities.strict.engines": (check(), ["cel"], {"authorities.strict": {"engines": ["grants"], "warehouses": ["lake"]}}),
    "authorities.strict.warehouses": (
        check(action="drop"), ["lake"], {"authorities.strict": {"engines": ["grants"], "warehouses": ["pond"]}},
    ),
    "authorities.strict.mode": (
        check(action="drop"), "report", {"authorities.strict": {"engines": ["grants"], "warehouses": ["lake"]}},
    ),
    "identity.cel_provider": (check(principal="user:kc~ann"), "kc", {"forbid": "role == 'ann'"}),
    "identity.inspect": (caller(**by_token()), "deny", {}),
    "identity.callers.c.loopback": (caller(host="127.0.0.1"), True, {"identity.callers.c": {"may_assert": ["roles"]}}),
    "identity.callers.c.ignore_tokens": (
        caller(host="127.0.0.1", authorization=("Bearer x",)), True,
        {"identity.callers.c": {"loopback": True}, "identity.providers": {}},
    ),
    "identity.callers.c.unix_socket": (caller(uid=77), True, {"identity.callers.c": {"may_assert": ["roles"]}, "server.unix": "s"}),
    "identity.callers.c.mtls.subjects": (
        caller(certificate=frozenset({"CN=x"})), ["CN=x"],
        {"identity.callers.c": {"mtls": {"subjects": ["CN=y"]}}, "server.tls": {"cert": "c", "key": "k", "client_ca": "a"}},
    ),
    "identity.callers.c.bearer.subjects": (caller(**by_token()), ["bob"], {"identity.callers.c": {**BEARER}}),
    "identity.callers.c.bearer.audiences": (caller(**by_token()), ["gw"], {"identity.callers.c": {**BEARER}}),
    "identity.callers.c.bearer.idp": (caller(**by_token()), "kc", {"identity.callers.c": {**BEARER}}),
    "identity.callers.c.may_assert": (caller(**by_token()), ["roles"], {"identity.callers.c": {**BEARER}}),
    "identity.callers.c.may_write": (caller(**by_token()), True, {"identity.callers.c": {**BEARER}}),
    "trusted_engines.e.identities.oidc.subjects": (caller(**by_token()), ["bob"], {"trusted_engines.e": {**ENGINE}}),
    "trusted_engines.e.identities.oidc.audiences": (
        caller(**by_token()), ["pdp"], {"trusted_engines.e": {**ENGINE, "identities": {"oidc": {"subjects": ["bob"]}}}},
    ),
    f"{PROVIDER}.algorithms": (said(), ["ES256"], {}),
    f"{PROVIDER}.audiences": (said(aud="other"), ["other"], {}),
    f"{PROVIDER}.issuer": (said(iss="https://new"), "https://new", {}),
    f"{PROVIDER}.jwks": (said(), "other.json", {}),
    f"{PROVIDER}.issuers.0.issuer": (said(iss="https://new"), "https://new", {PROVIDER: {**ISSUERS}}),
    f"{PROVIDER}.issuers.0.jwks": (said(), "other.json", {PROVIDER: {**ISSUERS}}),
    f"{PROVIDER}.leeway_seconds": (said(seconds=-20), 50, {f"{PROVIDER}.leeway_seconds": 0}),
    f"{PROVIDER}.role_map": (check(own=token(roles=["x"], **lasting())), {"x": "r"}, {"forbid": "'r' in roles"}),
    f"{PROVIDER}.claims.subject": (said(email="e"), "email", {}),
    f"{PROVIDER}.claims.roles": (said(groups=["x"]), "groups", {}),
    f"{PROVIDER}.claims.groups": (said(roles=["x"]), "roles", {}),
    f"{PROVIDER}.claims.audience": (said(azp="pdp"), "sub", {}),
    f"{PROVIDER}.claims.attributes": (said(email="e"), {"mail": "email"}, {}),
    f"{PROVIDER}.claims.required": (said(), ["groups"], {}),
    f"{PROVIDER}.claims.separator": (said(roles="a,b"), ",", {}),
    f"{PROVIDER}.claims.keys_of": (said(roles={"a": {}}), ["roles"], {}),
    f"{PROVIDER}.claims.types": (said(lvl="x"), {"level": "number"}, {f"{PROVIDER}.claims.attributes": {"level": "lvl"}}),
    f"{PROVIDER}.sender_constrained": (said(cnf={"jkt": "x"}), "allow", {}),
    f"{PROVIDER}.users": (start, ["bob"], {"forbid": "role == 'Bob'"}),
    "policies.forbid.0.path": (check(), "deny.yaml", {"policies.forbid": [{"path": "forbid.yaml"}]}),
    "policies.forbid.0.allow_empty": (start, True, {"policies.forbid": [{"path": "empty.yaml"}]}),
    "policies.row_access.0.path": (start, "deny.yaml", {"policies.row_access": [{"path": "rows.yaml"}]}),
    "policies.row_access.0.allow_empty": (start, True, {"policies.row_access": [{"path": "empty.yaml"}]}),
    "policies.strict_names": (start, True, {"forbid": "warehouse == 'hive'"}),
    "row_access.member.template": (start, "user:{idp}~{subject}", {}),
    "limits.max_checks": (load(), 1, {}),
    "limits.namespace_depth": (load(), 1, {}),
    "limits.trino_max_resources": (large_trino_body, 1, {"limits.max_values": 1000}),
    "trino.on_internal_failure": (failed, "error", {}),
    "trusted_engines.e.delegated_storage": (load(), "as_owner", {"trusted_engines.e": {**ENGINE}}),
    "trusted_engines.e.type": (load(), "other", {"trusted_engines.e": {**ENGINE}}),
    "warehouses.lake.catalog.relations.refresh_seconds": (
        readings, 1, {"warehouses.lake.catalog": {"uri": "http://127.0.0.1:1", "relations": {}}},
    ),
    "row_access.barrier.duckdb": (rewritten("duckdb"), False, {}),
    "row_access.barrier.spark": (rewritten("spark"), False, {}),
    "lakes.l.namespace": (spark_session, "other", {"lakes.l": {**LAKE}}),
    "lakes.l.properties": (spark_session, {"scope": "x"}, {"lakes.l": {**LAKE}}),
    "lakes.l.spark": (spark_session, {"spark.jars.packages": "x"}, {"lakes.l": {**LAKE}}),
    "lakes.l.warehouse": (spark_session, "w", {"lakes.l": {**LAKE}}),
    "policies.source.folder": (policy_folder, "own", {"policies.source": {**SOURCE}}),
    "policies.source.timeout_seconds": (silence, 0.01, {"policies.source": {**SOURCE}}),
    "audit.sinks.0.http.batch_kib": (delivered(), 1, {"audit.sinks": [{"http": {**PUSH}}]}),
    "audit.sinks.0.http.batch_records": (delivered(), 5, {"audit.sinks": [{"http": {**PUSH}}]}),
    "audit.sinks.0.http.batch_seconds": (delivered(2.5), 30, {"audit.sinks": [{"http": {**PUSH}}]}),
    "audit.sinks.0.http.timeout_seconds": (delivered(2.5, "hang"), 0.1, {"audit.sinks": [{"http": {**PUSH}}]}),
    "audit.sinks.0.otlp.batch_kib": (delivered(), 1, {"audit.sinks": [{"otlp": {**OTLP}}]}),
    "audit.sinks.0.otlp.batch_records": (delivered(), 5, {"audit.sinks": [{"otlp": {**OTLP}}]}),
    "audit.sinks.0.otlp.batch_seconds": (delivered(2.5), 30, {"audit.sinks": [{"otlp": {**OTLP}}]}),
    "audit.sinks.0.otlp.timeout_seconds": (delivered(2.5, "hang"), 0.1, {"audit.sinks": [{"otlp": {**OTLP}}]}),
    "audit.sinks.0.otlp.spool_mib": (spooled, 1, {"audit.sinks": [{"otlp": {**OTLP}}]}),
    "audit.sinks.0.otlp.gzip": (delivered(), False, {"audit.sinks": [{"otlp": {**OTLP}}]}),
    "audit.sinks.0.otlp.headers_file": (delivered(), "headers", {"audit.sinks": [{"otlp": {**OTLP}}]}),
    "audit.sinks.0.otlp.spool": (delivered(), "own", {"audit.sinks": [{"otlp": {**OTLP}}]}),
    "warehouses.lake.default_ref": (check(), "dev", {"forbid": "ref == 'dev'"}),
    "warehouses.lake.kind": (trino(SELECT, {"table": {**TABLE["table"], "tableName": "pay@dev"}}), "nessie", {}),
}  # fmt: skip
"""Key -> the case in which configurations with and without the key differ."""
FILES: Final = {
    "permit.yaml": "rules: {all: 'true'}",
    "deny.yaml": "rules: {no: 'true'}",
    "empty.yaml": "",
    "rows.yaml": "tables: {lake.hr.pay: {columns: {x: INTEGER}}}\npolicies: [{id: p, table: lake.hr.pay, grantees: ['user:ann'], filter: x = 1}]",
    "headers": "X-Key: k\n",
    "jwks.json": json.dumps({"keys": [jwk()]}),
    "other.json": json.dumps({"keys": [jwk(key=OTHER)]}),
}


def put(config: Any, key: str, value: Any) -> None:
    *above, last = key.split(".")
    for name in above:
        config = config[int(name)] if isinstance(config, list) else config.setdefault(name, {})
    config[int(last) if isinstance(config, list) else last] = copy.deepcopy(value)


def outcome(folder: Path, case: Case, key: str, value: Any) -> Any:
    probe, _, given = case
    config = copy.deepcopy(BASE)
    for name, text in {**FILES, "forbid.yaml": json.dumps({"rules": {"f": given.get("forbid", "false")}})}.items():
        (folder / name).write_text(text)
    for name, known in given.items():
        if name != "forbid":
            put(config, name, known)
    if value is not NOTHING:
        put(config, key, value)
    (folder / "pdp.yaml").write_text(json.dumps(config))
    try:
        return probe(load_settings(folder / "pdp.yaml", (), {}))
    except PdpError as error:
        return str(error)


@pytest.mark.parametrize("key", SHOWN)
def test_a_key_changes_what_is_seen_outside(tmp_path: Path, key: str) -> None:
    case = SHOWN[key]
    found = [outcome(tmp_path, case, key, value) for value in (NOTHING, case[1])]
    assert found[0] != found[1], found[0]


@pytest.mark.process
async def test_the_processes_that_rewrite_and_their_time_are_bounded(tmp_path: Path) -> None:
    async def rewritten(**limits: Any) -> tuple[set[tuple[int, str]], int]:
        """Return the outcomes of three statements at once, and the number of processes that rewrite."""
        async with client_of(settings_of({"limits": {"request_timeout_seconds": 60, **limits}}, tmp_path)) as client:
            before = set(psutil.Process().children())
            sql = f"SELECT {', '.join(['1'] * 2_000)}"
            bodies = [{"sql": sql, "dialect": "duckdb", "principal": f"user:oidc~u{at}"} for at in range(3)]
            answers = await asyncio.gather(*(client.post("/v1/rewrite", body) for body in bodies))
            workers = set(psutil.Process().children()) - before
            return {(status, found.get("error", {}).get("message", "")) for status, found in answers}, len(workers)

    assert await rewritten(rewrite_seconds=60, rewrite_processes=1) == ({(200, "")}, 1)
    assert await rewritten(rewrite_seconds=60, rewrite_processes=3) == ({(200, "")}, 3)
    ((status, message),), _ = await rewritten(rewrite_seconds=0.001, rewrite_processes=1)
    assert (status, "longer than 0.001 seconds" in message) == (400, True)


BY_NAME: Final = (
    (r"^(authorities|warehouses|trusted_engines|lakes)\.[^.]+", r"\1.<name>"),
    (r"^(identity\.(?:providers|callers)|trino\.catalogs)\.[^.]+", r"\1.<name>"),
    (r"\.identities\.[^.]+", ".identities.<name>"),
)
TESTED: Final = {
    "audit.sinks.0.file": "cli/audit/test_audit_tail.py::test_the_configuration_names_the_folder",
    "audit.sinks.0.http.gzip": "audit/push/test_push.py::test_compression_is_a_choice",
    "audit.sinks.0.http.headers_file": "audit/push/test_push.py::test_a_batch_has_an_id_headers_and_the_lines",
    "audit.sinks.0.http.spool": "audit/push/test_push.py::test_a_lost_cursor_repeats_what_is_in_the_spool",
    "audit.sinks.0.http.spool_mib": "audit/push/test_push.py::test_a_full_spool_takes_no_more_until_the_receiver_comes_back",
    "audit.sinks.0.http.url": "audit/push/test_push.py::test_compression_is_a_choice",
    "audit.sinks.0.otlp.endpoint": "audit/push/test_push.py::test_opentelemetry_gets_log_records",
    "audit.sinks.0.otlp.service": "audit/push/test_push.py::test_opentelemetry_gets_log_records",
    "audit.sinks.0.stdout": "config/test_sink_settings.py::test_answers_wait_for_sinks_that_keep_records",
    "identity.instance_admins": "decision/test_inspection.py::test_without_the_setting_nobody_is_one",
    "identity.providers.<name>.claims.optional": "identity/test_unknown_evidence.py::test_a_path_that_no_token_had_is_unknown_to_a_forbid_until_one_has",
    "identity.providers.<name>.fetch_timeout_seconds": "identity/test_tokens.py::test_a_slow_provider_holds_up_nobody_for_long",
    "identity.providers.<name>.max_stale_seconds": "identity/test_tokens.py::test_a_provider_that_is_down_keeps_its_keys_for_a_while",
    "identity.providers.<name>.refresh_seconds": "identity/test_tokens.py::test_keys_are_refreshed_and_what_they_verified_is_forgotten",
    "identity.providers.<name>.retry_seconds": "identity/test_key_sets.py::test_a_service_refuses_removed_keys_on_connections_that_know_them",
    "lakes.<name>.credential": "lake/test_catalog.py::test_secrets_of_a_lake_may_be_in_files",
    "lakes.<name>.token": "lake/test_catalog.py::test_secrets_of_a_lake_may_be_in_files",
    "lakes.<name>.uri": "lake/test_catalog.py::test_secrets_of_a_lake_may_be_in_files",
    "authzen.actions": "dialects/authzen/test_authzen.py::test_no_id_reaches_another_object",
    "authzen.base_url": "dialects/authzen/test_authzen.py::test_metadata_have_their_place_between_host_and_path",
    "authzen.resources": "dialects/authzen/test_authzen.py::test_no_id_reaches_another_object",
    "authzen.subjects": "dialects/authzen/test_authzen.py::test_without_settings_names_are_those_of_the_service",
    "lakekeeper.warehouses": "dialects/lakekeeper/test_batch_check.py::test_warehouses_have_the_names_of_the_configuration",
    "polaris.user_prefix": "dialects/polaris/test_polaris_callers.py::test_users_have_the_prefix_of_their_provider",
    **dict.fromkeys(
        ("ranger.services", "ranger.user_prefix"),
        "dialects/ranger/test_ranger.py::test_services_and_users_have_the_names_of_the_settings",
    ),
    "starrocks.catalogs": "dialects/starrocks/test_starrocks.py::test_what_is_not_mapped_is_denied",
    **dict.fromkeys(
        ("starrocks.groups", "starrocks.user_prefix"),
        "dialects/starrocks/test_starrocks.py::test_groups_and_names_are_those_of_the_settings",
    ),
    "warehouses.<name>.refs": "decision/test_missing_refs.py::test_a_warehouse_without_refs_has_an_empty_one",
    "polaris.admins": "dialects/polaris/test_polaris_requests.py::test_operations_without_checks_are_for_the_administrators_of_polaris",
    **dict.fromkeys(
        ("polaris.catalogs", "polaris.realms", "polaris.roles"),
        "dialects/polaris/test_polaris_requests.py::test_unmapped_catalogs_realms_and_roles_are_denied",
    ),
    "limits.idle_timeout_seconds": "surfaces/test_http.py::test_an_idle_connection_is_closed",
    "limits.max_body_bytes": "surfaces/test_http.py::test_an_announced_body_above_the_limit_is_413",
    "limits.max_values": "surfaces/test_content_attacks.py::test_values_beyond_the_limit_are_refused_before_parsing",
    "limits.max_in_flight": "surfaces/test_http.py::test_a_client_that_disconnects_frees_its_place",
    "limits.request_timeout_seconds": "audit/queue/test_refusals.py::test_a_body_that_never_comes_is_recorded",
    "limits.rewrite_processes": "config/test_setting_effects.py::test_the_processes_that_rewrite_and_their_time_are_bounded",
    "limits.rewrite_seconds": "config/test_setting_effects.py::test_the_processes_that_rewrite_and_their_time_are_bounded",
    "limits.referenced_by_depth": "views/test_views.py::test_both_numbers_are_in_the_text",
    "limits.trino_max_body_bytes": "surfaces/test_http.py::test_trino_has_its_own_body_limit",
    "policies.refresh_seconds": "app/sources/test_git_policies.py::test_each_commit_serves_and_edits_without_one_do_not",
    "policies.source.git": "app/sources/test_git_policies.py::test_each_commit_serves_and_edits_without_one_do_not",
    "policies.source.http": "app/sources/test_machine_failures.py::test_content_at_hand_is_taken_while_the_source_is_silent",
    "policies.source.keys": "app/sources/test_machine_failures.py::test_content_at_hand_is_taken_while_the_source_is_silent",
    "policies.source.max_mib": "app/sources/test_http_bundles.py::test_large_answers_and_other_keys",
    "policies.source.oci": "app/sources/test_oci_bundles.py::test_a_service_follows_a_tag",
    "policies.source.path": "app/sources/test_git_policies.py::test_each_commit_serves_and_edits_without_one_do_not",
    "policies.source.poll_seconds": "app/sources/test_oci_bundles.py::test_a_service_follows_a_tag",
    "policies.source.token_file": "config/test_regular_files.py::test_certificates_keys_and_tokens_are_regular_files",
    "policies.source.unsigned": "config/test_sources.py::test_a_source_that_could_open_is_refused",
    "policies.source.username": "config/test_sources.py::test_a_source_that_could_open_is_refused",
    "policies.watch": "app/reload/test_file_events.py::test_each_way_to_change_a_file_is_seen",
    "row_access.member.claim": "row_access/test_rewriting.py::test_members_by_a_claim_are_those_of_row_filters",
    "outgoing.ca_file": "identity/test_outgoing.py::test_every_client_goes_by_the_proxy_and_trusts_the_file",
    "outgoing.proxy": "identity/test_outgoing.py::test_every_client_goes_by_the_proxy_and_trusts_the_file",
    "row_access.member.service_accounts": "row_access/test_rewriting.py::test_members_by_a_claim_are_those_of_row_filters",
    "row_access.protected": "dialects/trino/test_materialized_views.py::test_a_protected_container_is_a_policy",
    "row_access.through_views": "row_access/test_rewriting.py::test_views_run_for_whom_the_setting_says",
    "server.diagnostics": "identity/test_evidence.py::test_diagnostics_may_leave_loopback",
    "server.drain_seconds": "app/test_stop.py::test_a_second_signal_stops_at_once",
    "server.lame_duck_seconds": "app/test_stop.py::test_a_second_signal_stops_at_once",
    "server.grpc": "surfaces/test_listeners.py::test_an_address_of_another_machine_is_named_with_its_key",
    "server.http": "surfaces/test_listeners.py::test_a_port_in_use_is_named_with_its_key",
    "server.tls.cert": "identity/test_callers.py::test_certificates_that_cannot_be_used_stop_the_start",
    "server.tls.key": "identity/test_callers.py::test_certificates_that_cannot_be_used_stop_the_start",
    "server.tls.client_ca": "identity/test_callers.py::test_a_certificate_with_odd_names_names_nobody",
    "server.unix": "surfaces/http/test_http_connections.py::test_a_unix_socket_names_its_user",
    "server.workers": "app/workers/test_workers.py::test_a_unix_socket_is_served_by_all_workers_and_removed_at_the_end",
    "store.bootstrap_admins": "engines/grants/test_grants_engine.py::test_bootstrap_admins_operate_the_server_without_a_grant",
    "store.url": "config/test_references.py::test_a_world_of_a_configuration_without_names",
    "trusted_engines.<name>.applies_read_restrictions": "views/test_loads_with_restrictions.py::test_the_engine_reads_with_the_restrictions_and_never_writes",
    "trusted_engines.<name>.enforces_row_access": "identity/test_callers.py::test_an_engine_is_matched_within_its_provider_alone",
    "trusted_engines.<name>.owner_property": "views/test_views.py::test_an_engine_can_come_from_the_environment",
    "warehouses.<name>.catalog.prefix": "views/test_catalog.py::test_the_prefix_is_the_catalog_s_own",
    "warehouses.<name>.catalog.relations.max_relations": "rewrite/iceberg/test_catalog_answers.py::test_a_catalog_that_leads_astray_is_not_read",
    "warehouses.<name>.catalog.relations.max_stale_seconds": "rewrite/iceberg/test_catalog_answers.py::test_what_was_read_is_used_until_it_is_too_old",
    "warehouses.<name>.catalog.timeout_seconds": "rewrite/iceberg/test_real_catalog.py::test_a_catalog_without_an_answer_denies_after_a_while",
    "warehouses.<name>.catalog.token": "views/test_catalog.py::test_a_refused_token_is_read_again",
    "warehouses.<name>.catalog.token_file": "rewrite/iceberg/test_catalog_answers.py::test_unusable_settings_stop_the_start",
    "warehouses.<name>.catalog.ttl_seconds": "views/test_catalog.py::test_what_was_read_is_taken_as_read_for_a_while",
    "warehouses.<name>.catalog.uri": "dialects/trino/test_listed_names.py::test_other_operations_ask_no_catalog",
    "warehouses.<name>.catalog.warehouse": "views/test_catalog.py::test_names_reach_the_catalog_as_they_are",
    "warehouses.<name>.namespace_separator": "views/test_views.py::test_the_catalog_s_separator_divides_namespaces",
    "warehouses.<name>.project": "cli/grants/test_cli_grants.py::test_a_warehouse_stays_in_the_project_that_is_configured",
    "warehouses.<name>.through_views": "dialects/trino/test_through_views.py::test_a_warehouse_can_have_another_mode",
}  # fmt: skip
"""Key -> the test that sets the key and sees the effect, because a process, a clock or another server takes part."""


def kind_of(key: str) -> str:
    for pattern, name in BY_NAME:
        key = re.sub(pattern, name, key)
    return key


def test_every_key_is_shown_or_named_with_a_test_or_a_reason() -> None:
    """A key of the settings without a rule of `idle_settings` shows the effect. A new key needs a place here."""
    keys = {key.text() for key in setting_keys()}
    leaves = {key for key in keys if not any(other.startswith(f"{key}.") for other in keys)}
    rules = [tuple(pattern.split(".")) for pattern in RULES]
    starred = {key: tuple("*" if part in (NAME, "0") else part for part in key.split(".")) for key in leaves}
    always = {key for key, parts in starred.items() if not any(parts[: len(rule)] == rule for rule in rules)}
    shown = {kind_of(key) for key in SHOWN}
    assert sorted([*shown, *TESTED]) == sorted(always)


def test_the_tests_of_keys_are_there_and_set_the_keys() -> None:
    helpers = "".join(path.read_text() for path in (ROOT / "tests" / "support").rglob("*.py"))
    for key, test in TESTED.items():
        file, _, name = test.partition("::")
        text = (ROOT / "tests" / file).read_text()
        assert f"def {name}(" in text, key
        assert re.search(rf"\b{key.rpartition('.')[2]}\b", text + helpers), key


def test_code_of_the_product_reads_each_key() -> None:
    """A key that no code reads has no effect."""
    attributes: set[str] = set()
    for file in (ROOT / "pdp").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute):
                attributes.add(node.attr)
    names = {part for key in (*TESTED, *SHOWN) for part in kind_of(key).split(".") if not part.startswith("<")}
    read_as_maps = {"duckdb", "spark", "credential", "0"}
    assert names - attributes - read_as_maps == set()
