"""sglang.xqa-verify-mask without an engine: which calls get a mask, what it says, and that the entry point comes back."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.xqa_verify_mask import wrap
from attnfix.patches.sglang.xqa_verify_mask.fix import FIX
from tests.support import one_call

TARGET = one_call.target_of(FIX, "forward_extend")
TOKENS = 3


class EagleVerifyInput:
    pass


class EagleDraftInput:
    pass


class NgramVerifyInput:
    pass


class Mode:
    def __init__(self, name):
        self._name_ = name


class Backend:
    """Launches its query in groups of requests; notes the masks."""

    def __init__(self, error=None, **fields):
        self.is_xqa_impl, self.topk, self.error, self.groups = True, 1, error, 1
        self.req_to_token = torch.zeros(4, 8)
        self.forward_metadata = SimpleNamespace(max_seq_len_q=TOKENS)
        vars(self).update(fields)

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True):
        rows = q.shape[0] // self.groups
        return [
            flashinfer.decode.trtllm_batch_decode_with_kv_cache(query=q[i * rows : (i + 1) * rows], error=self.error)  # noqa: F821
            for i in range(self.groups)
        ]


def kernel(*, query, mask=None, error=None):
    if error:
        raise error
    return mask


def run(backend, mode="TARGET_VERIFY", spec=EagleVerifyInput, window=-1, requests=2):
    kernels = SimpleNamespace(trtllm_batch_decode_with_kv_cache=kernel)
    names = {"flashinfer": SimpleNamespace(decode=kernels), "__builtins__": __builtins__}
    function = FunctionType(Backend.forward_extend.__code__, names, "forward_extend", (True,))
    layer, batch = SimpleNamespace(sliding_window_size=window), SimpleNamespace(forward_mode=Mode(mode), spec_info=spec())
    state = FixState(FIX)
    try:
        seen = one_call.run(TARGET, function, state, backend, torch.zeros(requests * TOKENS, 4), None, None, layer, batch)
    finally:
        assert kernels.trtllm_batch_decode_with_kv_cache is kernel
    return seen, state.counters.corrections


@pytest.mark.parametrize("mode, spec", [("TARGET_VERIFY", EagleVerifyInput), ("DRAFT_EXTEND_V2", EagleDraftInput)])
def test_a_chain_of_drafts_gets_the_causal_mask(mode, spec):
    (mask,), corrected = run(Backend(), mode, spec)
    assert corrected == 1 and mask.dtype == torch.uint16 and mask.is_contiguous()
    assert mask.tolist() == [[[0b1, 0], [0b11, 0], [0b111, 0]]] * 2


def test_the_mask_stays_where_it_is_and_each_group_gets_its_rows():
    backend = Backend(groups=2)
    (first, second), _ = run(backend, requests=4)
    assert first.shape == second.shape == (2, TOKENS, 2)
    (again,), _ = run(Backend(**vars(backend) | {"groups": 1}))
    assert again.data_ptr() == first.data_ptr()


@pytest.mark.parametrize("tokens", [1, 16, 17, 32, 33, 40])
def test_a_row_sees_itself_and_what_is_before_it(tokens):
    mask = wrap.causal(2, tokens, "cpu").to(torch.int64)
    assert mask.shape == (2, tokens, -(-tokens // 32) * 2)
    for row in range(tokens):
        bits = [j for j in range(mask.shape[2] * 16) if mask[1, row, j // 16] >> (j % 16) & 1]
        assert bits == [*range(row + 1)]


@pytest.mark.parametrize(
    "backend, call",
    [(Backend(is_xqa_impl=False), {}), (Backend(topk=4), {}), (Backend(), {"mode": "EXTEND"}),
     (Backend(), {"spec": NgramVerifyInput}), (Backend(), {"window": 127}),
     (Backend(forward_metadata=SimpleNamespace(max_seq_len_q=1)), {})],
    ids=["TRT-LLM's own kernel", "branches", "prefill", "drafts of another kind", "a window", "one token"],
)  # fmt: skip
def test_others_pass_untouched(backend, call):
    assert run(backend, **call) == ([None], 0)


def test_an_error_of_the_engine_passes():
    with pytest.raises(MemoryError):
        run(Backend(MemoryError()))
