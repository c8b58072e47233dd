"""Server-sent events from a partition: a browser that comes back goes on where its connection broke.

Needs starlette and uvicorn: pip install starlette uvicorn
Run: python examples/sse.py
Then: curl -N http://127.0.0.1:8000/events/prices/0
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from logstore import Record, aio

HEARTBEAT_SECONDS = 15.0


def event_of(record: Record) -> str:
    lines = (record.value or b"").decode().splitlines() or [""]
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
    store: aio.AsyncStore = request.app.state.store
    number, name = request.path_params["partition"], request.path_params["topic"]
    if name not in store or not 0 <= number < len(store[name]):
        return PlainTextResponse("no such partition\n", status_code=404)
    partition, _, offset = request.headers.get("last-event-id", "").partition(":")
    start = int(offset) + 1 if partition == str(number) and offset.isdecimal() else None
    return StreamingResponse(stream(store[name][number], start), media_type="text/event-stream")


def application(path: str) -> Starlette:
    @contextlib.asynccontextmanager
    async def opened(app: Starlette) -> AsyncIterator[None]:
        async with aio.open(path) as app.state.store:
            await app.state.store.require_topic("prices")
            yield

    return Starlette(routes=[Route("/events/{topic}/{partition:int}", events)], lifespan=opened)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(application(sys.argv[1] if len(sys.argv) > 1 else "data"), port=8000)
