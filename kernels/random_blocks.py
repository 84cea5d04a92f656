"""Random weight blocks for cases: every bit pattern of the quants, scales of a wanted size."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.quants import NVFP4

from ..engine.blocks import Format

Bytes = npt.NDArray[Any]  # uint8 (blocks, bytes)

# Of each format with a float16 scale: where it lies, where a minimum lies (or None), and the root
# mean square of values with scale 1
_SCALES: dict[str, tuple[int, int | None, float]] = {
    "Q4_0": (0, None, 5), "Q4_1": (0, 2, 5), "Q5_0": (0, None, 9), "Q5_1": (0, 2, 9),
    "Q8_0": (0, None, 74), "Q4_K": (0, 2, 250), "Q5_K": (0, 2, 500), "Q6_K": (208, None, 1350),
    "Q2_K": (80, 82, 16), "Q3_K": (108, None, 43), "IQ4_NL": (0, None, 67),
    "IQ4_XS": (0, None, 1250), "TQ1_0": (52, None, 0.8), "TQ2_0": (64, None, 1.2),
    "IQ1_S": (0, None, 7), "IQ2_XXS": (0, None, 54), "IQ2_XS": (0, None, 56),
    "IQ2_S": (0, None, 57), "IQ3_XXS": (0, None, 141), "IQ3_S": (0, None, 139),
}  # fmt: skip
_IQ1_M, _MXFP4, _NVFP4 = 7.0, 5.9, 2.9
# float32 scales, at the end of a block
_INT = {"INT8": 74.0, "INT4_G32": 4.6, "INT4_G64": 4.6, "INT4_G128": 4.6, "INT3_G64": 2.3}
# Sizes of minima: K formats multiply them by up to 15 (Q2_K) or 63
_LEAST = {"Q4_1": -1.5, "Q5_1": -1.5, "Q4_K": 0.05, "Q5_K": 0.05, "Q2_K": 0.1}


def _halves(values: Any) -> Bytes:
    return np.asarray(values).astype(np.float16).view(np.uint8).reshape(-1, 2)


def set_scales(rng: np.random.Generator, fmt: Format, blocks: Bytes, scale: float) -> None:
    """Give random blocks scales such that values are about `scale`, finite and not tiny."""
    sizes: Any = rng.uniform(0.5, 1.5, len(blocks)) * scale
    if fmt.name == "IQ1_M":  # the four nibbles of the scale lead four words of 16 bits
        bits = (sizes / _IQ1_M).astype(np.float16).view(np.uint16)[:, None]
        words = blocks[:, 48:56].copy().view(np.uint16) & 0x0FFF
        words |= ((bits >> np.arange(0, 16, 4, dtype=np.uint16)) & 15) << 12
        blocks[:, 48:56] = words.view(np.uint8)
    elif fmt.name in _INT:
        each = (sizes / _INT[fmt.name]).astype(np.float32)
        blocks[:, -4:] = each.view(np.uint8).reshape(-1, 4)
    elif fmt.name == "MXFP4":
        blocks[:, 0] = np.clip(np.rint(np.log2(sizes / _MXFP4)) + 128, 2, 240)
    elif fmt.name == "NVFP4":
        each = rng.uniform(0.5, 1.5, (len(blocks), 4)) * scale / _NVFP4
        blocks[:, :4] = NVFP4.fp32_to_ue4m3(each.astype(np.float32))
    else:
        at, least, spread = _SCALES[fmt.name]
        blocks[:, at : at + 2] = _halves(sizes / spread)
        if least is not None:
            minima = rng.uniform(0.5, 1.5, len(blocks)) * scale * _LEAST[fmt.name]
            blocks[:, least : least + 2] = _halves(minima)
