"""Attempts to replay a decode graph of sglang on fa3 for a request with an encoder: docs/upstream/sglang-fa3-encoder-replay.md.

    PYTHONPATH=SITE ATTNFIX=0 TRITON_INTERPRET=1 python -m scripts.attempts.sglang_fa3_encoder_replay

SITE: a folder with a stock sglang. The release's own `FlashAttentionBackend` captures and replays on the CPU, over a page table
as wide as the engine makes it; FlashAttention is emulated. One line for each length of the encoder, with 5 tokens of text: how
far the result is from float64, or the error of the release.
"""

from __future__ import annotations

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
    for encoder in (3, 9, 20):
        model = proof.Model(the_proof.engine, torch.Generator().manual_seed(1), columns=proof.CONTEXT + _BEHIND)
        model.capture()
        try:
            said = f"relative error {model.decode([encoder], [5]).error:.2g}"
        except IndexError as error:
            said = f"IndexError: {error}"
        print(f"{encoder} tokens of the encoder: {said}", flush=True)


if __name__ == "__main__":
    main()
