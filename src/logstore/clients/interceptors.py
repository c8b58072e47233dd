"""What happens to records on their way: interceptors, and serializers.

A producer's record passes its interceptors, then its serializers, then the partitioner. A consumer's records
pass its deserializers, then its interceptors. Both are plain callables. In Kafka an interceptor's exception
is logged and forgotten; here the caller gets it, and nothing was sent, or the records come again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from logstore.arguments import shown
from logstore.errors import InvalidRecordError, UsageError
from logstore.model import Bytes, Moment, Record
from logstore.serializing import (
    BYTES,
    DecoderChoice,
    EncoderChoice,
    SerializedRecord,
    Serializer,
    check_one_way,
    decode_record,
    encode_field,
)


class ProducerRecord(NamedTuple):
    """The arguments of one :meth:`.Producer.send`."""

    topic: str
    value: Any
    key: Any
    partition: int | None
    headers: Any
    timestamp_ms: Moment | None


ProducerInterceptor = Callable[[ProducerRecord], ProducerRecord]
"""Called in :meth:`.Producer.send` with the record; returns the record to send."""

ConsumerInterceptor = Callable[[list[Any]], list[Any]]
"""Called in :meth:`.Consumer.poll` with the records; returns those to give."""

_C = TypeVar("_C", bound=Callable[..., Any])


class Departure:
    """What becomes of the records of a producer before it takes them."""

    def __init__(
        self,
        key: EncoderChoice | None,
        value: EncoderChoice | None,
        interceptors: Iterable[ProducerInterceptor],
    ) -> None:
        """
        Raises:
            UsageError: a serializer or an interceptor is not one.
        """
        self._key = BYTES if key is None else check_one_way(key, "key_serializer")
        self._value = BYTES if value is None else check_one_way(value, "value_serializer")
        self._interceptors = _checked(interceptors)
        self.is_needed = bool(self._interceptors or key is not None or value is not None)

    def prepare(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send, in bytes.

        Raises:
            InvalidRecordError: a serializer refuses its key or value; names the topic.
            UsageError: an interceptor returns no record. What it raises itself is raised, too.
        """
        for interceptor in self._interceptors:
            record = interceptor(record)
            if not isinstance(record, ProducerRecord):
                raise UsageError(
                    f"the interceptor {_name_of(interceptor)} returned {shown(record)}; it must return the "
                    "record to send: the one that it got, or record._replace(value=...)"
                )
        return record._replace(
            key=_encoded(self._key, record.key, "key", record.topic),
            value=_encoded(self._value, record.value, "value", record.topic),
        )


def _encoded(serializer: Serializer, field: Any, whose: str, topic: str) -> Bytes | None:
    if serializer is BYTES:
        return field  # type: ignore[no-any-return]  # checked with the record
    return encode_field(serializer, field, f"the {whose} of a record for topic {shown(topic)}")


class Arrival:
    """What becomes of the records of a consumer before it gives them."""

    def __init__(
        self,
        key: DecoderChoice | None,
        value: DecoderChoice | None,
        interceptors: Iterable[ConsumerInterceptor],
    ) -> None:
        """
        Raises:
            UsageError: a deserializer or an interceptor is not one.
        """
        self._key = BYTES if key is None else check_one_way(key, "key_deserializer")
        self._value = BYTES if value is None else check_one_way(value, "value_deserializer")
        self._decodes = key is not None or value is not None
        self._interceptors = _checked(interceptors)
        self.is_needed = bool(self._decodes or self._interceptors)

    def decode(self, records: list[Record]) -> tuple[list[Any], InvalidRecordError | None]:
        """The decoded records, up to the first that cannot be; and why that is so."""
        if not self._decodes:
            return records, None
        decoded: list[Any] = []
        try:
            for record in records:
                decoded.append(decode_record(record, self._key, self._value, _SEEK))
        except InvalidRecordError as error:
            return decoded, error
        return decoded, None

    def intercept(self, records: list[Any]) -> list[Any]:
        """The records to give.

        Raises:
            UsageError: an interceptor returns no list of records. What it raises itself is raised, too.
        """
        for interceptor in self._interceptors:
            records = interceptor(records)
            if not isinstance(records, list) or not all(map(_is_record, records)):
                raise UsageError(
                    f"the interceptor {_name_of(interceptor)} returned {shown(records)}; it must return the "
                    "list of records to give"
                )
        return records


def _is_record(value: object) -> bool:
    return isinstance(value, Record | SerializedRecord)


_SEEK = "seek() to the next offset passes it"


def _checked(interceptors: Iterable[_C]) -> tuple[_C, ...]:
    """
    Raises:
        UsageError: they are no list of callables.
    """
    is_list = isinstance(interceptors, Iterable) and not isinstance(interceptors, memoryview)
    found = tuple(interceptors) if is_list else None
    if found is None or not all(callable(each) for each in found):
        raise UsageError(f"interceptors is {shown(interceptors)}; it must be a list of functions")
    return found


def _name_of(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
