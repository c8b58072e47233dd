"""Transactions as compaction sees them: whose data is aborted, and which markers nobody needs any more.

One pass over a log, batch by batch in order. The records of an aborted transaction go at once. Its marker
stays for as long as a pass still meets a batch of the transaction, were it one that goes in this very pass:
a marker without its transaction harms nobody, a transaction without its marker would never end. The same
holds of the markers that commit. The rules are Kafka's. Knows nothing of records but the markers', and
nothing of files.
"""

from __future__ import annotations

from collections import deque

from logstore.format.control import ControlType
from logstore.format.header import TRANSACTIONAL_BIT, BatchHeader
from logstore.format.index import AbortedTransactions
from logstore.model import AbortedTransaction


class CleanedTransactions:
    """The transactions of one pass.

    ``aborted`` are all that are known of the log; those that ended below the pass do no harm.
    """

    def __init__(self, aborted: AbortedTransactions, start_offset: int = 0) -> None:
        ahead = [entry for entry in aborted if entry.last_offset >= start_offset]
        self._ahead = deque(sorted(ahead, key=lambda entry: entry.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}
        """By producer: those that have begun."""
        self._met: set[int] = set()
        """The producers of whose present transaction a batch was met."""

    def _begin_until(self, offset: int) -> None:
        while self._ahead and self._ahead[0].first_offset <= offset:
            entry = self._ahead.popleft()
            self._aborted[entry.producer_id] = entry

    def meet_data(self, header: BatchHeader) -> bool:
        """A batch that is no control batch; returns whether its records are aborted."""
        if not header.attributes & TRANSACTIONAL_BIT:
            return False
        self._begin_until(header.last_offset)
        self._met.add(header.producer_id)
        return header.producer_id in self._aborted

    def meet_marker(self, header: BatchHeader, kind: ControlType) -> tuple[bool, AbortedTransaction | None]:
        """A marker, ABORT or COMMIT. Returns whether a batch of its transaction was met, and what the
        transaction index says of it.

        Raises:
            CorruptionError: the index says of the transaction what its marker does not. Somebody who went by
                the index would keep what was aborted in place of what was committed, or drop what was.
        """
        self._begin_until(header.last_offset)
        entry = self._aborted.pop(header.producer_id, None)
        was_met = header.producer_id in self._met
        self._met.discard(header.producer_id)
        if was_met and (entry is not None) is not (kind is ControlType.ABORT):
            said = "no aborted transaction" if entry is None else "an aborted transaction"
            raise header.damage(
                f"the marker says {kind.name} for producer {header.producer_id}, and the transaction indexes "
                f"know of {said}",
                0,
            )
        return was_met, entry
