"""kafka-python's record codec, plain Python with a compiled CRC-32C, over a file."""

from __future__ import annotations

from typing import Any, ClassVar

import kafka
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from benchmarks.contenders.kafka_file import KafkaFile


class KafkaPythonContender(KafkaFile):
    settings: ClassVar[str] = (
        "its `DefaultRecordBatchBuilder` with the crc32c package, one `pwrite` for each batch; "
        "`MemoryRecords` over pieces of 1 MiB, `validate_crc`, iteration"
    )
    builder_class: ClassVar[Any] = DefaultRecordBatchBuilder
    records_class: ClassVar[Any] = MemoryRecords

    @staticmethod
    def version() -> str:
        return str(kafka.__version__)
