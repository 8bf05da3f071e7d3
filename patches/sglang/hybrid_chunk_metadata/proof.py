"""Proof of sglang.hybrid-chunk-metadata: prefill of requests with cached tokens through FlashInfer's MLA backend behind a
hybrid one, for prefill and decode or for full and linear attention.

Real: the model's `forward_normal_chunked_kv_core`, which asks for the plan, both hybrid backends, the MLA backend and its chunk
runner, and the batch's chunks. FlashInfer's ragged wrappers and the CUDA merge are emulated.
"""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnfix.compat.gate import source_files
from attnfix.patches.lab.proof import Observation, code_of, combine, cumulative, observe, replaced
from attnfix.patches.lab.sglang import absent  # noqa: F401  its stand-ins for imports are wanted here
from attnfix.patches.lab.sglang.chunked_prefix import FLASHINFER, ChunkedPrefix

_HYBRID = "sglang.srt.layers.attention.hybrid_attn_backend"
_LINEAR = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
_QUANTIZATION = "sglang.srt.layers.quantization"  # first: else it and the linear layers import each other

_CACHED, _NEW = [35, 0, 7, 20], [3, 5, 2, 6]


def _runner(backend: Any, batch: Any) -> Any:
    return SimpleNamespace(
        kv_cache_dtype=backend.data_type, token_to_kv_pool=batch.token_to_kv_pool, req_to_token_pool=None,
        kv_index_translator=None, model_config=SimpleNamespace(context_len=64), needs_cpu_seq_lens=True,
        server_args=SimpleNamespace(speculative_attention_mode="prefill", speculative_algorithm=None),
    )  # fmt: skip


class _Other:
    """A backend that runs nothing of a prefill's full attention."""

    needs_cpu_seq_lens = False

    def supports_prefill_graph_extend(self) -> bool:
        return False


class Proof(ChunkedPrefix):
    modules = (_QUANTIZATION, _HYBRID, *ChunkedPrefix.modules)

    def prepare(self) -> None:
        super().prepare()
        if hasattr(self.engine[_HYBRID], "get_spec"):
            self.engine[_HYBRID].get_spec = lambda: SimpleNamespace(speculative_attention_mode="prefill")
        if source_files.path_of(Path(self.engine[_HYBRID].__file__).parents[3], _LINEAR):
            self._import_linear()

    def _import_linear(self) -> None:
        """The module of the other hybrid backend, where it can be imported without a GPU: some releases' brings in kernels."""
        try:
            linear: Any = importlib.import_module(_LINEAR)
        except ImportError:
            if hasattr(self.engine[_HYBRID].HybridAttnBackend, "init_mha_chunk_metadata"):
                raise  # before that, the other one shows the bug by itself
            return
        if hasattr(linear, "check_cuda_graph_backend"):
            linear.check_cuda_graph_backend = lambda *_: False
        self.engine[_LINEAR] = linear

    def scenario(self, seed: int) -> Observation:
        return combine(*(self._prefill(seed, hybrid) for hybrid in self._hybrids()))

    def control(self, seed: int) -> Observation:
        """The same through FlashInfer's backend alone."""
        return self._prefill(seed, lambda backend, batch: backend)

    def _prefill(self, seed: int, hybrid: Any) -> Observation:
        """A batch of other requests with as many tokens, none of them cached, came before."""
        self.use(math.e)
        before = cumulative(_NEW[::-1])

        def behind(backend: Any, batch: Any) -> Any:
            backend.mha_chunk_kv_cache.ragged_wrapper.begin_forward(before, before)
            return hybrid(backend, batch)

        try:
            return observe(*self.outputs(seed, _CACHED, _NEW, FLASHINFER, behind=behind))
        except IndexError as error:
            if str(error) != "list index out of range":
                raise
            return Observation(math.inf, str(error))

    def _hybrids(self) -> list[Any]:
        """Each hybrid backend of this release around a backend: what the model sees."""
        return [self._split, self._with_linear] if _LINEAR in self.engine else [self._split]

    def _split(self, backend: Any, batch: Any) -> Any:
        """Prefill by the backend, decode by another one."""
        kind = self.engine[_HYBRID].HybridAttnBackend
        runner = _runner(backend, batch)
        names = code_of(kind.__init__).co_varnames[: code_of(kind.__init__).co_argcount]
        return kind(runner, backend, _Other()) if "model_runner" in names else kind(backend, _Other())

    def _with_linear(self, backend: Any, batch: Any) -> Any:
        """Full attention by the backend, linear attention by another one."""
        for name, value in vars(_runner(backend, batch)).items():
            vars(backend).setdefault(name, value)
        return self.engine[_LINEAR].HybridLinearAttnBackend(backend, _Other(), [0])

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.handing_over

        def chunks_alone(plan: Any, count: Any) -> Any:
            def plan_all_but(batch: Any) -> None:
                ragged = plan.__self__.mha_chunk_kv_cache.ragged_wrapper
                before = dict(vars(ragged))
                plan(batch)
                vars(ragged).update(before)

            return real(plan_all_but, count)

        def never(plan: Any, count: Any) -> Any:
            return real(lambda batch: None, count)

        return {
            "the correction does nothing": replaced(wrap, "_METHOD", "another_method"),
            "the plan is not made": replaced(wrap, "handing_over", never),
            "the new tokens' attention is not planned": replaced(wrap, "handing_over", chunks_alone),
        }
