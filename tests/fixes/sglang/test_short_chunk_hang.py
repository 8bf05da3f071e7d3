"""sglang.short-chunk-hang without an engine: alignments above a chunk, and those that fit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.short_chunk_hang.fix import FIX
from tests.support import one_call


@pytest.mark.parametrize(
    "alignment, chunk, wanted, corrections",
    [(4096, 2048, 2048, 1), (4096, 4096, 4096, 0), (4096, 8192, 4096, 0), (None, 2048, None, 0), (4096, None, 4096, 0)],
)
def test_an_alignment_fits_its_chunk(alignment, chunk, wanted, corrections):
    def engines(self):
        self.truncation_align_size = alignment

    scheduler, state = SimpleNamespace(chunked_prefill_size=chunk), FixState(FIX)
    one_call.run(one_call.target_of(FIX, "init_deterministic_inference_config"), engines, state, scheduler)
    assert scheduler.truncation_align_size == wanted and state.counters.corrections == corrections
