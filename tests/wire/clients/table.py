"""The clients of the table, in its order."""

from __future__ import annotations

from tests.interop import kafka
from tests.wire.clients.columns import Client, PythonClient
from tests.wire.clients.programs import FranzGo, JavaClient, KafkaJs, SparkConnector

CLIENTS: list[Client] = [
    JavaClient(kafka.NEWEST),
    JavaClient(kafka.OLD),
    PythonClient("confluent-kafka", "python_confluent", package="confluent_kafka"),
    PythonClient("kafka-python", "python_kafka", package="kafka"),
    PythonClient("aiokafka", "python_aiokafka", package="aiokafka"),
    KafkaJs(),
    FranzGo(),
    PythonClient("kcat", "kcat", program="kcat"),
    SparkConnector(),
]
