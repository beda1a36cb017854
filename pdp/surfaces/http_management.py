"""HTTP for management: grants, objects, access to an object, and listings. Only maps bodies; holds no policy."""

from __future__ import annotations

from pdp.decision.turns import converted
from pdp.management.codec import (
    decode_access,
    decode_grants,
    decode_list,
    decode_objects,
    decode_query,
    encode_access,
    encode_grants,
    encode_list,
    encode_written,
)
from pdp.management.service import Management
from pdp.model.question import Caller
from pdp.surfaces.body_content import BodyLimits
from pdp.surfaces.http_answers import EndpointAnswer
from pdp.surfaces.http_handlers import HttpHandlers, Query, Routes


def management_routes(handlers: HttpHandlers, management: Management, limits: BodyLimits) -> Routes:
    """Return the routes of the management API."""

    async def write_grants(body: bytes, caller: Caller) -> EndpointAnswer:
        requester, edits = await converted(body, decode_grants, caller)
        return EndpointAnswer(encode_written(*await management.write_grants(requester, edits)), requester.id)

    async def grants(query: Query, caller: Caller) -> EndpointAnswer:
        requester, filter, page = decode_query(query, caller)
        return EndpointAnswer(encode_grants(await management.list_grants(requester, filter, page)), requester.id)

    async def write_objects(body: bytes, caller: Caller) -> EndpointAnswer:
        requester, edits = await converted(body, decode_objects, caller)
        return EndpointAnswer(encode_written(await management.write_objects(requester, edits)), requester.id)

    async def access(body: bytes, caller: Caller) -> EndpointAnswer:
        requester, action, resource, page = await converted(body, decode_access, caller)
        found = await management.list_access(requester, action, resource, page)
        return EndpointAnswer(encode_access(found), requester.id)

    async def list_objects(body: bytes, caller: Caller) -> EndpointAnswer:
        requester, asked, page = await converted(body, decode_list, caller)
        return EndpointAnswer(encode_list(await management.list_objects(requester, asked, page)), requester.id)

    return {
        ("POST", "/v1/grants"): handlers.for_body("http", write_grants, limits),
        ("GET", "/v1/grants"): handlers.for_query("http", grants),
        ("POST", "/v1/objects"): handlers.for_body("http", write_objects, limits),
        ("POST", "/v1/access"): handlers.for_body("http", access, limits),
        ("POST", "/v1/list"): handlers.for_body("http", list_objects, limits),
    }
