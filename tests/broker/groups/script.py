"""Stories of a group in text files, and the traces that they print.

A story is a title, steps, and below ``----`` what they print. Each line of steps is run in turn and printed
with what it leads to, indented: answers, what is stored, and the group if it has changed. Run this module to
write the traces anew, and read the difference::

    python -m tests.broker.groups.script

The steps, for a client ``a`` whose member id, generation and instance id are remembered:

    config group_max_size=2          before all else
    join a [protocols=range:orders] [instance=x] [session=10000] [rebalance=30000] [v4] [v9] [new] [type=...]
    sync a [a=orders-0 b=orders-1]   with an assignment from the leader, by client
    heartbeat a b, commit a, leave a b
    remove x                         by instance id
    wait 5000                        milliseconds
    storage fails|works|holds|releases
    describe, list, delete           the group
    restart                          the broker
    timers                           what is left of those that are armed

``id=`` and ``generation=`` replace what is remembered. ``new`` forgets the member id first. In the traces,
the group is shown in brackets when it has changed: state, generation, and members, with ``*`` at the leader.
"""

from __future__ import annotations

from pathlib import Path

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from tests.broker.groups.stage import Stage, protocols

STORIES = sorted(Path(__file__).with_name("stories").glob("*.txt"))
GROUP = "g"
_FLAGS = {"v4", "v9", "new"}


class Client:
    """What a client knows of itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.instance_id = None
        self.protocols = "range:orders"


class Teller:
    """Runs the steps of one story."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._clients: dict[str, Client] = {}
        self._stage = Stage()
        self._shown = "Dead"

    def tell(self, steps: list[str]) -> str:
        for step in steps:
            self._lines.append(step)
            self._stage.storage.on_call = self._print
            verb, *words = step.split()
            positional = [word for word in words if "=" not in word and word not in _FLAGS]
            options = dict(word.split("=", 1) for word in words if "=" in word)
            options |= {word: "yes" for word in words if word in _FLAGS}
            getattr(self, f"_do_{verb}")(positional, options)
            self._show_group()
        return "\n".join(self._lines) + "\n"

    def _print(self, line: str) -> None:
        self._lines.append(f"    {line}")

    def _show_group(self) -> None:
        answers: list = []
        self._stage.coordinator.describe_groups([GROUP], answers.append)
        group = answers[0][0]
        known = self._stage.coordinator._groups.get(GROUP)
        generation = f" {known.group.generation}" if known else ""
        leader = known.group.leader_id if known else None
        members = " ".join(m.member_id + "*" * (m.member_id == leader) for m in group.members)
        shown = f"{group.state}{generation}{': ' if members else ''}{members}"
        if shown != self._shown:
            self._shown = shown
            self._print(f"[{shown}]")

    def _client(self, name: str, options: dict[str, str]) -> Client:
        client = self._clients.setdefault(name, Client(name))
        if "new" in options:
            client.member_id = ""
        client.instance_id = options.get("instance", client.instance_id)
        client.protocols = options.get("protocols", client.protocols)
        return client

    def _named(self, client: Client, options: dict[str, str]) -> tuple[int, str]:
        generation = int(options.get("generation", client.generation))
        return generation, options.get("id", client.member_id)

    # Steps

    def _do_config(self, _names, options):
        self._stage = Stage(**{key: int(value) for key, value in options.items()})

    def _do_join(self, names, options):
        client = self._client(names[0], options)

        def done(result):
            if result.error is ErrorCode.NONE:
                client.member_id, client.generation = result.member_id, result.generation
                leads = ", ".join(member.member_id for member in result.members)
                text = f"joined generation {result.generation} as {result.member_id}, {result.protocol}"
                text += f", leader {result.leader_id}" + (f", assigns to {leads}" if leads else "")
                text += ", which it skips" if result.skip_assignment else ""
            else:
                text = f"{result.error.name} {result.member_id}".rstrip()
                if result.error is ErrorCode.MEMBER_ID_REQUIRED:
                    client.member_id = result.member_id
            self._print(f"{client.name}: {text}")

        request = JoinGroup(
            options.get("group", GROUP),
            options.get("type", "consumer"),
            protocols(client.protocols),
            int(options.get("session", 10_000)),
            int(options.get("rebalance", 30_000)),
            self._named(client, options)[1],
            client.instance_id,
            client.name,
            "/127.0.0.1",
            requires_member_id="v4" in options,
            can_skip_assignment="v9" in options,
        )
        self._stage.coordinator.join_group(request, self._stage.once(done))

    def _do_sync(self, names, options):
        client = self._client(names[0], options)
        parts = {
            self._clients[name].member_id: part.encode()
            for name, part in options.items()
            if name in self._clients
        }

        def done(result):
            part = f" {result.protocol} {result.assignment.decode()}" if not result.error else ""
            self._print(f"{client.name}: synced {result.error.name}{part}")

        generation, member_id = self._named(client, options)
        request = SyncGroup(
            GROUP,
            generation,
            member_id,
            client.instance_id,
            options.get("type"),
            options.get("protocol"),
            parts,
        )
        self._stage.coordinator.sync_group(request, self._stage.once(done))

    def _do_heartbeat(self, names, options):
        for name in names:
            client = self._client(name, options)
            beat = Heartbeat(GROUP, *self._named(client, options), client.instance_id)
            done = self._stage.once(lambda error, name=name: self._print(f"{name}: {error.name}"))
            self._stage.coordinator.heartbeat(beat, done)

    def _do_commit(self, names, options):
        client = self._client(names[0], options)
        generation, member_id = self._named(client, options)
        error = self._stage.coordinator.check_commit(GROUP, generation, member_id, client.instance_id)
        self._print(f"{client.name}: {error.name}")

    def _do_leave(self, names, options):
        clients = [self._client(name, options) for name in names]
        self._leave(tuple(LeavingMember(self._named(c, options)[1], c.instance_id) for c in clients))

    def _do_remove(self, names, _options):
        self._leave(tuple(LeavingMember(instance_id=name) for name in names))

    def _leave(self, members):
        def done(result):
            for member in result.members:
                self._print(f"left {member.member_id or member.instance_id}: {member.error.name}")

        self._stage.coordinator.leave_group(LeaveGroup(GROUP, members), self._stage.once(done))

    def _do_wait(self, names, _options):
        self._stage.wait(int(names[0]))

    def _do_storage(self, names, _options):
        storage = self._stage.storage
        if names[0] == "holds":
            storage.is_holding = True
        elif names[0] == "releases":
            storage.release()
        else:
            fails = names[0] == "fails"
            storage.error = ErrorCode.COORDINATOR_NOT_AVAILABLE if fails else ErrorCode.NONE

    def _do_describe(self, _names, _options):
        def done(groups):
            group = groups[0]
            self._print(f"{group.state} {group.protocol_type} {group.protocol}".rstrip())
            for m in group.members:
                self._print(f"  {m.member_id} {m.instance_id or '-'} {m.client_id} {m.assignment.decode()}")

        self._stage.coordinator.describe_groups([GROUP], self._stage.once(done))

    def _do_list(self, names, _options):
        def done(groups):
            self._print(", ".join(f"{g.group_id} {g.protocol_type} {g.state}" for g in groups) or "none")

        self._stage.coordinator.list_groups(names, self._stage.once(done))

    def _do_delete(self, _names, _options):
        done = self._stage.once(lambda results: self._print(", ".join(e.name for e in results.values())))
        self._stage.coordinator.delete_groups([GROUP], done)

    def _do_restart(self, _names, _options):
        self._stage.coordinator.close()
        self._stage.start()

    def _do_timers(self, _names, _options):
        now_ms = self._stage.clock.monotonic_ms()
        left = ", ".join(str(each.due_ms - now_ms) for each in self._stage.timers.armed)
        self._print(f"timers: {left or 'none'}; unanswered: {self._stage.unanswered_count}")


def tell(text: str) -> str:
    """A story with the trace that its steps print."""
    head, _, _ = text.partition("----\n")
    _, _, steps = head.partition("\n")
    return f"{head}----\n{Teller().tell([step for step in steps.splitlines() if step])}"


if __name__ == "__main__":
    for path in STORIES:
        path.write_text(tell(path.read_text(encoding="utf-8")), encoding="utf-8")
