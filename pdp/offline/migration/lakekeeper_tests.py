"""Policy tests of trusted engines: who may name the owner of a view, and whose chains of views count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_USER: Final = "user:oidc~alice"
_WORLD: Final = {
    "objects": [],
    "grants": [
        {"principal": _USER, "privilege": "modify", "object": "view:lake/ns/v"},
        {"principal": "user:oidc~bob", "privilege": "select", "object": "table:lake/ns/t"},
    ],
}


def engine_tests(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file of tests for all engines of some settings."""
    engines = settings.get("trusted_engines", {})
    return {
        "engines": ["grants"],
        "config": {key: settings[key] for key in ("trusted_engines", "limits") if key in settings},
        "world": _WORLD,
        "cases": [case for name, engine in engines.items() for case in _cases(name, engine)],
    }


def _cases(name: str, engine: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for idp, identity in engine["identities"].items():
        for audience in identity.get("audiences", ()):
            yield from _trusted(name, engine, {"idp": idp, "subject": "service", "audiences": [audience]})
        for subject in identity.get("subjects", ()):
            yield from _trusted(name, engine, {"idp": idp, "subject": subject, "audiences": []})
    yield from _stranger(engine)


def _trusted(name: str, engine: Mapping[str, Any], caller: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    known = f"{name} by {caller['idp']} {', '.join(caller['audiences']) or caller['subject']}"
    yield {
        "note": f"{known}: may name the owner of a view",
        "caller": caller,
        "commitView": _commit(engine["owner_property"]),
        "wantCommit": {"allowed": True},
    }
    yield {
        "note": f"{known}: its chains of views count",
        "caller": caller,
        "load": _load(engine["owner_property"]),
        "wantLoad": {"referencedByUsed": True},
    }


def _stranger(engine: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    caller = {"idp": next(iter(engine["identities"])), "subject": "nobody-in-the-settings", "audiences": []}
    key = engine["owner_property"]
    for spelling in (key, key.upper()):
        yield {
            "note": f"anybody else: may not set {spelling}",
            "caller": caller,
            "commitView": _commit(spelling),
            "wantCommit": {"allowed": False, "error": {"code": "ProtectedPropertyModification"}},
        }
    yield {
        "note": "anybody else: the chain of views is ignored",
        "caller": caller,
        "load": _load(key),
        "wantLoad": {"allowed": False, "referencedByUsed": False},
    }


def _commit(key: str) -> dict[str, Any]:
    return {"principal": _USER, "view": "view:lake/ns/v", "operation": "commit", "set": {key: "bob"}}


def _load(key: str) -> dict[str, Any]:
    return {
        "principal": _USER,
        "action": "loadTable",
        "target": "table:lake/ns/t",
        "referencedBy": "ns%1Fv",
        "views": [{"resource": "view:lake/ns/v", "properties": {key: "bob"}}],
    }
