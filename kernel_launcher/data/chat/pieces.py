"""The bytes of a token that is a part of a character, from its name in the vocabulary."""

from __future__ import annotations

import re

_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
# Byte-level vocabularies write a byte that is a visible Latin-1 character as that, others as those from U+0100 on.
_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(0x100) if byte not in _VISIBLE]
_BYTES = {chr(byte): byte for byte in _VISIBLE} | {chr(0x100 + n): byte for n, byte in enumerate(_HIDDEN)}


def bytes_named(name: str) -> bytes:
    """Those that a vocabulary's name stands for; empty if it is none of the two notations."""
    if found := _FALLBACK.fullmatch(name):
        return bytes.fromhex(found[1])
    return bytes([_BYTES[character] for character in name]) if _BYTES.keys() >= set(name) else b""
