"""The journal: an append-only file of events, and the truth about its run.

One JSON object a line. Every line ends in a checksum of the rest of it; the last line of a change also names, by its
digest, the picture of the run that the change wrote (`meta`). Lines behind the last one that does so were never
committed: a crash tore them off, and they do not count. A line that does not check although later ones do is damage,
and is reported rather than passed over.
"""

import os
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from zlib import adler32, crc32

from subagent_cli.core.errors import Damaged, Failed, OutcomeUnknown
from subagent_cli.core.event import Event, Record, event, kind_of, record
from subagent_cli.core.evolution import fold
from subagent_cli.core.run import Run
from subagent_cli.core.value import Value
from subagent_cli.store import atomic, codec

_CRC = b',"crc":"'
_CRC_SIZE = len(_CRC) + 10


class Folded(Value):
    """A journal up to its last committed line: the run, and what is needed to go on from there."""

    run: Run
    seq: int = 0
    end: int = 0
    pictures: Set[str] = frozenset()
    file: tuple[int, int] = (0, 0)
    last: bytes = b""

    @property
    def empty(self) -> bool:
        return self.seq == 0


def digest(picture: bytes) -> str:
    """A name for the exact bytes of a picture.

    Two checksums and the length, not a cryptographic hash: nobody gains by a collision, which would only make us
    pass over a write of their own, and loading one costs every read a third of what Python's own start does.
    """
    return f"{len(picture)}-{crc32(picture):08x}{adler32(picture):08x}"


def read(path: str, run_id: str, known: Folded | None = None) -> Folded:
    """Folds the journal, or what has been added to it since it was last folded here."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Folded(Run(run_id))
    try:
        file = _file(os.fstat(fd))
        if known is None or known.file != file or not _goes_on(fd, known):
            known = Folded(Run(run_id), file=file)
        os.lseek(fd, known.end, os.SEEK_SET)
        data = atomic.rest(fd)
    finally:
        os.close(fd)
    records, size = committed(data, known.seq)
    if not records:
        return known
    return Folded(
        fold(known.run, map(event, records)),
        records[-1]["seq"],
        known.end + size,
        pictures(records, known.pictures),
        file,
        _last(data[:size]),
    )


def _goes_on(fd: int, known: Folded) -> bool:
    """Whether what was known of a journal still stands there: nobody has cut it or moved its lines."""
    return os.pread(fd, len(known.last), known.end - len(known.last)) == known.last


def _last(data: bytes) -> bytes:
    """The last of whole lines."""
    return data[data.rfind(b"\n", 0, -1) + 1 :]


def pictures(records: Iterable[Record], known: Set[str] = frozenset()) -> Set[str]:
    """Which pictures are ours and old news: those since another program last changed a value that can change back.

    What was known before grows where it can: whoever still holds it learns of newer pictures of ours, which is no harm.
    """
    ours = known if isinstance(known, set) else set(known)
    for line in records:
        if line.get("type") == "observed":
            ours = set()
        if "meta" in line:
            ours.add(line["meta"])
    return ours


def committed(data: bytes, seq: int = 0) -> tuple[list[Record], int]:
    """The records of all committed lines that follow line number `seq`, and how many bytes they take."""
    lines = data.split(b"\n")[:-1]
    records: list[Record] = []
    count = size = at = 0
    for place, line in enumerate(lines):
        if not checks(line):
            if any(map(checks, lines[place + 1 :])):
                raise Damaged(
                    f"line {seq + place + 1} of the journal is damaged, and later lines are not",
                    code="damaged_journal",
                    hint="nothing was changed; `subagent doctor --fix` saves the lines that are whole",
                )
            break
        found = _record(line, seq + place + 1)
        if found.get("seq") != seq + place + 1:
            raise Damaged(f"line {seq + place + 1} of the journal is missing", code="damaged_journal")
        records.append(found)
        at += len(line) + 1
        if "meta" in found:
            count, size = place + 1, at
    return records[:count], size


def append(
    path: str, folded: Folded, after: Run, events: Sequence[tuple[Event, str | None]], picture: str, quarantine: str
) -> Folded:
    """Commits events, which make the run what it is `after`, and gives the journal as it is then.

    When this returns they are durable; where it raises Failed, none of them is there.
    """
    data = lines(folded.seq, events, picture)
    with atomic.io("open the journal"):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with atomic.io("append to the journal"):
            status = os.fstat(fd)
            if status.st_size > folded.end:
                _drop_tail(path, fd, folded.end, quarantine)
            try:
                os.lseek(fd, folded.end, os.SEEK_SET)
                atomic.write_all(fd, data)
            except OSError:
                os.ftruncate(fd, folded.end)
                raise
        with confirmed():
            atomic.commit(fd)
            if folded.empty:
                atomic.sync_folder(os.path.dirname(path))
    finally:
        os.close(fd)
    ours = pictures([*({"type": kind_of(happened)} for happened, _ in events), {"meta": picture}], folded.pictures)
    return Folded(after, folded.seq + len(events), folded.end + len(data), ours, _file(status), _last(data))


@contextmanager
def confirmed() -> Iterator[None]:
    """What the disk has to confirm: where it does not, nobody knows what is there after a power cut."""
    try:
        yield
    except OSError as error:
        raise OutcomeUnknown(
            f"the disk did not confirm the change: {error.strerror or error}",
            hint="look with status; a retry with the same --key is safe",
        ) from error


def _file(status: os.stat_result) -> tuple[int, int]:
    """What tells a file from another of the same name."""
    return status.st_dev, status.st_ino


def _drop_tail(path: str, fd: int, end: int, quarantine: str) -> None:
    """Cuts off what a crash left behind the last committed line, and keeps it in quarantine."""
    with open(path, "rb") as file:
        file.seek(end)
        tail = file.read()
    atomic.make_folders(quarantine)
    atomic.append(os.path.join(quarantine, os.path.basename(path)), tail + b"\n")
    os.ftruncate(fd, end)


def lines(seq: int, events: Iterable[tuple[Event, str | None]], picture: str) -> bytes:
    records: list[Record] = []
    for number, (happened, origin) in enumerate(events, seq + 1):
        written: Record = {"seq": number, **record(happened)}
        if origin:
            written["origin"] = origin
        records.append(written)
    if not records:
        raise Failed("there is nothing to commit")
    records[-1]["meta"] = picture
    return b"".join(map(_line, records))


def _line(written: Record) -> bytes:
    body = codec.line(written)[:-1]
    return body + _CRC + b'%08x"}\n' % crc32(body)


def _record(line: bytes, number: int) -> Record:
    try:
        found = codec.load(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Damaged(f"line {number} of the journal is no event", code="damaged_journal")
    return found


def checks(line: bytes) -> bool:
    """Whether a line is as it was written."""
    body = line[:-_CRC_SIZE]
    return line[-_CRC_SIZE:] == _CRC + b'%08x"}' % crc32(body)
