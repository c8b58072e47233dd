"""The transactional outbox: what a database committed reaches the log exactly once, and its readers too.

An order and the event that tells of it are committed together, in SQLite. A relay moves events to the log. If
it dies between appending and removing rows, the log says what it has. A reader keeps its next offset in the
same transaction as the effect of the records, and so counts each once. Run: python examples/outbox.py
"""

import sqlite3
import tempfile

import logstore

TABLES = """
create table orders (id integer primary key, amount integer);
create table outbox (id integer primary key autoincrement, event blob);
create table revenue (amount integer, next_offset integer); insert into revenue values (0, 0);
"""


def place_order(database: sqlite3.Connection, amount: int) -> None:
    with database:  # one transaction: both rows or neither
        database.execute("insert into orders (amount) values (?)", (amount,))
        database.execute("insert into outbox (event) values (?)", (b"%d" % amount,))


def relay(database: sqlite3.Connection, log: logstore.Log, *, dies: bool = False) -> None:
    last = list(log.read(max(log.log_end_offset - 1, log.log_start_offset)))
    done = int(dict(last[0].headers)["outbox-id"] or 0) if last else 0
    rows = database.execute("select id, event from outbox where id > ? order by id", (done,)).fetchall()
    records = [logstore.NewRecord(event, headers=(("outbox-id", b"%d" % number),)) for number, event in rows]
    log.extend(records, flush=True)  # durable before the rows go
    print(f"relay: {len(rows)} events, the log ends at {log.log_end_offset}", "... and dies" * dies)
    if not dies:
        with database:
            database.execute("delete from outbox where id <= ?", (rows[-1][0] if rows else done,))


def sum_up(database: sqlite3.Connection, log: logstore.Log) -> None:
    amount, offset = database.execute("select amount, next_offset from revenue").fetchone()
    for record in log.read(offset):
        amount, offset = amount + int(record.value or 0), record.offset + 1
    with database:
        database.execute("update revenue set amount = ?, next_offset = ?", (amount, offset))
    print(f"revenue: {amount}, from the records below offset {offset}")


if __name__ == "__main__":
    database = sqlite3.connect(":memory:")
    database.executescript(TABLES)
    with tempfile.TemporaryDirectory() as directory, logstore.open(directory) as store:
        log = store.create_topic("orders")[0]
        for amount, dies in [(10, False), (20, True), (30, False)]:
            place_order(database, amount)
            relay(database, log, dies=dies)
            sum_up(database, log)
        print("in the log:", [record.value for record in log])
    database.close()
