"""Logging gRPC proxy in front of one task.

usage: wire_proxy.py LOG TASK ADDRESS SOURCE=PORT...

Each SOURCE (client, peer or a task) reaches the task through a port of its
own, so the log knows the caller. Requests and replies are passed on as bytes;
one JSON line per event goes to LOG. The only change: CreateSession.target
names the port of the proxy and is set to ADDRESS.
"""
import argparse
import asyncio
import base64
import itertools
import json
import time

import grpc

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0),
           ("grpc.max_metadata_size", 65536), ("grpc.absolute_max_metadata_size", 131072)]
RECONNECT = [("grpc.max_reconnect_backoff_ms", 300), ("grpc.initial_reconnect_backoff_ms", 100),
             ("grpc.min_reconnect_backoff_ms", 100), ("grpc.use_local_subchannel_pool", 1)]
NOT_FORWARDED = ("user-agent", "te", "content-type")
DETAILS = "grpc-status-details-bin"


class Log:
    def __init__(self, path, task):
        self.file, self.task = open(path, "a", buffering=1), task

    def write(self, **event):
        event.update(t=time.time(), dst=self.task)
        self.file.write(json.dumps(event, default=lambda b: base64.b64encode(b).decode()) + "\n")


class Handler(grpc.GenericRpcHandler):
    calls = itertools.count()

    def __init__(self, log, source, channel, own, address):
        self.log, self.source, self.channel = log.write, source, channel
        self.own, self.address = own.encode(), address.encode()

    def service(self, details):
        method = details.method
        metadata = [(k, v) for k, v in (details.invocation_metadata or ())]
        forwarded = [(k, v) for k, v in metadata if not k.startswith("grpc-") and k not in NOT_FORWARDED]

        async def forward(request, context):
            n, left = next(Handler.calls), context.time_remaining()
            if method.endswith("/CreateSession"):
                request = request.replace(self.own, self.address)
            self.log(ev="req", id=n, src=self.source, m=method, b=request, dl=left,
                     md=[(k, v if isinstance(v, str) else repr(v)) for k, v in metadata])
            call = self.channel.unary_unary(method)(request, timeout=left, metadata=forwarded)
            try:
                reply = await call
                self.log(ev="ok", id=n, b=reply)
                return reply
            except grpc.aio.AioRpcError as e:
                code, message = e.code(), e.details()
                trailer = tuple((k, v) for k, v in (e.trailing_metadata() or ()) if k == DETAILS)
            except asyncio.CancelledError:
                call.cancel()
                self.log(ev="cancel", id=n)
                raise
            self.log(ev="err", id=n, code=code.name, msg=message, tmd=trailer)
            await context.abort(code, message, trailing_metadata=trailer)
        return grpc.unary_unary_rpc_method_handler(forward)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("log")
    parser.add_argument("task")
    parser.add_argument("address")
    parser.add_argument("source", nargs="+")
    a = parser.parse_args()
    log, keep = Log(a.log, a.task), []
    for entry in a.source:
        source, port = entry.rsplit("=", 1)
        channel = grpc.aio.insecure_channel(a.address, options=OPTIONS + RECONNECT)
        server = grpc.aio.server(options=OPTIONS)
        server.add_generic_rpc_handlers((Handler(log, source, channel, "localhost:" + port, a.address),))
        assert server.add_insecure_port("127.0.0.1:" + port)
        await server.start()
        keep.append((server, channel))
    log.write(ev="up")
    await keep[0][0].wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
