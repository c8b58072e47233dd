"""The network and the time of the simulator, as tests of other programs use them."""

import pytest

from logstore.testing import NetworkFaults, World


def test_what_is_under_way_when_a_way_is_cut_is_lost_though_it_is_healed_at_once():
    world, got = World(seed=1), []
    world.network.connect("a", got.append)
    world.network.send("b", "a", "under way")
    world.network.send("c", "a", "from elsewhere")
    world.network.cut("b", "a")
    world.network.heal()
    world.network.send("b", "a", "later")
    world.run(until_ms=100)
    assert sorted(got) == ["from elsewhere", "later"]


def test_what_is_sent_while_a_way_is_cut_is_lost_though_it_is_healed_at_once():
    """It arrived where the way was healed before the message would have been there."""
    world, got = World(seed=1), []
    world.network.connect("a", got.append)
    world.network.cut("b", "a")
    world.network.send("b", "a", "into the cut")
    world.network.send("c", "a", "from elsewhere")
    world.network.heal()
    world.network.send("b", "a", "later")
    world.run(until_ms=100)
    assert sorted(got) == ["from elsewhere", "later"]


def test_a_place_that_is_isolated_hears_and_says_nothing():
    world, got = World(seed=1), []
    for place in ("a", "b"):
        world.network.connect(place, got.append)
    world.network.isolate("a", ["b"])
    world.network.send("a", "b", 1)
    world.network.send("b", "a", 2)
    world.run(until_ms=100)
    assert got == []


@pytest.mark.parametrize("wrong", [None, "tick", 5])
def test_what_cannot_be_called_is_refused_at_once(wrong):
    """It failed when its time had come, in `World.run`, and nothing told who had asked for it."""
    world = World(seed=1)
    with pytest.raises(ValueError, match=rf"^action is {wrong!r}; it must be a function"):
        world.call_later(5, wrong)
    with pytest.raises(ValueError, match=rf"^receive is {wrong!r}; it must be a function"):
        world.network.connect("a", wrong)


@pytest.mark.parametrize("delay_ms", [None, "5", float("nan")])
def test_a_delay_is_a_number(delay_ms):
    with pytest.raises(ValueError, match=rf"^delay_ms is {delay_ms!r}; it must be a number of milliseconds"):
        World(seed=1).call_later(delay_ms, list)


def test_time_does_not_go_back():
    world = World(seed=1)
    world.run(until_ms=100)
    world.run(until_ms=50)
    assert world.now_ms == 100


@pytest.mark.parametrize("delays", [{"most_delay_ms": 0}, {"least_delay_ms": -1}])
def test_delays_that_no_message_can_have_are_refused(delays):
    with pytest.raises(ValueError, match="0 <= least <= most"):
        World(seed=1, faults=NetworkFaults(**delays))


@pytest.mark.parametrize("share", [20, 1.1, -0.1, float("nan")])
@pytest.mark.parametrize("name", ["loss", "duplication"])
def test_a_share_is_from_0_to_1(name, share):
    """With 20, as of 100, no message arrives, and the test finds nothing."""
    with pytest.raises(ValueError, match=rf"{name} is .*from 0 to 1"):
        World(seed=1, faults=NetworkFaults(**{name: share}))


@pytest.mark.parametrize("seed", [None, 1.5, b"1", [1], True])
def test_a_seed_that_repeats_nothing_is_refused(seed):
    """Without one, each run was another."""
    with pytest.raises(ValueError, match=r"^seed is .*; it must be a whole number or a text"):
        World(seed)


def test_faults_are_named():
    with pytest.raises(ValueError, match=r"NetworkFaults\(loss=0.1\)"):
        World(1, {"loss": 0.1})
