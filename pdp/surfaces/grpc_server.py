"""Listening gRPC server with TLS, health and reflection. Knows no method of the services."""

from __future__ import annotations

import os
from collections.abc import Mapping

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pdp import errors
from pdp.config.server import LimitSettings
from pdp.identity.tls import Certificates
from pdp.identity.tokens import MAX_TOKEN

# gRPC would also log a failed listen on stderr: `GrpcServer.start` reports this failure as a ConfigError
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


class GrpcServer:
    """Listening server. `services` are handlers by the full name of their service.

    `shared`: further processes of this user may listen on the same address.
    """

    def __init__(
        self,
        services: Mapping[str, grpc.GenericRpcHandler],
        limits: LimitSettings,
        certificates: Certificates | None = None,
        *,
        shared: bool = False,
    ) -> None:
        self._names = tuple(services)
        self._certificates = certificates
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(
            # above the limit of Admission, so that Admission refuses first, with our error code
            maximum_concurrent_rpcs=limits.max_in_flight + 64,
            options=(
                ("grpc.so_reuseport", int(shared)),
                ("grpc.max_receive_message_length", limits.max_body_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_concurrent_streams", min(limits.max_in_flight, 1024)),
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
                ("grpc.http2.max_ping_strikes", 2),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.max_metadata_size", 2 * MAX_TOKEN),
            ),
        )
        self._server.add_generic_rpc_handlers(tuple(services.values()))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    async def start(self, address: str) -> int:
        """Listen on `host:port` and return the port; raise ConfigError if the address is not available."""
        try:
            port = self._listen(address)
        except RuntimeError:
            port = 0
        if not port:
            raise errors.ConfigError(f"cannot listen on `{address}` (server.grpc): is it in use?")
        await self._server.start()
        return port

    def _listen(self, address: str) -> int:
        certificates = self._certificates
        if certificates is None:
            return self._server.add_insecure_port(address)
        # gRPC cannot make client certificates optional: with a CA for clients, every client must have one
        demands_client = certificates.client_ca is not None
        pair = (certificates.key, certificates.cert)
        credentials = grpc.ssl_server_credentials([pair], certificates.client_ca, demands_client)
        return self._server.add_secure_port(address, credentials)

    async def set_ready(self, ready: bool) -> None:
        """Set the answer of `grpc.health.v1` for the server and every service."""
        serving = health_pb2.HealthCheckResponse.SERVING
        status = serving if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", *self._names):
            await self._health.set(service, status)

    async def stop(self, grace: float) -> None:
        """Refuse new calls and wait up to `grace` seconds for calls in flight."""
        await self._server.stop(grace)
