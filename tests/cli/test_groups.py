"""``logstore groups``: shows groups, lets them go on elsewhere, and deletes them."""

import shutil

import pytest

import logstore
from tests.cli.helpers import QUIET, TIME_MS, answer, make_store, run
from tests.logdir.helpers import flip_byte, snapshot


@pytest.fixture
def path(tmp_path):
    """Two partitions of 20 records, a second apart, and two groups."""
    path = make_store(tmp_path / "s")
    with logstore.open(path, config=QUIET) as store:
        store.offsets("a").commit({("orders", 0): 3, ("orders", 1): 20})
        consumer = store.consumer("orders", group="b", group_instance_id="one")
        while not consumer.assignment:
            consumer.poll(timeout=0.1)
        consumer.commit({("orders", 1): logstore.model.OffsetAndMetadata(7, "a note")})
    return path


def committed(path, group):
    with logstore.open(path, read_only=True) as store:
        return {each.partition: value.offset for each, value in store.offsets(group).items()}


def test_what_groups_there_are(path):
    assert answer("groups", path).lines == [
        "GROUP  STATE   ASSIGNOR            MEMBERS  OFFSETS  LAG",
        "a      Empty   -                         0        2   17",
        "b      Stable  cooperative-sticky        1        1   13",
    ]
    rows = answer("groups", path, "--json").rows
    assert [row["group"] for row in rows] == ["a", "b"]
    assert answer("groups", path, "b", "--json").rows == rows[1:]
    (member,) = rows[1].pop("members")
    assert member.pop("member_id").startswith("one-")
    assert member == {
        "instance_id": "one",
        "client_id": "logstore",
        "client_host": "in-process",
        "partitions": [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}],
    }
    offset = {"topic": "orders", "partition": 1, "offset": 7, "metadata": "a note", "lag": 13}
    assert rows[1] == {
        "group": "b",
        "state": "Stable",
        "protocol_type": "consumer",
        "assignor": "cooperative-sticky",
        "offsets": [offset],
    }
    shown = answer("groups", path, "b").out
    assert "orders-0, orders-1" in shown
    assert shown.splitlines()[-1].split() == ["orders", "1", "7", "13", "a", "note"]
    assert answer("groups", make_store(path / ".." / "other")).lines == [
        "GROUP  STATE  ASSIGNOR  MEMBERS  OFFSETS  LAG"
    ]


@pytest.mark.damaged
def test_a_lag_that_is_known_in_part(path):
    shutil.rmtree(path / "orders-1")
    assert answer("groups", path).lines[1].endswith("2  at least 17")
    assert answer("groups", path).lines[2].endswith("1  at least 0")


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--reset", "earliest"], {0: 0, 1: 0}),
        (["--reset", "latest"], {0: 20, 1: 20}),
        (["--reset", "5"], {0: 5, 1: 5}),
        (["--reset", "5", "--topic", "orders", "-p", "0"], {0: 5, 1: 20}),
        (["--reset", f"{TIME_MS + 4000}ms", "--topic", "orders"], {0: 4, 1: 0}),
        (["--reset", "-1s", "--topic", "orders", "--partition", "0"], {0: 20, 1: 20}),
    ],
)
def test_a_group_goes_on_elsewhere(path, options, offsets):
    before = snapshot(path)
    planned = answer("groups", path, "a", *options, "--dry-run", "--json").rows
    assert snapshot(path) == before
    rows = answer("groups", path, "a", *options, "--json").rows
    assert rows == [row | {"is_dry_run": False} for row in planned]
    assert {row["partition"]: row["after"] for row in rows}.items() <= offsets.items()
    assert committed(path, "a") == offsets
    again = answer("groups", path, "a", *options)
    assert again.lines[0].split() == ["TOPIC", "PARTITION", "BEFORE", "AFTER"]
    assert "dry run" not in again.err


def test_a_dry_run_works_beside_a_writer(path):
    with logstore.open(path) as store:
        done = answer("groups", path, "a", "--reset", "latest", "--dry-run")
        assert done.err == "dry run: nothing was changed\n"
        refused = run("groups", path, "a", "--reset", "latest")
        assert (refused.code, committed(path, "a")) == (3, {0: 3, 1: 20})
        assert "has the directory open for writing" in refused.err
        assert dict(store.offsets("a"))[("orders", 0)].offset == 3


def test_the_group_of_a_queue_is_told_from_one_that_is_not_there(path):
    with logstore.open(path) as store, store.queue("orders", group="workers") as queue:
        queue.poll(timeout=5, max_jobs=1)[0].accept()
    said = (
        "'workers' is the group of a queue, where 39 jobs wait. Queues are not shown here: store.queues() in"
    )
    for options in ([], ["--delete"], ["--reset", "latest", "--dry-run"]):
        refused = run("groups", path, "workers", *options)
        assert refused.code == 3
        assert refused.err.startswith(f"error: {said}")
    assert answer("lag", path, "workers").err.startswith(said)


def test_a_group_is_deleted(path):
    assert run("groups", path, "a", "--delete").err == "group 'a' was deleted, with 2 committed offsets\n"
    assert [row["group"] for row in answer("groups", path, "--json").rows] == ["b"]
    with logstore.open(path) as store:
        store.groups().remove_members("b", ["one"])
    assert answer("groups", path, "b", "--delete", "--json").rows == [{"group": "b", "offsets": 1}]
    assert answer("groups", path, "--json").rows == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["c"], 3, "there is no group 'c' in {}; there are 'a', 'b'"),
        (["c", "--delete"], 3, "there is no group 'c' in {}; there are 'a', 'b'"),
        (["b", "--delete"], 3, "group 'b' has 1 member, and it was not deleted: 'one-"),
        (["b", "--reset", "latest"], 3, "group 'b' has 1 member, and its offsets were not reset: 'one-"),
        (["b", "--reset", "latest", "--dry-run"], 3, "group 'b' has 1 member, and its offsets were not"),
        (
            ["a", "--reset", "21"],
            2,
            "a group cannot go on at offset 21 of orders-0: its log has offsets 0 to 20",
        ),
        (["a", "--reset", "latest", "--topic", "order"], 3, "there is no topic 'order' in {}; did you mean"),
        (
            ["a", "--reset", "latest", "--topic", "orders", "-p", "2"],
            3,
            "'orders' has 2 partitions, numbered",
        ),
        (["a", "--reset", "9" * 18 + "ms"], 2, "9" * 18 + "ms is after the year 9999"),
        (["a", "--reset", "soon"], 2, "'soon' is neither an offset nor a time; "),
        (["a", "--reset", "5", "--delete"], 2, "--reset and --delete do not go together"),
        (["--reset", "5"], 2, "name the group that is to be changed, behind the directory"),
        (["--delete"], 2, "name the group that is to be changed, behind the directory"),
        (["a", "--dry-run"], 2, "--dry-run goes with --reset"),
        (["a", "--delete", "--dry-run"], 2, "--dry-run goes with --reset"),
        (["a", "--topic", "orders"], 2, "--topic and --partition go with --reset"),
        (["a", "--reset", "5", "-p", "0"], 2, "--partition is of one topic; name it with --topic"),
        (
            ["a", "--reset", "5", "--topic", "orders", "--topic", "orders", "-p", "0"],
            2,
            "--partition is of one topic; name it with --topic",
        ),
    ],
)
def test_what_cannot_be_done_is_said(path, arguments, code, said):
    before = committed(path, "a"), committed(path, "b")
    done = run("groups", path, *arguments)
    assert (done.code, done.out) == (code, "")
    assert said.format(path) in done.err
    assert (committed(path, "a"), committed(path, "b")) == before


@pytest.mark.damaged
def test_groups_that_are_damaged(path):
    flip_byte(path / "__consumer_offsets-0" / f"{0:020}.log", 80)
    done = run("groups", path)
    assert (done.code, done.out) == (1, "")
    assert "__consumer_offsets-0" in done.err
