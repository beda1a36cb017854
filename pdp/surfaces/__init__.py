"""Surfaces: protocols, from bytes to a batch and from an answer to bytes. They hold no policy, and know no engine.

`admission`, `peers`, `refusals` and `listeners` serve all of them. `connect` answers the methods of gRPC over HTTP.
`wire` is generated from `protos/`.

- `http`: the composition root starts `http.server` with `http.endpoints` and the diagnostics of `http.handlers`.
  Other surfaces have `http.handlers`, `http.routes` and `http.answers`.
- `grpc`: the composition root starts `grpc.server` with `grpc.answers` and `grpc.management`. `grpc.handlers` has the
  limits, the caller and the errors of every method.
"""
