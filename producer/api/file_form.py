"""What a form with a file must say: which parts there are, and what each may hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fairlane.errors import InvalidRequest
from producer.api.multipart import Part

FIELD_BYTES: Final = 1024
FILENAME_CHARS: Final = 255
SERVED: Final = ("batch", "user_data")
KNOWN: Final = ("assistants", "vision", "fine-tune", "evals", "batch_output", "assistants_output", "fine-tune-results")
SHORTEST_S, LONGEST_S = 3600, 2_592_000
BATCH_S: Final = LONGEST_S  # how long a batch's input is kept if nothing is said, as OpenAI does
_ANCHOR: Final = "expires_after[anchor]"
_SECONDS: Final = "expires_after[seconds]"
_FIELDS: Final = ("purpose", _ANCHOR, _SECONDS)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class FileAsked:
    """What the form's fields say."""

    filename: str
    purpose: str
    expires_after_s: int | None


class FileForm:
    """Checks a form part by part. Every method raises InvalidRequest, which names the part."""

    def __init__(self) -> None:
        self.in_file = False
        self._filename: str | None = None
        self._fields: dict[str, bytes] = {}
        self._now = ""

    def begin(self, part: Part) -> None:
        """The next part; `in_file` says whether it is the file."""
        if part.name in self._fields or (part.name == "file" and self._filename is not None):
            raise InvalidRequest(f"The form has the part {part.name!r} twice.", param=part.name)
        self.in_file = part.name == "file"
        if self.in_file:
            self._filename = _filename(part.filename)
            if "purpose" in self._fields:
                self._purpose()  # before all of the file was sent
            return
        if part.name not in _FIELDS:
            raise InvalidRequest(f"There is no part {part.name[:100]!r}: a form has file, {', '.join(_FIELDS)}.")
        if part.filename is not None:
            raise InvalidRequest(f"The part {part.name} is a text, not a file.", param=part.name)
        self._now = part.name
        self._fields[part.name] = b""

    def add(self, data: bytes) -> None:
        """A piece of the field that began last."""
        self._fields[self._now] += data
        if len(self._fields[self._now]) > FIELD_BYTES:
            raise InvalidRequest(f"The part {self._now} has {FIELD_BYTES} bytes at the most.", param=self._now)

    def end(self) -> FileAsked:
        """The form is whole."""
        if self._filename is None:
            raise InvalidRequest("The form has no file. Send it as the part `file`.", param="file")
        purpose = self._purpose()
        expires = self._expires_after()
        return FileAsked(self._filename, purpose, BATCH_S if expires is None and purpose == "batch" else expires)

    def _purpose(self) -> str:
        purpose = self._text("purpose")
        if purpose in SERVED:
            return purpose
        why = f"There are no files for {purpose!r} here" if purpose in KNOWN else "The form needs a purpose"
        raise InvalidRequest(f"{why}: it is one of {', '.join(SERVED)}.", param="purpose")

    def _expires_after(self) -> int | None:
        if _ANCHOR not in self._fields and _SECONDS not in self._fields:
            return None
        if self._text(_ANCHOR) != "created_at":
            raise InvalidRequest("A file expires so many seconds after `created_at`.", param=_ANCHOR)
        text = self._text(_SECONDS)
        if not (re.fullmatch(r"[0-9]{1,9}", text) and SHORTEST_S <= int(text) <= LONGEST_S):
            raise InvalidRequest(f"A file expires after {SHORTEST_S} to {LONGEST_S} seconds.", param=_SECONDS)
        return int(text)

    def _text(self, name: str) -> str:
        try:
            return self._fields.get(name, b"").decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"The part {name} is not UTF-8.", param=name) from error


def _filename(given: str | None) -> str:
    """Its last part: folders are the sender's own."""
    name = re.split(r"[/\\]", given or "")[-1]
    if name in ("", ".", ".."):
        raise InvalidRequest('The part `file` needs a file\'s name: `filename="…"`.', param="file")
    if len(name) > FILENAME_CHARS or _CONTROL.search(name):
        raise InvalidRequest(f"A file's name has {FILENAME_CHARS} characters at the most, all visible.", param="file")
    return name
