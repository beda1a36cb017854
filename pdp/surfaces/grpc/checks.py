"""Checks of gRPC messages: the bytes of a CheckRequest to a builder of a batch.

A long message mostly repeats one question with another reference. The bytes that repeat are parsed once, and the
references are cut out of the message. Checks in any other layout go through the generated classes. These alone decide
what is a valid message: bytes that the short way does not understand are read again from the start.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from pdp.decision.batch_builder import BatchBuilder, make_check
from pdp.decision.codec import bound_checks
from pdp.errors import InvalidArgument, PdpError, TooMuchRepeated
from pdp.model.answer import Rejection
from pdp.model.question import Check
from pdp.surfaces.grpc.messages import parse, read_check, read_question
from pdp.surfaces.wire import decision_pb2 as wire

SHORT: Final = 400
"""Most bytes of a message that is not worth a search for repetitions."""
_MOST_QUESTIONS: Final = 16
"""Most questions that are tried on a check before the check is parsed as a whole."""
_RUN: Final = 16
"""Checks of one question in a row after which the next ones are read together."""
_MOST_RUNS: Final = 8
"""Most tries to do so in a message. Each looks at all of the rest."""
_CHECKS: Final = 0x0A
_RESOURCE: Final = 0x1A
_RESOURCES: Final = 0x3A
_REFERENCE: Final = 0x0A
"""Tags: field number and wire type in one byte. The length of the field follows, in one byte if below 128."""


_DENSE: Final = 10
"""Bytes of a message for each of its tags of checks, ids and references. Ordinary checks have more."""


def is_dense(body: bytes) -> bool:
    """Tell whether a short message may have thousands of tiny checks, such as empty ones.

    Each of these costs as much as a check of ordinary length, because few bytes repeat.
    """
    return len(body) > SHORT and body.count(_CHECKS) * _DENSE > len(body)


class _OtherLayout(Exception):
    """Signal that the generated classes must read the whole message."""


class _Heads(dict[int, str]):
    """Texts between the references of two checks of one question, by the length of the second reference.

    Raises KeyError for lengths that need more bytes than the short way knows.
    """

    def __init__(self, before: str, behind: str) -> None:
        super().__init__()
        self.before = before
        self.behind = behind

    def __missing__(self, length: int) -> str:
        size = len(self.before) + len(self.behind) + length + 4
        if length > 125 or size >= 1 << 14:
            raise KeyError(length)
        shown = chr(size) if size < 128 else chr(size & 127 | 128) + chr(size >> 7)
        text = self[length] = f"{self.behind}\n{shown}{self.before}\x1a{chr(length + 2)}\n{chr(length)}"
        return text


class _Question:
    """Question of many checks: the bytes before and behind the resource, and the references so far."""

    __slots__ = ("_heads", "at", "before", "behind", "body", "references")

    def __init__(self, before: bytes, behind: bytes) -> None:
        self.before = before
        self.behind = behind
        self.body = read_question(wire.Check.FromString(before + behind))
        self.references: list[str] = []
        self.at: list[int] = []
        self._heads = _Heads(before.decode("latin-1"), behind.decode("latin-1"))

    def run(self, text: str, at: int) -> tuple[list[str], int]:
        """Return the references of checks that are this question from `at` on, and the position behind these checks.

        The checks are cut at the bytes that repeat. Then they are written again, and must be the very text: so the
        lengths need no look. Return no references if the rest of the text has checks of other questions.
        """
        heads = self._heads
        # two characters suffice to cut, and are found many times faster than all that repeat
        pieces = text[at:].split(f"{heads.before[-1:]}\x1a")
        del pieces[0]
        try:
            references = [piece[3 : 3 + ord(piece[2])] for piece in pieces]
            parts = [""] * (2 * len(references))
            parts[::2] = map(heads.__getitem__, map(len, references))
            parts[1::2] = references
        except (IndexError, KeyError):
            return [], at
        written = "".join(parts)[len(heads.behind) :] + heads.behind
        is_whole = bool(references) and text.startswith(written, at)
        return (references, at + len(written)) if is_whole else ([], at)

    def fits(self, content: bytes) -> bool:
        """Tell whether the bytes of a check are this question with a resource that is a short reference alone."""
        field, stop = len(self.before), len(content) - len(self.behind)
        return (
            stop - field >= 4
            and content[field] == _RESOURCE
            and content[field + 2] == _REFERENCE
            and content[field + 1] == stop - field - 2 < 128
            and content[field + 3] == stop - field - 4
            and content.startswith(self.before)
            and content.endswith(self.behind)
        )


def read_checks(body: bytes, max_checks: int) -> tuple[BatchBuilder, wire.CheckRequest]:
    """Return a builder with the checks of a CheckRequest, and a message with all other fields.

    A check that does not convert rejects its positions. Raise InvalidArgument for bytes that do not parse,
    TooManyChecks above the limit, and TooMuchRepeated if many resources share long arguments.
    """
    if len(body) > SHORT:
        try:
            # INVARIANT: a scan has a builder of its own. What it gives up leaves nothing behind.
            return _Scanner(body, max_checks).scan()
        except (_OtherLayout, PdpError, DecodeError, UnicodeDecodeError, IndexError):
            pass
    request = parse(body, wire.CheckRequest)
    checks = request.checks
    if len(body) > SHORT:  # before the conversion, which costs much more
        bound_checks(len(checks), max_checks)
        bound_checks(sum(max(1, len(check.resources)) for check in checks), max_checks)
    builder = BatchBuilder()
    for check in checks:
        _add(builder, check)
    bound_checks(builder.size, max_checks)
    return builder, request


def read_single(request: wire.CheckRequest) -> Check | None:
    """Return the check of a request with one check of one resource; None if the builder must look at the request."""
    checks = request.checks
    if len(checks) != 1:
        return None
    try:
        return make_check(read_check(checks[0]))
    except InvalidArgument:
        return None


def _add(builder: BatchBuilder, check: wire.Check) -> None:
    try:
        builder.add_body(read_check(check))
    except TooMuchRepeated:
        raise
    except InvalidArgument as error:
        builder.reject(Rejection(error.code, str(error)), max(1, len(check.resources)))


class _Scanner:
    """Reader of one message. Raises _OtherLayout, or what the generated classes raise, if they must read all of it."""

    def __init__(self, body: bytes, max_checks: int) -> None:
        self._body = body
        self._text = body.decode("latin-1")
        """The body with one character per byte: references are cut out of it."""
        self._max_checks = max_checks
        self._builder = BatchBuilder()
        self._questions = [_Question(b"", b"")]

    def scan(self) -> tuple[BatchBuilder, wire.CheckRequest]:
        """Return the builder and the other fields."""
        end = self._scan_checks()
        for question in filter(lambda question: question.at, self._questions):
            self._builder.put(question.body, self._decoded(question.references), question.at)
        rest = wire.CheckRequest.FromString(self._body[end:])
        if rest.checks:
            raise _OtherLayout
        return self._builder, rest

    def _scan_checks(self) -> int:
        """Read all checks at the start of the message; return the position behind them."""
        body, text, builder, end = self._body, self._text, self._builder, len(self._body)
        question = self._questions[0]
        before, behind = question.before, question.behind
        at = position = row = runs = 0
        # INVARIANT: the builder has taken all positions but those of the present question, which end at `position`.
        while at < end and body[at] == _CHECKS:
            start, size = at + 2, body[at + 1]
            if size > 127:
                start, size = _long_size(body, start)
            at = start + size
            field, stop = start + len(before), at - len(behind)
            # the same question as before: its bytes, a resource of a reference alone, and the rest of its bytes
            if (
                body.startswith(before, start)
                and body[field] == _RESOURCE
                and body[field + 2] == _REFERENCE
                and body[field + 1] == stop - field - 2 < 128
                and body[field + 3] == stop - field - 4
                and body.startswith(behind, stop)
            ):
                question.references.append(text[field + 4 : stop])
                question.at.append(position)
                position += 1
                row += 1
                if row == _RUN and runs < _MOST_RUNS:
                    runs += 1
                    references, at = question.run(text, at)
                    question.references += references
                    question.at += range(position, position + len(references))
                    position += len(references)
            else:
                row = 0
                builder.take(position - builder.size)
                question = self._place(start, at) or question
                before, behind = question.before, question.behind
                position = builder.size
            if position > self._max_checks:
                raise _OtherLayout
        if at > end:
            raise _OtherLayout
        builder.take(position - builder.size)
        return at

    def _place(self, start: int, stop: int) -> _Question | None:
        """Add the check of some bytes; return its question if other checks may repeat it."""
        content = self._body[start:stop]
        question = self._known_question(content) or self._new_question(content)
        if question:
            reference = content[len(question.before) + 4 : len(content) - len(question.behind)]
            question.references.append(reference.decode("latin-1"))
            question.at += self._builder.take(1)
            return question
        check = wire.Check.FromString(content)
        references = self._list(start, stop, check) if check.resources else None
        if references is None:
            _add(self._builder, wire.Check.FromString(content))
        else:
            body = read_question(check)
            self._builder.share(body, len(references))
            at = self._builder.take(len(references))
            self._builder.put(body, self._decoded(references), at)
        return None

    def _known_question(self, content: bytes) -> _Question | None:
        return next((question for question in self._questions if question.fits(content)), None)

    def _new_question(self, content: bytes) -> _Question | None:
        """Return the question of a check as a new one; None if other checks cannot repeat it."""
        check = wire.Check.FromString(content)
        resource = wire.Check(resource=check.resource).SerializeToString()
        before, found, behind = content.partition(resource)
        if not found or not check.HasField("resource") or len(self._questions) >= _MOST_QUESTIONS:
            return None
        # bytes that parse alone end where a field ends: so the resource is a whole field between whole fields
        for part in (wire.Check.FromString(before), wire.Check.FromString(behind)):
            if part.HasField("resource") or part.resources:
                return None
        question = _Question(before, behind)
        if not question.fits(content):
            return None
        self._questions.append(question)
        return question

    def _list(self, start: int, stop: int, check: wire.Check) -> list[str] | None:
        """Return the references of a check that ends with a list of references; None for any other check.

        The list is removed from `check`.
        """
        body, text = self._body, self._text
        check.ClearField("resources")
        before = check.SerializeToString()
        if check.HasField("resource") or not body.startswith(before, start):
            return None
        at = start + len(before)
        references = []
        while at < stop:
            field, at = at, at + 2 + body[at + 1]
            if (
                body[field] != _RESOURCES
                or body[field + 2] != _REFERENCE
                or body[field + 1] > 127
                or body[field + 3] != at - field - 4
            ):
                return None
            references.append(text[field + 4 : at])
            if len(references) > self._max_checks:
                raise _OtherLayout
        return references if at == stop else None

    def _decoded(self, references: list[str]) -> list[str]:
        """Return references cut out of the text of bytes as the texts that they encode."""
        if self._body.isascii():
            return references
        return [text if text.isascii() else text.encode("latin-1").decode() for text in references]


def _long_size(body: bytes, at: int) -> tuple[int, int]:
    """Return the position behind a length of two bytes, whose second byte is at `at`, and the length."""
    if body[at] > 127:
        raise _OtherLayout
    return at + 1, (body[at - 1] & 127) | body[at] << 7
