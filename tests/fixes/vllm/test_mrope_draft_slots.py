"""vllm.mrope-draft-slots without an engine: which batches are corrected, and where their drafts get slots."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.mrope_draft_slots.fix import FIX
from tests.support import one_call

LIMIT, SIZE = 100, 4


def eagle_step_update_slot_mapping_and_metadata(
    positions_1d, block_table_tensor, seq_lens, block_size, max_model_len, out_clamped_positions, out_slot_mapping,
    input_batch_size,
):  # fmt: skip
    beyond = positions_1d + 1 >= max_model_len
    at = (positions_1d + 1).masked_fill(beyond, 0)
    out_slot_mapping[:] = block_table_tensor.gather(1, (at // block_size).view(-1, 1)).view(-1) * block_size + at % block_size
    out_slot_mapping[beyond] = -1
    out_clamped_positions[:] = at
    seq_lens += 1


class Drafter:
    def __init__(self, positions):
        self.positions, self.slots = positions.clone(), torch.zeros(len(positions), dtype=torch.int64)
        self.seen = []

    def _set_positions(self, count, positions): ...

    def propose(self, metadata):
        for _ in range(2):
            eagle_step_update_slot_mapping_and_metadata(
                positions_1d=self.positions, block_table_tensor=metadata.table, seq_lens=metadata.seq_lens, block_size=SIZE,
                max_model_len=LIMIT, out_clamped_positions=self.positions, out_slot_mapping=self.slots,
                input_batch_size=len(self.slots),
            )  # fmt: skip
            self.seen.append((self.slots.tolist(), self.positions.tolist()))
        return self.seen


class OfDraftModel(Drafter):
    needs_extra_input_slots = True


class OfNgrams:
    def propose(self, metadata):
        return "n-grams"


def propose_draft_token_ids(self, common_attn_metadata):
    return self.drafter.propose(common_attn_metadata)


def run(deltas, lens, drafter=None, drafts=3, mrope=True):
    """(what the model saw in each step, or what is returned, corrections)"""
    names = [str(at) for at in range(len(deltas))]
    lens = torch.tensor(lens, dtype=torch.int32)
    positions = lens.long() - 1 + torch.tensor([delta or 0 for delta in deltas])
    runner = SimpleNamespace(
        drafter=drafter or Drafter(positions), uses_mrope=mrope, num_spec_tokens=drafts,
        input_batch=SimpleNamespace(req_ids=names),
        requests={name: SimpleNamespace(mrope_position_delta=delta) for name, delta in zip(names, deltas)},
    )  # fmt: skip
    metadata = SimpleNamespace(table=torch.arange(30 * len(names)).view(len(names), 30), seq_lens=lens)
    state, target = FixState(FIX), one_call.target_of(FIX, "propose_draft_token_ids")
    seen = one_call.run(target, propose_draft_token_ids, state, runner, metadata)
    assert not {"propose", "_set_positions"} & vars(runner.drafter).keys()
    return seen, state.counters.corrections


def test_drafts_go_to_their_indices_and_keep_their_positions():
    seen, corrections = run((-20, None), (40, 7))
    assert seen == [([40, 120 + 7], [20, 7]), ([41, 120 + 8], [21, 8])] and corrections == 2


def test_a_draft_beyond_the_limit_has_no_slot():
    seen, _ = run((-20, 5), (LIMIT, LIMIT - 2))
    assert seen[0] == ([-1, 120 + LIMIT - 2], [0, 0])


@pytest.mark.parametrize(
    "more",
    [
        {"deltas": (0, None)},
        {"drafts": 1},
        {"mrope": False},
        {"drafter": OfNgrams()},
        {"drafter": OfDraftModel(torch.tensor([19, 6]))},
    ],
    ids=["deltas", "drafts", "mrope", "ngrams", "draft model"],
)
def test_other_batches_keep_the_engines_function(more):
    given = {"deltas": (-20, 0), "lens": (40, 7), **more}
    assert run(**given)[1] == 0
