"""Endpoints of AuthZEN 1.0: evaluation, evaluations, searches, and the metadata.

The sender applies no row filters and masks, so a right to data needs all rows and columns. Searches ask what
POST /v1/list and POST /v1/access ask, with their rights. Must not know rules of engines.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from pdp.config.warehouses import AuthzenSettings
from pdp.decision.batch_builder import BatchBuilder, make_check
from pdp.decision.bodies import CheckBody, make_principal, make_resource
from pdp.decision.service import Pdp
from pdp.decision.turns import converted, run_aside
from pdp.dialects.authzen.bodies import (
    ActionName,
    ActionSearch,
    Evaluation,
    Evaluations,
    Page,
    ResourceSearch,
    SubjectSearch,
    read_evaluation,
    read_evaluations,
)
from pdp.dialects.authzen.names import NameMap, Template
from pdp.errors import AssertionNotAllowed, InvalidArgument, InvalidReference
from pdp.identity.evidence import admit
from pdp.management.codec import (
    MAX_PAGE_SIZE,
    PAGE_SIZE,
    also_unassertable,
    canonical_action,
    check_grantable,
    make_list_requester,
    make_object_query,
    make_requester,
)
from pdp.management.requests import PageRequest, PageResult, Requester
from pdp.management.service import Management
from pdp.model.answer import Answer, Rejection
from pdp.model.question import Batch, BatchRequest, Caller
from pdp.model.strict import decode, read_parameters
from pdp.surfaces.admission import BodyLimits
from pdp.surfaces.http.answers import EndpointAnswer, HttpSurface
from pdp.surfaces.http.handlers import HttpHandlers, Query, Routes

SURFACE: Final = HttpSurface("authzen", only_json=True)
_PATHS: Final = {
    "access_evaluation_endpoint": "/access/v1/evaluation",
    "access_evaluations_endpoint": "/access/v1/evaluations",
    "search_subject_endpoint": "/access/v1/search/subject",
    "search_resource_endpoint": "/access/v1/search/resource",
    "search_action_endpoint": "/access/v1/search/action",
}
"""Key of the metadata -> path."""
_METADATA: Final = "/.well-known/authzen-configuration"
_ALLOWED: Final = b'{"decision":true}'
_DENIED: Final = b'{"decision":false}'
_STOPS: Final = {"execute_all": None, "deny_on_first_deny": False, "permit_on_first_permit": True}
"""Semantic -> the decision behind which an answer ends."""
_BOUND: Final = 16
"""Bytes of a token that stand for its search."""
_NO_QUESTION: Final = Rejection(
    "unsupported", "the search asks about nothing that the settings name", by="rule:authzen"
)
_MOST_AT_ONCE: Final = 1_000
"""Items of a request that is answered without a turn for others."""
_SUBJECT_SEARCH: Final = msgspec.json.Decoder(SubjectSearch)
_RESOURCE_SEARCH: Final = msgspec.json.Decoder(ResourceSearch)
_ACTION_SEARCH: Final = msgspec.json.Decoder(ActionSearch)


class _Place(NamedTuple):
    """Place in the results of a search: the page to answer, and the bytes that bind tokens to the search."""

    page: PageRequest
    bound: bytes
    asked: bool
    """True if the request names a page."""

    def encode(self, results: Sequence[Mapping[str, str]], following: str | None) -> bytes:
        """Return an answer. `following` is the cursor of the next page; None at the end."""
        token = "" if following is None else base64.urlsafe_b64encode(self.bound + following.encode()).decode()
        page = {"page": {"next_token": token}} if self.asked or token else {}
        return msgspec.json.encode({"results": results} | page)


class AuthzenSurface:
    """Endpoints of the API. `most` bounds the items of one request."""

    def __init__(self, pdp: Pdp, management: Management, settings: AuthzenSettings, most: int) -> None:
        self._pdp = pdp
        self._management = management
        self._names = NameMap(settings)
        self._base_url = settings.base_url or ""
        self._most = most

    def routes(self, handlers: HttpHandlers, limits: BodyLimits) -> Routes:
        """Return the routes of the API, and that of the metadata if there is a base URL."""
        decisions = {
            "evaluation": (self.evaluation, self._evaluation_now),
            "evaluations": (self.evaluations, self._evaluations_now),
        }
        searches = {"subject": self.subjects, "resource": self.resources, "action": self.actions}
        routes: Routes = {
            ("POST", f"/access/v1/{path}"): handlers.for_decision(SURFACE, endpoint, limits, now)
            for path, (endpoint, now) in decisions.items()
        }
        for path, search in searches.items():
            routes["POST", f"/access/v1/search/{path}"] = handlers.for_body(SURFACE, search, limits)
        if self._base_url:
            path = self._base_url.partition("://")[2].partition("/")[2].rstrip("/")
            place = f"{_METADATA}/{path}" if path else _METADATA
            routes["GET", place] = handlers.for_query(SURFACE, self.metadata)
        return routes

    async def metadata(self, query: Query, caller: Caller) -> EndpointAnswer:
        """Return the metadata."""
        read_parameters(query, frozenset())
        above = self._base_url.rstrip("/")
        urls = {key: f"{above}{path}" for key, path in _PATHS.items()}
        return EndpointAnswer(msgspec.json.encode({"policy_decision_point": self._base_url} | urls), "")

    # --- evaluation -------------------------------------------------------------------------------------------------

    async def evaluation(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Decide one question."""
        return await self._evaluate(await converted(body, read_evaluation), caller)

    async def evaluations(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Decide the items of a request, in order."""
        asked = await converted(body, self._read)
        if asked.single:
            return await self._evaluate(asked.single, caller)
        is_long = len(asked.items) > _MOST_AT_ONCE  # also of a short body, whose items leave out what all share
        request = await run_aside(self._request, asked.items) if is_long else self._request(asked.items)
        answer = (await self._pdp.decide(admit(request, caller))).answer
        return EndpointAnswer(_encode(asked, answer), answer.id)

    def _evaluations_now(self, body: bytes, caller: Caller) -> EndpointAnswer | None:
        asked = self._read(body)
        if asked.single or len(asked.items) > _MOST_AT_ONCE:
            return None
        result = self._pdp.decide_now(admit(self._request(asked.items), caller))
        return None if result is None else EndpointAnswer(_encode(asked, result.answer), result.answer.id)

    def _read(self, body: bytes) -> Evaluations:
        return read_evaluations(body, self._most)

    async def _evaluate(self, asked: Evaluation, caller: Caller) -> EndpointAnswer:
        batch = await self._admitted(self._single(asked), caller)
        return _decision((await self._pdp.decide(batch)).answer)

    def _evaluation_now(self, body: bytes, caller: Caller) -> EndpointAnswer | None:
        batch = admit(self._single(read_evaluation(body)), caller)
        if batch.rejected:
            return None
        result = self._pdp.decide_now(batch)
        return None if result is None else _decision(result.answer)

    async def _admitted(self, request: BatchRequest, caller: Caller) -> Batch:
        """Return the admitted checks; raise AssertionNotAllowed if the caller may not assert what one states."""
        batch = admit(request, caller)
        if batch.refused:
            raise await self._pdp.refusal(batch)
        return batch

    def _single(self, asked: Evaluation) -> BatchRequest:
        """Return the request of one question; raise InvalidArgument for properties in another form."""
        body = self._names.check(asked)
        if isinstance(body, CheckBody) and (check := make_check(body)):
            return BatchRequest(SURFACE.name, 1, (check.asking(unfiltered=True),), {})
        return _request([body])

    def _request(self, items: Sequence[Evaluation | InvalidArgument]) -> BatchRequest:
        """Return the request of items. An item without a native form is rejected alone."""
        return _request(self._names.checks(items))

    # --- searches ---------------------------------------------------------------------------------------------------

    async def subjects(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Return the subjects of a type that may do an action on a resource."""
        search = await converted(body, decode, _SUBJECT_SEARCH)
        template, named = self._names.subjects(search.subject.type), self._names.resource(search.resource)
        place = _place(search, search.subject.type, (search.action, search.resource), template)
        action = self._searched_action(search.action)
        if template is None or named is None or action is None:
            return self._nothing(place, caller)
        if not place.page.size:
            return self._nothing(place, caller, place.page.cursor())
        try:
            resource, unassertable = check_grantable(make_resource(named), caller)
        except InvalidReference:
            return self._nothing(place, caller)
        requester = also_unassertable(_whole_tables(make_requester(caller, UNSET, UNSET)), unassertable)
        action = canonical_action(resource.type, action)
        found = await self._management.list_access(requester, action, resource, place.page)
        return _entities(place, found, template, search.subject.type, requester)

    async def resources(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Return the known resources of a type on which a subject may do an action."""
        search = await converted(body, decode, _RESOURCE_SEARCH)
        template, named = self._names.resources(search.resource.type), self._names.principal(search.subject)
        place = _place(search, search.resource.type, (search.action, search.subject), template)
        action = self._searched_action(search.action)
        if template is None or named is None or action is None:
            return self._nothing(place, caller)
        if not place.page.size:
            return self._nothing(place, caller, place.page.cursor())
        try:
            make_principal(named)
        except InvalidReference:
            return self._nothing(place, caller)
        if template.names_ref():
            raise InvalidArgument("lists know no refs: a type with `@` in `authzen.resources` has no search")
        requester = _whole_tables(make_list_requester(caller, named, UNSET))
        query = make_object_query(action, template.type, template.container())
        found = await self._management.list_objects(requester, query, place.page)
        return _entities(place, found, template, search.resource.type, requester)

    async def actions(self, body: bytes, caller: Caller) -> EndpointAnswer:
        """Return the actions that a subject may do on a resource."""
        search = await converted(body, decode, _ACTION_SEARCH)
        template = self._names.resources(search.resource.type)
        place = _place(search, "", (search.subject, search.resource), template)
        if template is None or self._names.subjects(search.subject.type) is None:
            return self._nothing(place, caller)
        names = [name for name in self._names.actions_on(template.type) if name > place.page.after]
        if not names:
            return self._nothing(place, caller)
        first = self._names.check(Evaluation(search.subject, ActionName(names[0]), search.resource))
        rest = [Evaluation(search.subject, ActionName(name), search.resource) for name in names[1:]]
        batch = await self._admitted(_request([first, *self._names.checks(rest)]), caller)
        answer = _inspected((await self._pdp.decide(batch)).answer)
        allowed = [name for name, each in zip(names, answer.allowed, strict=True) if each]
        shown = allowed[: place.page.size]
        following = (shown[-1] if shown else place.page.after) if len(allowed) > len(shown) else None
        return EndpointAnswer(place.encode([{"name": name} for name in shown], following), answer.id)

    def _nothing(self, place: _Place, caller: Caller, following: str | None = None) -> EndpointAnswer:
        """Record a search that asks about nothing, and return no results."""
        id = self._pdp.record_failure(Batch(SURFACE.name, caller, 1, (), {0: _NO_QUESTION}))
        return EndpointAnswer(place.encode([], following), id)

    def _searched_action(self, action: ActionName) -> str | None:
        if action.properties:
            raise InvalidArgument("`action.properties` has no place in a search: lists ask without arguments")
        return self._names.action(action.name)


def _request(items: Iterable[CheckBody | Rejection]) -> BatchRequest:
    builder = BatchBuilder()
    builder.add_items(items)
    return builder.unfiltered_request(SURFACE.name)


def _whole_tables(requester: Requester) -> Requester:
    return msgspec.structs.replace(requester, unfiltered=True)


def _inspected(answer: Answer) -> Answer:
    """Return an answer about one subject and resource; raise AssertionNotAllowed if the caller may not ask."""
    rejection = answer.rejected.get(0)
    if rejection is None or rejection.code != AssertionNotAllowed.code:
        return answer
    error = AssertionNotAllowed(rejection.message)
    error.record_id = answer.id
    raise error


def _decision(answer: Answer) -> EndpointAnswer:
    answer = _inspected(answer)
    return EndpointAnswer(_ALLOWED if answer.allowed[0] else _DENIED, answer.id)


def _encode(asked: Evaluations, answer: Answer) -> bytes:
    """Return the decisions up to the one that decides, each error with its item."""
    stop = _STOPS[asked.semantic]
    count = len(answer.allowed)
    if stop is not None and (at := answer.allowed.find(int(stop))) >= 0:
        count = at + 1
    if not answer.rejected:
        return b'{"evaluations":[%s]}' % b",".join([(_DENIED, _ALLOWED)[each] for each in answer.allowed[:count]])
    return msgspec.json.encode({"evaluations": [_item(answer, at) for at in range(count)]})


def _item(answer: Answer, at: int) -> dict[str, Any]:
    rejection = answer.rejected.get(at)
    if rejection is None or rejection.code not in _ERRORS:
        return {"decision": bool(answer.allowed[at])}
    error = {"status": _ERRORS[rejection.code], "message": rejection.message}
    return {"decision": False, "context": {"error": error}}


_ERRORS: Final = {AssertionNotAllowed.code: 403, InvalidArgument.code: 400}
"""Code of a rejection -> status of the error of an item. All others are denials."""


def _place(search: Any, searched: str, entities: Sequence[object], template: Template | None) -> _Place:
    """Return the place of a search in its results; raise InvalidArgument for a token of another search."""
    page: Page | Any = search.page
    given = msgspec.to_builtins([type(search).__name__, searched, *entities, search.context or None])
    text = msgspec.json.encode(given, order="sorted")
    bound = hashlib.blake2b(text, digest_size=_BOUND).digest()
    asked = page is not UNSET
    size = page.limit if asked and page.limit is not UNSET else PAGE_SIZE
    try:
        cursor = _cursor(page.token, bound) if asked and page.token else ""
        request = PageRequest.at(min(size, MAX_PAGE_SIZE), cursor, template and template.read)
    except ValueError:
        message = "invalid `page.token`: use one that this search returned, with the same entities and context"
        raise InvalidArgument(message) from None
    return _Place(request, bound, asked)


def _cursor(token: str, bound: bytes) -> str:
    """Return the cursor in a token; raise ValueError for a token of another search."""
    content = base64.b64decode(token.encode(), b"-_", validate=True)
    if content[:_BOUND] != bound:
        raise ValueError
    return content[_BOUND:].decode()


def _entities(place: _Place, found: PageResult, template: Template, type: str, requester: Requester) -> EndpointAnswer:
    results = [{"type": type, "id": id} for name in found.entries if (id := template.read(name)) is not None]
    return EndpointAnswer(place.encode(results, found.next or None), requester.id)
