"""sglang.mamba2-initial-state and sglang.mamba2-h-grid around one `init_forward_metadata`: 0.5.13-0.5.14 need both."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace

import torch

from attnfix.compat.arming.wrapper import WrappedTarget
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.catalogue import FIXES
from attnfix.patches.sglang.mamba2_h_grid import wrap
from attnfix.patches.sglang.mamba2_h_grid.fix import FIX as GRID
from attnfix.patches.sglang.mamba2_initial_state.fix import FIX as INITIAL
from tests.support.one_call import target_of

CHUNK, NAME = 16, "init_forward_metadata"


class Metadata:
    """Stands for `Mamba2Metadata`: whether it saw a mask, and a `seq_idx` of its own."""

    @classmethod
    def prepare_mixed(cls, forward_metadata, chunk_size, forward_batch):
        mixed = SimpleNamespace(saw=forward_batch.mamba_track_mask, seq_idx=torch.zeros(1))
        return SimpleNamespace(track_ssm_h_src=forward_metadata, mixed_metadata=mixed)


class Backend:
    mamba_chunk_size = CHUNK

    def _forward_metadata(self, forward_batch):
        """The states to track, which carry what the scan lacks: only where the batch's own mask is seen."""
        source = torch.zeros(1)
        if forward_batch.mamba_track_mask is not None:
            setattr(source, wrap._BETWEEN, "between")
        return source

    def init_forward_metadata(self, forward_batch):
        metadata = self._forward_metadata(forward_batch)
        self.forward_metadata = Mamba2Metadata.prepare_mixed(metadata, self.mamba_chunk_size, forward_batch)  # noqa: F821


ENGINE = FunctionType(
    Backend.init_forward_metadata.__code__,
    {
        "__builtins__": __builtins__,
        "Mamba2Metadata": Metadata,
        "get_global_server_args": lambda: SimpleNamespace(mamba_cache_chunk_size=CHUNK),
    },
)


def test_the_prefix_decides_and_the_scan_gets_what_it_lacks():
    states = {fix: FixState(fix) for fix in FIXES if fix in (INITIAL, GRID)}
    both = WrappedTarget(ENGINE, target_of(GRID, NAME).code_paths[0])
    for fix, state in states.items():  # in the catalogue's order
        state.armed, target = True, target_of(fix, NAME)
        both = both.add(state, target.correct, target.needed)
    backend, mask = Backend(), torch.tensor([False, True])
    batch = SimpleNamespace(
        mamba_track_mask=mask, extend_num_tokens=25, extend_prefix_lens_cpu=[16, 0], extend_seq_lens_cpu=[5, 20]
    )
    both.function(backend, batch)
    assert all(state.armed for state in states.values())
    mixed = backend.forward_metadata.mixed_metadata
    assert mixed.saw is None and getattr(mixed.seq_idx, wrap._BETWEEN) == "between"
    assert batch.mamba_track_mask is mask
