"""A remote home as one process sees it: pieces in the bucket, and a copy in its own memory.

The rules are those of lamina.protocol.pieces; a segment is a list of records, and its pieces are
stretches of that list.
"""

from __future__ import annotations

import pickle
from typing import Any

from lamina.errors import AlreadyExists, Fenced, NotFound, StoreUnavailable
from lamina.format.home_names import DriverSegment
from lamina.protocol import pieces
from lamina.protocol.driver import Adopt
from lamina.protocol.pieces import Slot, Verdict
from lamina.store.base import Store

CLAIM = "claim"
TRIES = 100


class RemoteDisk:
    """What tests.sim.driver asks of a disk. It goes with its process: nobody else has its host."""

    def __init__(self, store: Store, home: str, writer: str) -> None:
        self.store = store
        self.name = home
        self.writer = writer
        self.files: dict[str, list[Any]] = {}  # driver segments
        self.locks: dict[str, str] = {}
        self.slots: list[Slot] = []
        self.head = 0
        self.generations: set[int] = set()
        self._sent: dict[str, int] = {}

    # the log

    def restore(self) -> None:
        """The log as the bucket has it; what is deleted while it is read makes it look again."""
        for _ in range(TRIES):
            listed = self.listed()
            found = [self._piece(sequence) for sequence in listed]
            if None not in found:
                break
        else:
            raise StoreUnavailable("the log changes faster than it can be read")
        whole = [piece for piece in found if piece is not None]
        plan = pieces.plan_restore([slot for slot, _ in whole], self._key)
        records = {slot.sequence: written for slot, written in whole}
        self.slots = [slot for slot, _ in whole]
        self.head, self.generations = plan.head, set(plan.generations)
        self.files = {}
        for part in plan.segments:
            path = path_of(part[0].segment)
            self.files[path] = [record for slot in part for record in records[slot.sequence]]

    def listed(self) -> list[int]:
        keys = (info.key for info in self.store.list(f"{self.name}/epochs"))
        return [int(key.rpartition("/")[2]) for key in keys]

    def create_exclusive(self, path: str) -> bool:
        """Claim: False if the generation is taken, and then the log has been looked at again."""
        segment = segment_of(path)
        if pieces.is_outdone(segment.generation, self.generations):
            return False
        verdict = self._create(segment, 0, [CLAIM], claiming=True)
        if verdict is Verdict.DONE and pieces.claim_counts(self.head, self.listed()):
            self.files[path], self._sent[path] = [CLAIM], 1
            self.generations.add(segment.generation)
            return True
        self.restore()
        return False

    def begin_part(self, path: str) -> None:
        """A process that goes on in a new segment: not a claim."""
        self.files[path], self._sent[path] = [CLAIM], 0
        self.sync(path)

    def sync_folder(self, *paths: str) -> None:
        pass

    def append(self, path: str, record: Any) -> int:
        self.files[path].append(record)
        return len(self.files[path]) - 1

    def sync(self, path: str) -> None:
        """One piece with what was appended since: the commit point, and the look (R5)."""
        sent = self._sent[path]
        segment, records = segment_of(path), self.files[path][sent:]
        verdict = self._create(segment, sent, records, claiming=False)
        if verdict is not Verdict.DONE:
            raise Fenced(f"somebody has claimed the home after generation {segment.generation}")
        self._sent[path] = len(self.files[path])

    def drop(self, path: str) -> None:
        self.files.pop(path, None)

    def drop_pieces(self, kept: set[DriverSegment]) -> int:
        gone = pieces.droppable(self.slots, kept)
        for sequence in gone:
            self.store.delete(self._key(sequence))
            self.slots = [slot for slot in self.slots if slot.sequence != sequence]
        return len(gone)

    # what COMMITs name

    def read(self, path: str) -> tuple[Any, ...]:
        return tuple(self.files[path])

    def at(self, path: str, index: int) -> Any:
        if path in self.files:
            return self.files[path][index] if index < len(self.files[path]) else None
        if path.startswith("driver/"):
            return None
        try:
            return pickle.loads(self.store.get(path))
        except NotFound:
            return None

    def is_there(self, path: str) -> bool:
        if path.startswith("driver/"):
            return path in self.files
        try:
            self.store.head(path)
        except NotFound:
            return False
        return True

    def paths(self, prefix: str) -> list[str]:
        return sorted(path for path in self.files if path.startswith(prefix))

    # steps

    def _create(
        self, segment: DriverSegment, offset: int, records: list[Any], *, claiming: bool
    ) -> Verdict:
        while True:
            adopts = any(isinstance(r, tuple) and isinstance(r[0], Adopt) for r in records)
            slot = Slot(self.head + 1, segment, offset, len(records), adopts)
            data = pickle.dumps((slot, records, self.writer))
            try:
                self.store.put_if_absent(self._key(slot.sequence), data)
            except AlreadyExists:
                verdict = self._judge(slot, claiming=claiming)
                if verdict is not Verdict.NEXT:
                    return verdict
                continue
            self.slots.append(slot)
            self.head = slot.sequence
            return Verdict.DONE

    def _judge(self, slot: Slot, *, claiming: bool) -> Verdict:
        """Whose the number is; with NEXT, what is there has been taken over."""
        theirs = self._piece(slot.sequence)
        verdict = pieces.judge_slot(
            slot.segment.generation,
            claiming=claiming,
            mine=False,  # the store has looked at the bytes
            theirs=theirs[0] if theirs else None,
        )
        if verdict is Verdict.NEXT and theirs is not None:
            self._take_over(*theirs)
        elif verdict is Verdict.NEXT:
            self.head += 1  # only a mutant gets here
        return verdict

    def _take_over(self, slot: Slot, records: list[Any]) -> None:
        self.slots.append(slot)
        self.head = slot.sequence
        self.generations.add(slot.segment.generation)
        self.files.setdefault(path_of(slot.segment), []).extend(records)

    def _piece(self, sequence: int) -> tuple[Slot, list[Any]] | None:
        try:
            slot, records, _ = pickle.loads(self.store.get(self._key(sequence)))
        except NotFound:
            return None
        return slot, records

    def _key(self, sequence: int) -> str:
        return f"{self.name}/epochs/{sequence:06d}"


def path_of(segment: DriverSegment) -> str:
    return f"driver/{segment.generation:06d}.{segment.number:03d}"


def segment_of(path: str) -> DriverSegment:
    generation, _, number = path.rpartition("/")[2].partition(".")
    return DriverSegment(int(generation), int(number))
