"""Reading and writing must not import pandas: that takes longer than all else in a process that Spark begins,
and Spark begins several for each query. pyarrow imports it by itself at times; see ``columns.constant``."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.spark.conftest import missing_python

pytestmark = pytest.mark.skipif(
    missing_python() is not None or find_spec("pandas") is None, reason="needs pyspark, pyarrow and pandas"
)

READ = """
import sys
import logstore
from logstore.spark.source import LogstoreSource
from pyspark.sql.types import StructType

path = sys.argv[1]
with logstore.open(path) as store:
    store.create_topic("from", partitions=2).extend([(b"k%d" % n, b"v") for n in range(9)])
    store["from"].append(b"without a key", partition=0)
    store.create_topic("to", partitions=2)

def read(schema, **options):
    reader = LogstoreSource({"path": path, "subscribe": "from", **options}).reader(schema)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert {batch.num_columns for batch in batches} == {len(schema)}
    return batches

everything = LogstoreSource({"path": path, "subscribe": "from", "includeHeaders": "true"}).schema()
assert sum(batch.num_rows for batch in read(everything, includeHeaders="true")) == 10
"""
TABLE = """
assert sum(batch.num_rows for batch in read(StructType().add("key", "binary"), latestByKey="true")) == 9
"""
WRITE = """
rows = StructType().add("key", "binary").add("value", "binary")
for schema in (rows, StructType(rows.fields).add("partition", "integer")):
    writer = LogstoreSource({"path": path, "topic": "to"}).writer(schema, overwrite=False)
    writer.commit([writer.write(iter(read(schema)))])
with logstore.open(path, read_only=True) as store:
    assert sum(log.log_end_offset for log in store["to"]) == 20
"""


@pytest.mark.parametrize("more", ["", TABLE, WRITE], ids=["read", "table", "write"])
def test_no_pandas(tmp_path, more):
    program = f"{READ}{more}\nprint('pandas' in sys.modules)"
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr
