"""An audit log: who did what, appended with its time, and read back by day.

Each entry has its own time, also if it is appended later, and is durable when the call returns.
Run: python examples/audit_log.py
"""

import tempfile
from datetime import UTC, datetime, timedelta

import logstore

TUESDAY = datetime(2026, 3, 3, tzinfo=UTC)
DAY = timedelta(days=1)

with tempfile.TemporaryDirectory() as directory, logstore.open(directory) as store:
    audit = store.require_topic("audit", partitions=4).serialized(key="text", value="json")
    audit.append({"did": "log in"}, key="alice", timestamp_ms=TUESDAY - timedelta(minutes=1), flush=True)
    audit.extend(
        [
            ("alice", {"did": "open", "file": "payroll"}, TUESDAY),
            ("bob", {"did": "log in"}, TUESDAY + timedelta(hours=9)),
            ("alice", {"did": "change", "file": "payroll"}, TUESDAY + timedelta(hours=9, minutes=30)),
            ("bob", {"did": "log out"}, TUESDAY + DAY),
        ],
        flush=True,
    )

    for record in audit.read(TUESDAY, TUESDAY + DAY):
        print(f"{record.timestamp:%a %H:%M}  {record.key:8} {' '.join(record.value.values())}")
