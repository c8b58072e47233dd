"""aiokafka's record codec, which is compiled (Cython), over a file."""

from __future__ import annotations

from typing import Any, ClassVar

import aiokafka
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from benchmarks.contenders.kafka_file import KafkaFile


class AiokafkaContender(KafkaFile):
    settings: ClassVar[str] = (
        "its compiled `DefaultRecordBatchBuilder`, one `pwrite` for each batch; `MemoryRecords` over pieces "
        "of 1 MiB, `validate_crc`, iteration"
    )
    builder_class: ClassVar[Any] = DefaultRecordBatchBuilder
    records_class: ClassVar[Any] = MemoryRecords

    @staticmethod
    def version() -> str:
        return str(aiokafka.__version__)

    @staticmethod
    def why_missing() -> str | None:
        is_compiled = "_crecords" in DefaultRecordBatchBuilder.__module__
        return None if is_compiled else "aiokafka's compiled codec is not installed"
