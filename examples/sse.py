"""Server-sent events from a partition: a browser that comes back goes on where its connection broke.

Needs the packages starlette and uvicorn.
Run: python examples/sse.py
Then: curl -N http://127.0.0.1:8000/events/prices/0
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from logstore import Record, aio

HEARTBEAT_SECONDS = 15.0


def event_of(record: Record) -> str:
    lines = (record.value or b"").decode(errors="replace").splitlines() or [""]
    return f"id: {record.partition}:{record.offset}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"


async def stream(log: aio.AsyncLog, start: int | None) -> AsyncIterator[str]:
    """A comment every now and then keeps the connection, and finds out that it is broken."""
    records = log.follow(start)
    while True:
        try:
            yield event_of(await asyncio.wait_for(anext(records), HEARTBEAT_SECONDS))
        except TimeoutError:
            yield ": still here\n\n"


async def events(request: Request) -> Response:
    store, (name, number) = request.app.state.store, request.path_params.values()
    if name not in store or not 0 <= number < len(store[name]):
        return PlainTextResponse("no such partition\n", status_code=404)
    partition, _, offset = request.headers.get("last-event-id", "").partition(":")
    log, start = store[name][number], None
    if partition == str(number) and offset.isdecimal():
        there = await log.readable_offsets()  # what was deleted meanwhile is skipped
        start = min(max(int(offset) + 1, there.start), there.stop)
    return StreamingResponse(stream(log, start), media_type="text/event-stream")


def application(path: str) -> Starlette:
    @contextlib.asynccontextmanager
    async def opened(app: Starlette) -> AsyncIterator[None]:
        async with aio.open(path) as app.state.store:
            await app.state.store.require_topic("prices")
            yield

    return Starlette(routes=[Route("/events/{topic}/{partition:int}", events)], lifespan=opened)


if __name__ == "__main__":  # streams have no end, so the server ends them when it is told to end
    uvicorn.run(application("data"), port=8000, timeout_graceful_shutdown=1)
