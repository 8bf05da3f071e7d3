"""Attempts to lay out requests with an encoder in sglang on fa3: docs/upstream/sglang-fa3-encoder-replay.md.

    PYTHONPATH=SITE ATTNFIX=0 TRITON_INTERPRET=1 python -m scripts.attempts.sglang_fa3_encoder_replay

SITE: a folder with a stock sglang. The release's own `FlashAttentionBackend` captures and replays on the CPU, over a page table
as wide as the engine makes it; FlashAttention is emulated. One line for each length of the encoder, with 5 tokens of text in a
decode graph; then three for a long image beside a long text. They say how far the result is from float64, or what was raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from attnfix.patches.sglang.fa3_cross_lengths import proof
from attnfix.prove import stubs
from attnfix.prove.side import _ease_engine

_BEHIND = 4  # columns that the engine's rows have behind the context length


def main() -> None:
    stubs.install("sglang")
    _ease_engine("sglang")
    the_proof = proof.Proof()
    stubs.freeze()
    the_proof.prepare()

    def model(*, graphs: bool) -> proof.Model:
        made = proof.Model(the_proof.engine, torch.Generator().manual_seed(1), columns=proof.CONTEXT + _BEHIND)
        if graphs:
            made.capture()
        return made

    for encoder in (3, 9, 20):
        _say(f"{encoder} tokens of the encoder", model(graphs=True).decode, [encoder], [5])
    encoders, texts = [40, 1], [6, proof.CONTEXT - 1]
    beside = f"texts of {texts} tokens behind {encoders}"
    _say(f"{beside}, prefill", model(graphs=False).prefill, encoders, [0, 0], texts)
    _say(f"{beside}, decode without a graph", model(graphs=False).decode, encoders, texts)
    _say(f"{beside}, decode in a graph", model(graphs=True).decode, encoders, texts)


def _say(what: str, run: Callable[..., Any], *lens: list[int]) -> None:
    try:
        said = f"relative error {run(*lens).error:.2g}"
    except IndexError as error:
        said = f"IndexError: {error}"
    print(f"{what}: {said}", flush=True)


if __name__ == "__main__":
    main()
