"""Make data/families.npz: logits of llama.cpp for the models of family_models.py.

    python tests/make_family_data.py PROGRAM

PROGRAM is llama_logits.c, linked with llama.cpp (release b11434 made the file that is there). It
runs the weights in float32, so that nothing but the arithmetic of the family can differ.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from family_models import MODELS, N_VOCAB, POSITIONS, prompt, widened


def main(program: str) -> None:
    """Write the file, a few positions per model."""
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, n_ctx) in MODELS.items():
            path = widened(make()).write(Path(folder) / f"{name}.gguf")
            command = [program, str(path), str(n_ctx), *map(str, prompt(name))]
            raw = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
            logits = np.frombuffer(raw, np.float32).reshape(-1, N_VOCAB)
            out[name] = logits[list(POSITIONS)]
    np.savez_compressed(Path(__file__).parent / "data" / "families.npz", **out)


if __name__ == "__main__":
    main(sys.argv[1])
