"""Character cards inside PNG pictures: the text chunks, and nothing else of the picture."""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from rolecraft.errors import RoleError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
KEYWORDS = ("ccv3", "chara")
"""Chunks that hold a card, the newer specification first."""


def card_text(path: Path) -> str:
    """Return the JSON text of the card in a picture.

    Raises:
        RoleError: If the file is no PNG, is cut off or damaged, or holds no card.
    """
    chunks = dict(_texts(path))
    for keyword in KEYWORDS:
        if keyword in chunks:
            try:
                return base64.b64decode(b"".join(chunks[keyword].split()), validate=True).decode("utf-8")
            except (binascii.Error, UnicodeDecodeError) as error:
                raise RoleError(
                    f"{path}: chunk {keyword!r} is not base64 of UTF-8 text ({error}); export the card again."
                ) from None
    raise RoleError(f"{path}: the picture holds no character card (no chunk {' or '.join(map(repr, KEYWORDS))}).")


def _texts(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield keyword and content of the text chunks."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RoleError(f"{path}: cannot be read: {error.strerror}.") from None
    if not data.startswith(SIGNATURE):
        raise RoleError(f"{path}: not a PNG picture (wrong signature).")
    at = len(SIGNATURE)
    while at < len(data):
        head = data[at : at + 8]
        length, kind = struct.unpack(">I4s", head) if len(head) == 8 else (0, b"")
        body, checksum = data[at + 8 : at + 8 + length], data[at + 8 + length : at + 12 + length]
        if len(head) < 8 or len(body) < length or len(checksum) < 4:
            raise RoleError(f"{path}: the picture is cut off at byte {len(data)}; download it again.")
        if kind == b"tEXt":
            if zlib.crc32(kind + body) != struct.unpack(">I", checksum)[0]:
                raise RoleError(f"{path}: a text chunk at byte {at} is damaged (checksum); download the picture again.")
            keyword, _, content = body.partition(b"\0")
            yield keyword.decode("latin-1").lower(), content
        if kind == b"IEND":
            return
        at += 12 + length
