"""Time of the end of a token: python tests/perf_sampling.py [DEVICE] [--all].

Prints microseconds per step of chains of dependent dispatches, for vocabularies of 49,152 and
128,256 ids, greedy and with top-k 40 (with --all also with penalties, top-k 128 and without top-k):
a dispatch that does nothing, the scan of the logits, the draw, the lookup of the next embedding
(2048 values, Q6_K) as a dispatch of its own, then the draw with the lookup in it. "together" is the
end of a token in three dispatches and in two. In the logits 30 ids stand 5 to 12 above a normal
distribution of deviation 2.5. Rows come from the device's cache here, in a model from its memory.
No test: it needs a quiet machine.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from perf_bench import Bench, Operand, Step

from kompute_llm.engine import sampler
from kompute_llm.engine import step as words
from kompute_llm.engine.builder import Push
from kompute_llm.engine.device import Device, choose
from kompute_llm.engine.plan import Buf
from kompute_llm.engine.sampler import Sampling, settings_words
from kompute_llm.kernels import embed_q8, fill, sample_pick, sample_pick_embed, sample_scan
from kompute_llm.kernels.kernel import Kernel
from kompute_llm.kernels.reference import step_words

VOCABS, WIDTH, FORMAT = (49152, 128256), 2048, "Q6_K"
SMALL = 256  # width on software devices, whose buffers are small
OPTIONS = {"greedy": Sampling(temp=0.0), "top-k 40": Sampling()}
MORE = {
    "penalties": Sampling(repeat_penalty=1.1), "top-k 128": sample_pick.OPTIONS["top-k 128"],
    "top-k 0, top-p 1": sample_pick.OPTIONS["all off"],
}  # fmt: skip
END_IDS = (1 << 30, (1 << 30) + 1)  # as many as models have, never drawn


class Ends:
    """The buffers of a vocabulary, and the dispatches at the end of a token as steps."""

    def __init__(self, b: Bench, n_vocab: int) -> None:
        self.b, self.n_vocab, n_ctx = b, n_vocab, 4096
        self.width = SMALL if b.device.limits.software else WIDTH
        rng = np.random.default_rng(1)
        logits = rng.standard_normal(n_vocab).astype(np.float32) * np.float32(2.5)
        logits[rng.integers(n_vocab, size=30)] += rng.uniform(5, 12, 30).astype(np.float32)
        best = np.zeros(sample_scan.best_shape(n_vocab), np.uint32)
        self.settings = b.exchange(settings_words(OPTIONS["greedy"], END_IDS))
        self.logits = b.exchange(logits)
        u32 = {
            "keys": b.storage(n_vocab), "best": b.exchange(best), "settings": self.settings,
            "counts": b.exchange(np.zeros(n_vocab, np.uint32)),
        }  # fmt: skip
        more = {
            "tokens": b.exchange(np.zeros(4, np.uint32)),
            "history": b.exchange(np.zeros(n_ctx, np.uint32)),
            "result": b.exchange(np.zeros(words.WORDS + words.RING, np.uint32)),
        }  # fmt: skip
        self.scanned: dict[str, Operand] = {n: (t, Buf(n, (1,), "U32")) for n, t in u32.items()}
        self.drawn = self.scanned | {n: (t, Buf(n, (1,), "U32")) for n, t in more.items()}
        x = b.vector(self.width)
        self.row: dict[str, Operand] = {
            "w": b.weight(n_vocab, self.width, FORMAT), "g": b.weight(1, self.width, "F32"),
            "x": x["f"], "yq": x["q"], "ys": x["s"], "ssq": x["ssq"],
        }  # fmt: skip
        group = sample_scan.group_size(n_vocab)
        self.sizes: Push = {"n_vocab": n_vocab, "group": group}
        self.pick_sizes = self.sizes | {"n_ctx": n_ctx}

    def use(self, options: Sampling) -> None:
        """Change the settings that the recorded dispatches read."""
        made = settings_words(options, END_IDS)
        self.settings.data()[: made.size] = made
        seq = self.b.device.sequence()
        self.b.device.sync_device(seq, [self.settings])
        self.b.device.eval(seq)

    def add(self, seq: Any, kernel: Kernel, params: Push, ops: dict[str, Operand]) -> None:
        """Record one dispatch behind a barrier."""
        self.b.add(seq, kernel, params, **ops)

    def scan(self, seq: Any) -> None:
        """Keys and group maxima."""
        logits = self.logits, Buf("logits", (1, self.n_vocab))
        self.add(seq, sample_scan.KERNEL, self.sizes, {"logits": logits} | self.scanned)

    def pick(self, seq: Any) -> None:
        """The draw alone."""
        self.add(seq, sample_pick.KERNEL, self.pick_sizes, self.drawn)

    def embed(self, seq: Any) -> None:
        """The lookup alone."""
        params: Push = {"n_embd": self.width, "row0": 0, "rows": self.n_vocab, "scale": 1.0}
        tokens = self.drawn["tokens"]
        self.add(seq, embed_q8.KERNEL, params, {"tokens": tokens} | self.row)

    def pick_embed(self, seq: Any) -> None:
        """The draw and the lookup."""
        params = self.pick_sizes | {"n_embd": self.width, "scale": 1.0}
        self.add(seq, sample_pick_embed.KERNEL, params, self.drawn | self.row)

    def nothing(self, seq: Any) -> None:
        """One word."""
        self.add(seq, fill.KERNEL, {"word": 3, "count": 1, "value": 0},
                 {"dst": self.drawn["tokens"]})  # fmt: skip


def measure(b: Bench, n_vocab: int, options: dict[str, Sampling], repeats: int) -> None:
    """One line for each of the options."""
    ends = Ends(b, n_vocab)
    step_lists: list[list[Step]] = [
        [ends.nothing], [ends.scan], [ends.scan, ends.pick], [ends.scan, ends.pick, ends.embed],
        [ends.scan, ends.pick_embed],
    ]  # fmt: skip
    chains = [b.chain(steps, repeats) for steps in step_lists]
    for name, chosen in options.items():
        ends.use(chosen)
        empty, scan, pick, embed, both = (t / repeats for t in b.turns(chains))
        stopped = int(_read(b, ends)[words.STOP])
        assert not stopped, f"generation stopped: {stopped}"
        print(f"{n_vocab:7} {name:17} {empty:7.2f} {scan:7.2f} {pick - scan:7.2f} "
              f"{embed - pick:7.2f} {embed:10.2f} {both - scan:12.2f} {both:10.2f}")  # fmt: skip


def _read(b: Bench, ends: Ends) -> Any:
    result, seq = ends.drawn["result"][0], b.device.sequence()
    b.device.sync_local(seq, [result])
    b.device.eval(seq)
    return result.data()


def main() -> None:
    """A table."""
    named = [a for a in sys.argv[1:] if not a.startswith("--")]
    options = OPTIONS | (MORE if "--all" in sys.argv else {})
    with Device.open(choose(named[0] if named else None)) as device:
        b = Bench(device, 1.0, 1)
        start = step_words(1, 0)
        start[[words.SEED_LO, words.SEED_HI]] = sampler.seed_words(1)
        b.step = b.exchange(start)
        repeats = 2 if device.limits.software else 200
        print(f"{device.describe}\nµs      settings            empty    scan    pick   embed "
              "  together   pick_embed   together")  # fmt: skip
        for n_vocab in VOCABS:
            measure(b, n_vocab, options, repeats)


if __name__ == "__main__":
    main()
