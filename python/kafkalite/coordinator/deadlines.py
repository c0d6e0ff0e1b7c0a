"""When each of many parts of a machine is to hear of time, soonest first.

A part that is heard of often costs nothing: a deadline that is earlier than needed is left alone,
since being called early does no harm.
"""

import heapq

STALE_MIN = 64
"""Entries that count no longer, below which the heap is not swept."""


class Deadlines:
    """Names and the time at which each is due, in milliseconds of one clock."""

    def __init__(self) -> None:
        self._due_ms: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def set(self, name: str, due_ms: int) -> None:
        """The name is due then, or earlier if it was due earlier already."""
        present = self._due_ms.get(name)
        if present is not None and present <= due_ms:
            return
        self._due_ms[name] = due_ms
        heapq.heappush(self._heap, (due_ms, name))
        if len(self._heap) > STALE_MIN + 2 * len(self._due_ms):
            self._heap = [(due_ms, name) for name, due_ms in self._due_ms.items()]
            heapq.heapify(self._heap)

    def forget(self, name: str) -> None:
        """The name is not due any more. Nothing happens if it was not."""
        self._due_ms.pop(name, None)

    def next_ms(self) -> int | None:
        """When `pop_due` has something; None if nothing is due ever."""
        heap = self._heap
        while heap and self._due_ms.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now_ms: int) -> str | None:
        """The name that is due first, given once; None if none is."""
        due_ms = self.next_ms()
        if due_ms is None or due_ms > now_ms:
            return None
        _, name = heapq.heappop(self._heap)
        del self._due_ms[name]
        return name
