"""Unary calls of the gRPC services, over gRPC and over the Connect protocol."""

from __future__ import annotations

import json
from typing import Any, Protocol

import grpc
from google.protobuf.json_format import MessageToJson, Parse
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from support.clients.http_client import HttpClient

from pdp.surfaces.wire import decision_pb2 as wire

SERVICE = "DecisionService"


class RpcError(Exception):
    """Refusal of a call. `code` is the stable error code of the service, `status` the protocol's own code."""

    def __init__(self, status: str, details: str) -> None:
        super().__init__(details)
        self.status = status
        self.code = details.partition(":")[0]


class RpcClient(Protocol):
    """Client of one service by one protocol."""

    async def call(self, method: str, request: Message) -> Any:
        """Return the response of a method; raise RpcError."""
        ...


class GrpcClient:
    """Client over gRPC."""

    def __init__(self, channel: grpc.aio.Channel, service: str = SERVICE) -> None:
        self._channel = channel
        self._service = service

    async def call(self, method: str, request: Message) -> Any:
        """Return the response of a method; raise RpcError."""
        send: Any = self._channel.unary_unary(
            f"/pdp.v1.{self._service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response_type(method, self._service).FromString,
        )
        try:
            return await send(request)
        except grpc.aio.AioRpcError as error:
            raise RpcError(error.code().name, error.details() or "") from None


class ConnectClient:
    """Client over the Connect protocol, in JSON or in protobuf."""

    def __init__(self, http: HttpClient, *, json: bool, service: str = SERVICE) -> None:
        self._http = http
        self._json = json
        self._service = service

    async def call(self, method: str, request: Message) -> Any:
        """Return the response of a method; raise RpcError."""
        body = MessageToJson(request).encode() if self._json else request.SerializeToString()
        type = "application/json" if self._json else "application/proto"
        headers = {"Content-Type": type, "Connect-Protocol-Version": "1"}
        answer = await self._http.send("POST", f"/pdp.v1.{self._service}/{method}", body, headers)
        if answer.status != 200:
            assert answer.media_type == "application/json"
            error = json.loads(answer.content)
            raise RpcError(error["code"], error["message"])
        assert answer.media_type == type
        response = response_type(method, self._service)
        return Parse(answer.content, response()) if self._json else response.FromString(answer.content)


def response_type(method: str, service: str = SERVICE) -> Any:
    """Return the class of a method's response."""
    return GetMessageClass(wire.DESCRIPTOR.services_by_name[service].methods_by_name[method].output_type)
