"""View security in the plainest Python, over a /v1/load body; who may do what is somebody else's question (`may`)."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote_plus

May = Callable[[str, str, str], bool]
Answer = dict[str, Any]


def parse(raw: str | list[list[str]]) -> list[list[str]] | None:
    """Return the named views; None if a name is invalid."""
    chain = []
    for given in (raw.split(",") if raw else []) if isinstance(raw, str) else raw:
        entry = given
        if isinstance(entry, str):
            if re.search("%(?![0-9A-Fa-f]{2})", entry):
                return None
            try:
                entry = unquote_plus(entry, errors="strict").split("\x1f")
            except UnicodeDecodeError:
                return None
        if not entry or any(not part or re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029]", part) for part in entry):
            return None
        chain.append(entry)
    return chain


def name(parts: list[str]) -> str:
    return "view:w/" + "/".join(re.sub("[%/@]", lambda sign: f"%{ord(sign[0]):02X}", part) for part in parts)


def load(body: dict[str, Any], matched: list[str], idp: str, may: May, *, owner_writes: bool = False) -> Answer:
    """Return the result of a load; `matched` are the owner properties of the matched engines."""
    raw = body.get("referencedBy", "")
    if len(raw.split(",") if isinstance(raw, str) else raw) > 10:
        return {"error": "ReferencedByDepthExceeded"}
    chain = (parse(raw) or []) if matched else []
    if any(len(parts) > 11 for parts in chain):
        return {"error": "NamespaceDepthExceeded"}
    known = {view["resource"]: view["properties"] for view in body.get("views", [])}
    user, delegated, target = body["principal"], False, body["target"]
    steps: list[tuple[str, str, bool, str, bool]] = []

    def ask(what: str, *actions: str) -> list[bool]:
        answers = [may(user, action, what) for action in actions]
        steps.extend((what, user, delegated, *asked) for asked in zip(actions, answers, strict=True))
        return answers

    if any(name(parts) not in known for parts in chain):
        return {"error": "NoSuchView"}
    allowed = True
    for parts in chain:
        allowed = all(ask(name(parts), "get_metadata", "select")) and allowed
        owners = [known[name(parts)][key] for key in matched if key in known[name(parts)]]
        if any(owner != owners[0] for owner in owners):
            return {"error": "AmbiguousViewOwner"}
        if owners and not (
            isinstance(owners[0], str) and re.fullmatch("[^\x00-\x1f\x7f-\x9f\u2028\u2029]+", owners[0])
        ):
            return {"error": "UnresolvableViewOwner"}
        if owners:
            user, delegated = f"user:{idp}~{owners[0]}", True
    allowed = all(ask(target, "get_metadata")) and allowed
    storage = "none"
    if body["action"] != "loadView":
        read, write = ask(target, "read_data", "write_data")
        write = write and (owner_writes or not delegated)
        allowed = allowed and (body["action"] == "loadTable" or read or write)
        storage = ("read_write" if write else "read" if read else "none") if allowed else "none"
    return {"allowed": allowed, "storage": storage, "used": bool(chain), "steps": steps}
