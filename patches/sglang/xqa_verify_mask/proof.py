"""Proof of sglang.xqa-verify-mask: verification of drafts on a GPU where TRT-LLM MHA runs XQA.

Real: `TRTLLMHAAttnBackend`'s metadata and forward, and the KV pool. Emulated: FlashInfer's XQA, which refuses several tokens
per request without a mask, and masks the last keys by it; and the kernel of prefill.
"""

from __future__ import annotations

import ast
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnfix.compat.gate.digest import find
from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.excerpt import run_excerpt
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, combine, replaced
from attnfix.patches.lab.sglang import trtllm_mha
from attnfix.patches.lab.sglang.trtllm_mha import BACKEND, DRAFT, REQUESTS, Server

_REFUSED = "Mask is required for speculative decoding"


class Xqa(emulators.PagedDecode):
    """FlashInfer's XQA behind `trtllm_batch_decode_with_kv_cache`, without windows.

    `mask`: uint16 [requests, tokens, 2 * ceil(tokens / 32)]; bit j of a row says whether the token sees the j-th new one.

    Source: `xqa` in `xqa.py` of FlashInfer 0.6.7 and 0.6.12.
    """

    def __call__(self, *, query: Any, q_len_per_req: int = 1, mask: Any = None, **launch: Any) -> Any:
        import torch

        if q_len_per_req == 1:
            return super().__call__(query=query, **launch)
        if mask is None:
            raise AssertionError(_REFUSED)
        requests = query.shape[0] // q_len_per_req
        assert mask.shape == (requests, q_len_per_req, -(-q_len_per_req // 32) * 2) and mask.dtype == torch.uint16
        words = mask.to(torch.int64)
        seen = torch.stack([(words[..., j // 16] >> (j % 16)) & 1 for j in range(q_len_per_req)], -1).bool()
        seq_lens, outs = launch.pop("seq_lens").tolist(), []
        tables, caches = launch["block_tables"], launch["kv_cache"]
        for b in range(requests):
            pages = tables[b, : -(-seq_lens[b] // caches[0].shape[2])].long()
            k, v = (cache[pages].transpose(1, 2).flatten(0, 1)[: seq_lens[b]] for cache in caches)
            before = torch.ones(seq_lens[b] - q_len_per_req, dtype=torch.bool)
            for token in range(q_len_per_req):
                keys = torch.cat([before, seen[b, token]])
                group = query.shape[1] // k.shape[1]
                wide_k, wide_v = (x[keys].double().repeat_interleave(group, 1) for x in (k, v))
                row = b * q_len_per_req + token
                outs.append(emulators.attention(query[row : row + 1], wide_k, wide_v, launch["bmm1_scale"])[0])
        return (torch.cat(outs) * launch["bmm2_scale"]).to(launch["out_dtype"])


class Proof(proof.Proof):
    modules, may_lack = trtllm_mha.MODULES, trtllm_mha.MAY_LACK
    measure = "relative error against float64; infinite where the kernel refuses the batch"

    def prepare(self) -> None:
        kind = self.engine[BACKEND].TRTLLMHAAttnBackend
        if "is_xqa_impl" not in code_of(kind.__init__).co_names:
            raise NoSuchPath("TRT-LLM MHA runs on no GPU with XQA")
        self.engine[BACKEND].flashinfer = SimpleNamespace(
            decode=SimpleNamespace(trtllm_batch_decode_with_kv_cache=Xqa()),
            prefill=SimpleNamespace(trtllm_batch_context_with_kv_cache=emulators.PagedContext()),
        )

    def scenario(self, seed: int) -> Observation:
        """Two verifications, of other batches in the second."""
        server = self._server(seed)
        seen = [server.step("EXTEND", [9, 20, 3])]
        try:
            seen += [server.step("TARGET_VERIFY", [DRAFT] * REQUESTS) for _ in range(2)]
        except AssertionError as error:
            if str(error) != _REFUSED:
                raise
            return Observation(math.inf, str(error))
        return combine(*seen)

    def control(self, seed: int) -> Observation:
        """Prefill and decode."""
        server = self._server(seed)
        return combine(server.step("EXTEND", [9, 20, 3]), *(server.step("DECODE", [1] * REQUESTS) for _ in range(2)))

    def _server(self, seed: int) -> Server:
        import torch

        server = Server(self.engine, torch.Generator().manual_seed(seed), torch.bfloat16)
        server.backend.is_xqa_impl = True
        if "_xqa_spec_dec_mask" in code_of(type(server.backend).__init__).co_names:  # 0.5.21 and later make one there
            self._make_mask(server.backend)
        return server

    def _make_mask(self, backend: Any) -> None:
        """By the statement of the backend's own constructor."""
        import torch

        path = Path(self.engine[BACKEND].__file__)
        init: Any = find(ast.parse(path.read_text()), "TRTLLMHAAttnBackend.__init__")
        made = next(one for one in init.body if isinstance(one, ast.If) and "_xqa_spec_dec_mask" in ast.unparse(one))
        run_excerpt(path, made, self=backend, torch=torch, model_runner=SimpleNamespace(max_running_requests=REQUESTS))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.causal
        return {
            "the correction does nothing": replaced(wrap, "STEPS", frozenset()),
            "every draft sees all": replaced(wrap, "causal", lambda *size: real(*size)[:, -1:].expand(-1, DRAFT, -1)),
            "a draft does not see itself": replaced(wrap, "causal", lambda *size: _shifted(real(*size))),
        }


def _shifted(mask: Any) -> Any:
    import torch

    return (mask.view(torch.int16) >> 1).view(torch.uint16)
