"""bfloat16 by chance: up or down in proportion to what is lost, so that many numbers are right on average.

Rounded to the nearest, what a weight has moved by less than half a step of its format is forgotten: a full fine-tune
of SmolLM2 with float32 masters came to a held-out loss of 3.094, and to 3.147 once its weights were saved; saved by
chance, to 3.096. The chance hangs on a key and on an element's place alone: it repeats, and is the same however a
tensor is spread.
"""

from __future__ import annotations

import zlib

import torch

_UPPER_HALF = -0x1_0000
_LAST_NAN = 0x7FFF_0000
# The odd multipliers of a well tested integer hash ("lowbias32").
_FIRST, _SECOND = 0x7FEB_352D, 0x846C_A68B
_MASK_32, _MASK_64 = (1 << 32) - 1, (1 << 64) - 1
_CHUNK = 2**20


class Chance:
    """Random bits by place.

    Args:
        device: Where they are needed.
        most: Elements at a time.
    """

    def __init__(self, device: torch.device, most: int) -> None:
        self._places = torch.arange(most, dtype=torch.int32, device=device)
        self._hash = torch.empty(2, most, dtype=torch.int32, device=device)

    def bits(self, key: int, start: int, count: int) -> torch.Tensor:
        """16 random bits for each of the elements from ``start`` on, int32 of shape (count,); good until the next."""
        value, shifted = self._hash[0, :count], self._hash[1, :count]
        torch.add(self._places[:count], _int32(start + key), out=value)
        value.mul_(_int32(_FIRST))
        torch.bitwise_right_shift(value, 16, out=shifted)
        value.bitwise_xor_(shifted).add_(_int32(key >> 32)).mul_(_int32(_SECOND))
        return value.bitwise_right_shift_(16).bitwise_and_(0xFFFF)


def key_of(*parts: int) -> int:
    """64 well mixed bits of some numbers, whose order counts."""
    key = 0
    for part in parts:
        key = _mix(key + part)
    return key


def round_into(narrow: torch.Tensor, value: torch.Tensor, bits: torch.Tensor) -> None:
    """A bfloat16 is a float32's upper half; random bits added to the lower one carry as often as it is large.

    Args:
        narrow: Gets the result, bfloat16.
        value: float32; overwritten.
        bits: As ``Chance`` gives them.
    """
    # A NaN of CUDA has all bits set, and would carry over into minus zero.
    value.view(torch.int32).clamp_(max=_LAST_NAN).add_(bits).bitwise_and_(_UPPER_HALF)
    narrow.copy_(value)


def narrowed(name: str, tensor: torch.Tensor, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """A whole weight in the format that it is saved in; float32 becomes bfloat16 by chance.

    Args:
        name: Of the weight: part of the key.
        tensor: As it was trained.
        dtype: Of the file.
        seed: Of the job.
    """
    if (tensor.dtype, dtype) != (torch.float32, torch.bfloat16):
        return tensor.to(dtype) if tensor.is_floating_point() else tensor
    key = key_of(seed, zlib.crc32(name.encode()))
    chance = Chance(tensor.device, min(_CHUNK, max(1, tensor.numel())))
    result = torch.empty(tensor.shape, dtype=dtype, device=tensor.device)
    start = 0
    for chunk, place in zip(tensor.reshape(-1).split(_CHUNK), result.view(-1).split(_CHUNK), strict=True):
        round_into(place, chunk.clone(), chance.bits(key, start, len(chunk)))
        start += len(chunk)
    return result


def _mix(value: int) -> int:
    """64 well mixed bits of a number (splitmix64)."""
    value = (value + 0x9E37_79B9_7F4A_7C15) & _MASK_64
    value = ((value ^ (value >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK_64
    value = ((value ^ (value >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK_64
    return value ^ (value >> 31)


def _int32(value: int) -> int:
    """The lower 32 bits, as torch's int32 reads them."""
    value &= _MASK_32
    return value - (1 << 32) if value >> 31 else value
