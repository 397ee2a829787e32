"""The worked example of FORMAT.md section 3 is what the code writes and reads."""

from __future__ import annotations

import re
from pathlib import Path

from lamina.format.canonical import sha256_hex
from lamina.format.log import (
    Checkpoint,
    decode_begin,
    decode_entry,
    decode_hint,
    encode_begin,
    encode_entry,
    encode_hint,
)
from lamina.protocol.history import EMPTY, follow

FORMAT = Path(__file__).parents[2] / "docs" / "FORMAT.md"


def _blocks() -> list[bytes]:
    section = FORMAT.read_text().split("## 3 Commit log")[1].split("## 4 Manifest")[0]
    return [block.encode() for block in re.findall(r"```json\n(.*)\n```", section)]


def test_the_example_of_the_commit_log_is_written_and_read_to_the_byte() -> None:
    takeover, begin, checkpoint, hint = _blocks()
    assert encode_entry(decode_entry(takeover, "1")) == takeover
    assert encode_begin(decode_begin(begin, "begin")) == begin
    assert encode_entry(decode_entry(checkpoint, "2")) == checkpoint
    read = decode_hint(hint, "hint")
    assert read is not None
    assert encode_hint(read) == hint


def test_the_example_is_a_legal_log_and_its_digests_are_true() -> None:
    takeover, begin, checkpoint, hint = _blocks()
    history = follow(EMPTY, decode_entry(takeover, "1"), sha256_hex(takeover), "1")
    entry = decode_entry(checkpoint, "2")
    history = follow(history, entry, sha256_hex(checkpoint), "2")
    assert isinstance(entry.body, Checkpoint)
    assert entry.body.begin_sha256 == sha256_hex(begin)
    read = decode_hint(hint, "hint")
    assert read is not None
    assert (read.seq, read.sha256) == (history.seq, history.digest)
    assert sha256_hex(takeover) in FORMAT.read_text()
