"""The commit log in the store (R3): the one place that says which checkpoints exist.

Every change is an entry at last-read + 1, put create-only. If the slot is taken, read on and judge
again. An entry's bytes hold a random writer id, so after an unclear answer the slot itself tells
whether the entry is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from lamina.clock import Clock, SystemClock, new_writer_id
from lamina.disk import OpenedBy
from lamina.errors import AlreadyExists, LogDamaged, NotFound, Refused, StoreError
from lamina.format.canonical import sha256_hex
from lamina.format.log import (
    ENTRY_BYTES_MAX,
    STATE_EVERY,
    Begin,
    Body,
    Checkpoint,
    Entry,
    Forget,
    Hint,
    Pin,
    Rewind,
    Takeover,
    Unpin,
    decode_entry,
    decode_hint,
    encode_begin,
    encode_entry,
    encode_hint,
)
from lamina.format.names import CheckpointPaths, LogName
from lamina.format.pipeline_record import PipelineRecord
from lamina.ids import CheckpointId
from lamina.protocol.driver import next_generation
from lamina.protocol.history import (
    EMPTY,
    History,
    due_for_state,
    follow,
    judge,
    preview,
    resume,
    state_of,
)
from lamina.store.base import Store

Decide = Callable[[History], Body | None]
"""What to write next, given everything before it; None if there is nothing left to do."""


class CommitLog:
    """A reader and writer of one pipeline's log; not shared between threads."""

    def __init__(self, store: Store, paths: CheckpointPaths, clock: Clock | None = None) -> None:
        self._store = store
        self._paths = paths
        self._clock = clock or SystemClock()
        self._history: History | None = None
        self.generation = 0  # what this writer took over with; 0 for a reader or a tool
        self._owner = OpenedBy()
        self.hint_error: StoreError | None = None  # a hint that could not be written does no harm

    def read(self) -> History:
        """The history up to the end of the log as it is now."""
        if self._history is None:
            self._history = self._open()
        while (entry := self._entry(self._history.seq + 1)) is not None:
            self._history = follow(self._history, *entry)
        return self._history

    def take_over(
        self,
        home: str | Callable[[History], str],
        *,
        generation: int | None = None,
        pipeline: PipelineRecord | None = None,
        tip: str | None = None,
    ) -> History:
        """Fence every older generation. A function names the *home* for the log as it then is.

        A driver names the *generation* of the segment it has just opened in its home; if somebody
        has reached that number first, it is the one that is fenced. *tip* is what counts as the
        newest checkpoint from here on, if that is another one than before.
        """

        claimed = 0

        def decide(history: History) -> Body:
            nonlocal claimed
            claimed = generation or next_generation((history.generation,))
            owner = home if isinstance(home, str) else home(history)
            return Takeover(claimed, owner, pipeline, tip)

        after = self._append(decide)
        self.generation = claimed  # only now: who was fenced in the attempt owns nothing
        return after

    def checkpoint(
        self,
        begin: Begin,
        *,
        epoch: int,
        manifest_sha256: str,
        manifest_size: int,
        total_size: int,
        commit_digest: str | None = None,
    ) -> History:
        """Make the checkpoint exist. Everything its manifest names must be durable by now."""
        body = Checkpoint(
            id=begin.id,
            epoch=epoch,
            parent=begin.parent,
            after=begin.after,
            begin_sha256=sha256_hex(encode_begin(begin)),
            manifest_sha256=manifest_sha256,
            manifest_size=manifest_size,
            total_size=total_size,
            commit_digest=commit_digest,
        )
        return self._append(lambda history: None if _has(history, body) else body)

    def rewind(self, to: CheckpointId, *, epoch: int) -> History:
        """Continue from the checkpoint *to*; *epoch* is the number of the rewind."""

        def decide(history: History) -> Body:
            target = history.find(to)
            return Rewind(epoch, to, target.epoch if target else 0)

        return self._append(decide)

    def pin(self, name: str, id: CheckpointId) -> History:
        """Keep a checkpoint until `unpin`; the same pin twice is not an error."""
        return self._append(lambda h: None if h.pins.get(name) == id else Pin(name, id))

    def unpin(self, name: str) -> History:
        return self._append(lambda _: Unpin(name))

    def forget(self, choose: Callable[[History], tuple[CheckpointId, ...]]) -> History:
        """Forget what *choose* names, chosen again whenever the log has moved on."""

        def decide(history: History) -> Body | None:
            ids = choose(history)
            return Forget(ids) if ids else None

        return self._append(decide)

    def write_hint(self) -> None:
        """Let `_latest` point at the end of the log; a failure is remembered, and does no harm."""
        hint = hint_of(self.read())
        if hint is None:
            return
        self.hint_error = None
        try:
            self._store.put(self._paths.latest_pointer(), encode_hint(hint))
        except StoreError as error:
            self.hint_error = error

    def entries(self, first: int = 1) -> Iterator[tuple[Entry, str]]:
        """Every entry with its digest, from the start: for `verify` and for people."""
        seq = first
        while (found := self._entry(seq)) is not None:
            entry, digest, _ = found
            yield entry, digest
            seq += 1

    def _append(self, decide: Decide) -> History:
        while True:
            history = self.read()
            body = decide(history)
            if body is None:
                return history
            generation = self._generation_for(body, history)
            judge(history, body, generation)
            self._check_head(history)
            data = encode_entry(self._build(history, body, generation))
            if len(data) > ENTRY_BYTES_MAX:
                raise Refused(
                    f"the log would have to name {len(history.checkpoints)} checkpoints in an "
                    f"entry of {len(data)} bytes; {ENTRY_BYTES_MAX} at most",
                    advice="Run `lamina gc` to forget old checkpoints",
                )
            try:
                self._store.put_if_absent(self._paths.log_entry(history.seq + 1), data)
            except AlreadyExists:
                if self._raw(history.seq + 1) != data:
                    continue  # somebody else's entry: read it, then judge again
            self.write_hint()
            return self.read()

    def check_process(self) -> None:
        """Raise unless this is the process that has opened the log: a forked child owns nothing."""
        self._owner.check(self._store.url)

    def _check_head(self, history: History) -> None:
        """A head that was read once can be gone: a store was restored to what it was before.

        An entry written now would stand behind a hole, or behind somebody else's entry.
        """
        head = self._raw(history.seq) if history.seq else None
        if history.seq and (head is None or sha256_hex(head) != history.digest):
            raise LogDamaged(
                f"log entry {history.seq} has changed or disappeared since it was read",
                where=self._paths.log_entry(history.seq),
            )

    def _generation_for(self, body: Body, history: History) -> int:
        match body:
            case Takeover(generation):
                return generation
            case Checkpoint() | Rewind():
                self.check_process()
                return self.generation
            case Pin() | Unpin() | Forget():  # anybody may: the order of the log decides
                return history.generation

    def _build(self, history: History, body: Body, generation: int) -> Entry:
        entry = Entry(
            seq=history.seq + 1,
            previous=history.digest,
            generation=generation,
            writer=new_writer_id(self._clock),
            timestamp_ms=self._clock.now_ms(),
            body=body,
        )
        if due_for_state(entry.seq):
            entry = replace(entry, state=state_of(preview(history, entry)))
        return entry

    def _open(self) -> History:
        """Find the end of the log, then fold it from the last entry that carries the state."""
        last = self._last_seq(self._read_hint())
        start = last - last % STATE_EVERY
        history = EMPTY if start == 0 else resume(*self._must(start))
        while history.seq < last:
            history = follow(history, *self._must(history.seq + 1))
        return history

    def _last_seq(self, hint: Hint | None) -> int:
        """The highest entry there is; a hole is damage, never a place to write into."""
        seq = 0 if hint is None else hint.seq
        after = self._paths.log_entry(seq) if seq else ""
        for info in self._store.list(self._paths.log_dir(), after=after):
            name = self._paths.parse(info.key)
            if not isinstance(name, LogName):
                continue
            while seq + 1 < name.seq:
                # A listing is no snapshot: what was created while it ran may be left out.
                if self._raw(seq + 1) is None:
                    raise LogDamaged(
                        f"log entry {seq + 1} is missing: the next one is {name.seq}",
                        where=self._paths.log_entry(seq + 1),
                    )
                seq += 1
            seq = max(seq, name.seq)
        return seq

    def _read_hint(self) -> Hint | None:
        key = self._paths.latest_pointer()
        try:
            hint = decode_hint(self._store.get(key), key)
        except NotFound:
            return None
        if hint is None:
            return None
        found = self._raw(hint.seq)
        if found is None or sha256_hex(found) != hint.sha256:
            # It is written after the entry: the log has lost what it once held.
            raise LogDamaged(
                f"the hint names log entry {hint.seq}, which is "
                f"{'missing' if found is None else 'not the one that was written'}",
                where=self._paths.log_entry(hint.seq),
                advice="Restore the log/ folder from a copy. If this base was set back on purpose, "
                "delete _latest",
            )
        return hint

    def _must(self, seq: int) -> tuple[Entry, str, str]:
        found = self._entry(seq)
        if found is None:
            raise LogDamaged(f"log entry {seq} is missing", where=self._paths.log_entry(seq))
        return found

    def _entry(self, seq: int) -> tuple[Entry, str, str] | None:
        data = self._raw(seq)
        if data is None:
            return None
        key = self._paths.log_entry(seq)
        entry = decode_entry(data, key)
        if entry.seq != seq:
            raise LogDamaged(f"the object of log entry {seq} holds entry {entry.seq}", where=key)
        return entry, sha256_hex(data), key

    def _raw(self, seq: int) -> bytes | None:
        try:
            return self._store.get(self._paths.log_entry(seq))
        except NotFound:
            return None


def hint_of(history: History) -> Hint | None:
    """What `_latest` says when the log ends here; None for an empty log."""
    newest = history.newest
    if history.digest is None:
        return None
    return Hint(history.seq, history.digest, newest.id if newest else None)


def _has(history: History, body: Checkpoint) -> bool:
    found = history.find(body.id)
    return found is not None and found.entry == body
