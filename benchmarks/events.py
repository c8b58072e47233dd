"""JSON events as a web service's log has them: varied, and the same for a number in every process.

A choice is a piece of a 64-bit mix of the number, so that any event can be made without the ones before it.
Ids, addresses and durations differ from event to event; services, methods and paths come from short lists,
some far more often than others. zstd makes them about four times smaller.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

_MASK = (1 << 64) - 1
_SERVICES = ("checkout", "catalog", "search", "accounts", "payments", "shipping", "images", "gateway")
_REGIONS = ("eu-west-1", "eu-central-1", "us-east-1", "ap-south-1")
_METHODS = ("GET",) * 11 + ("POST",) * 3 + ("PUT", "DELETE")
_STATUSES = (200,) * 24 + (201, 204, 301, 304, 400, 404, 404, 500)
_RESOURCES = ("orders", "products", "carts", "users", "invoices", "reviews", "sessions", "prices")


def _mixed(number: int) -> int:
    """64 bits that look random (the finalizer of SplitMix64)."""
    mix = (number + 1) * 0x9E3779B97F4A7C15 & _MASK
    mix = (mix ^ mix >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    mix = (mix ^ mix >> 27) * 0x94D049BB133111EB & _MASK
    return mix ^ mix >> 31


def event_at(number: int, timestamp_ms: int) -> tuple[bytes, bytes]:
    """Key (the user) and value (JSON text) of an event."""
    mix, more = _mixed(number), _mixed(~number & _MASK)
    # the product of two random numbers: few users make many of the events
    user = 100_000 + (mix & 0x3FF) * (mix >> 10 & 0x3FF)
    status = _STATUSES[mix >> 20 & 31]
    duration_ms = (mix >> 25 & 0xFF) * (mix >> 33 & 0x3F) / 10 + 1
    text = (
        f'{{"time":"{_format_second(timestamp_ms // 1000)}.{timestamp_ms % 1000:03d}Z",'
        f'"level":"{"ERROR" if status >= 500 else "INFO"}",'
        f'"service":"{_SERVICES[mix >> 39 & 7]}","region":"{_REGIONS[mix >> 42 & 3]}",'
        f'"trace":"{mix:016x}{more:016x}","user":{user},'
        f'"address":"{user % 223}.{user % 251}.{more >> 48 & 0xFF}.{more >> 56}",'
        f'"method":"{_METHODS[mix >> 44 & 15]}","path":"/api/v2/{_RESOURCES[mix >> 48 & 7]}/{more & 0xFFFF}",'
        f'"status":{status},"duration_ms":{duration_ms:.1f},"bytes":{more >> 16 & 0x3FFF}}}'
    )
    return b"user-%d" % user, text.encode()


@lru_cache(maxsize=16)
def _format_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
