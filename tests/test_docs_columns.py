"""The Python in docs/columns.md runs as it stands, from top to bottom; lines that need a package that is not
there are left out."""

from importlib.util import find_spec
from pathlib import Path

import pytest

import logstore
from tests.pages import has_its_packages, typed_out

pytest.importorskip("pyarrow")


@pytest.fixture
def names(tmp_path, monkeypatch):
    """The variables after all blocks have run."""
    monkeypatch.chdir(tmp_path)
    with typed_out("docs/columns.md", has_its_packages) as ran:
        yield ran.names | {"printed": ran.printed}


def test_the_lines_run_and_show_what_they_promise(names):
    values = [record.value for record in names["log"].read()]
    assert values == [b"30", b"12", b"8", b"7", b"1"]
    assert [record.value for record in names["copy"].read()] == values
    assert names["printed"].startswith("3\n")
    if find_spec("duckdb"):
        assert "('alice', 38)" in names["printed"]


@pytest.mark.skipif(find_spec("polars") is None, reason="needs polars")
def test_polars_gives_back_what_it_was_given(names):
    log, polars = names["log"], names["polars"]
    frame = polars.from_arrow(log.read_arrow(columns=["key", "value", "timestamp_ms"]))
    texts = frame.with_columns(polars.col("value").cast(polars.String))
    before = log.log_end_offset
    log.extend_arrow(frame)
    log.extend_arrow(texts)
    rows = [(record.key, record.value, record.timestamp_ms) for record in log.read()]
    assert rows == frame.rows() * 3
    assert polars.DataFrame(log.iterate_arrow(before, columns=["key"])).rows() == [
        (key,) for key, *_ in rows[before:]
    ]


@pytest.mark.skipif(find_spec("pandas") is None, reason="needs pandas")
def test_pandas_gives_back_what_it_was_given(names):
    log = names["log"]
    frame = log.read_arrow(columns=["key", "value", "timestamp_ms"]).to_pandas()
    log.extend_arrow(frame)
    rows = [(record.key, record.value, record.timestamp_ms) for record in log.read()]
    assert rows[: len(frame)] == rows[len(frame) :]
    with pytest.raises(logstore.UsageError, match="index"):
        log.extend_arrow(frame.iloc[[2, 0, 1]])  # rows picked out keep their numbers, as a column


@pytest.mark.skipif(find_spec("duckdb") is None, reason="needs duckdb")
def test_duckdb_gives_back_what_it_was_given(names):
    log, duckdb = names["log"], names["duckdb"]
    records = log.read_arrow()
    assert duckdb.sql('SELECT count(*), max("offset") FROM records').fetchall() == [(len(records), 4)]
    log.extend_arrow(
        duckdb.sql(
            "SELECT MAP {'h': 'x'::BLOB} AS headers, 'v' AS value, make_timestamp(5000) AS timestamp_ms"
        )
    )
    assert list(log.read(5)) == [(5, 5, None, b"v", (("h", b"x"),))]


@pytest.mark.skipif(find_spec("duckdb") is None, reason="needs duckdb")
@pytest.mark.damaged
def test_damage_reaches_the_user_of_duckdb(names):
    log, duckdb = names["log"], names["duckdb"]
    log.flush()
    path = Path(log.directory) / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    records = log.iterate_arrow()
    with pytest.raises(duckdb.Error, match="checksum"):
        duckdb.sql("SELECT count(*), min(value) FROM records").fetchall()
    assert records is not None
