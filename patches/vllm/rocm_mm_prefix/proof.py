"""Proof of vllm.rocm-mm-prefix: prompts with images, in layers whose backend AMD's platform chooses.

Real: the config, the platform's class and its choice, the answers of each backend, the layer, its metadata builder and
`forward`. Emulated: what the GPU says of itself, whether AITER is there, and the backends' attention kernels at their entry
points. These compute from the step's own keys, so that no cache is read. Spared: models that attend to nothing both ways, and
images where the platform takes Triton by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from attnfix.patches.lab.proof import Cases, Observation, combine, observe
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.construction import DENSE, Worker

from . import wrap

_ROCM, _BACKENDS = "vllm.platforms.rocm", "vllm.v1.attention.backends"
_TRITON, _NATIVE, _AITER = (f"{_BACKENDS}.{name}" for name in ("triton_attn", "rocm_attn", "rocm_aiter_unified_attn"))
_LAYER = "vllm.model_executor.layers.attention.attention"
_HEADS, _KV_HEADS = 8, 2
_LIBRARY = "aiter.ops.triton.unified_attention"
_FLAG = f"{_ROCM}:_get_backend_priorities: use_prefill_decode_attention"
#: Steps in a row: lengths of prompts, and of each one the first and the last token of its images
_STEPS: tuple[tuple[tuple[int, ...], dict[int, list[tuple[int, int]]]], ...] = (
    ((23, 40, 1), {0: [(3, 12)], 1: [(0, 7), (20, 35)], 2: []}),
    ((17, 33), {0: [], 1: [(2, 30)]}),
)


class Case(NamedTuple):
    images: bool = True
    page_size: int = 16
    dtype: str = "bfloat16"
    window: int | None = None
    head_size: int = 64
    graphs: str | None = None
    #: Whether AITER is installed
    aiter: bool = False
    attention: dict[str, Any] = {}
    where: str = ""


class Proof(Cases):
    modules = (_ROCM, _TRITON, _NATIVE, _AITER, _LAYER)
    may_lack = modules[1:]
    needs = "_get_backend_priorities"
    absent = "the platform asks no backend whether it attends to images both ways"
    bug = (
        Case(where=f"no {_FLAG}"),
        Case(window=16, page_size=32, graphs="FULL_AND_PIECEWISE", where=f"no {_FLAG}"),
        Case(dtype="float16", aiter=True, where=f"no {_FLAG}"),
        Case(head_size=512, aiter=True, where=f"no {_FLAG}"),  # which ROCM_ATTN does not take
        Case(attention={"use_prefill_decode_attention": True}, where=_FLAG),
        Case(window=16, page_size=32, attention={"use_prefill_decode_attention": True}, where=_FLAG),
    )
    spared = (
        Case(images=False),
        Case(images=False, dtype="float16", page_size=32, graphs="FULL_AND_PIECEWISE"),
        Case(images=False, window=16, head_size=512, aiter=True),
        Case(where=_FLAG),
    )
    around = {"`--attention-backend TRITON_ATTN`": {"backend": "TRITON_ATTN"}}
    broken = {
        "the correction does nothing": (wrap.triton_first, lambda real, backends: backends),
        "Triton is tried last": (wrap.triton_first, lambda real, backends: real(backends)[::-1]),
    }
    backend: str | None = None

    def __init__(self) -> None:
        kernels.stand_in()
        import_module("vllm.platforms").current_platform  # noqa: B018  # found before there seems to be a GPU of AMD's
        mi300x = SimpleNamespace(gcnArchName="gfx942", multi_processor_count=304)
        with patch("torch.cuda.get_device_properties", lambda *args: mi300x):
            super().__init__()

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        draw = torch.Generator().manual_seed(seed)
        with _Server(self.engine, case, self.backend) as server:
            kernel: Any = _Kernel()
            sys.modules[_LIBRARY] = SimpleNamespace(unified_attention=kernel)  # type: ignore[assignment]
            layer = server.layer(0, per_layer_sliding_window=case.window)
            server.backend_path = f"{layer.attn_backend.__module__}.{layer.attn_backend.__name__}"
            builder = server.builder([layer])
            seen = []
            for lens, images in _STEPS:
                metadata = server.metadata(builder, lens, images if case.images else None)
                shape, dtype = (sum(lens), _HEADS, case.head_size), server.config.model_config.dtype
                q, k, v = (torch.randn(shape, generator=draw).to(dtype) for _ in range(3))
                k, v = k[:, :_KV_HEADS], v[:, :_KV_HEADS]
                kernel.takes(lens, k, v)
                out = torch.zeros_like(q)
                with (
                    patch.object(self.engine[_TRITON], "unified_attention", kernel),
                    patch.object(self.engine[_NATIVE], "chunked_prefill_paged_decode", kernel),
                ):
                    layer.impl.forward(layer, q, k, v, server.cache(layer), metadata, output=out)
                ranges = images if case.images else {}
                seen.append(observe(out, _attention(lens, q, k, v, layer.impl.scale, case.window, ranges)))
        return combine(*seen)


class _Server(Worker):
    """A worker on AMD's platform, once its config is made."""

    amd = False

    def __init__(self, engine: dict[str, Any], case: Case, backend: str | None):
        self.engine, self.case = engine, case
        model = DENSE | {"is_mm_prefix_lm": case.images, "head_dim": case.head_size}
        attention = case.attention | ({"backend": backend} if backend else {})
        super().__init__(
            model, backend="triton_attn.TritonAttentionBackend", page_size=case.page_size, dtype=case.dtype, graphs=case.graphs,
            attention=attention,
        )  # fmt: skip
        model_config = self.config.model_config
        if model_config.is_mm_prefix_lm != case.images:  # from 0.28 on it asks the model's class for images, too
            model_config.model_arch_config = replace(model_config.model_arch_config, is_mm_prefix_lm=case.images)
        self.amd = True

    @contextmanager
    def _platform(self) -> Iterator[None]:
        if not self.amd:
            with super()._platform():
                yield
            return
        platforms: Any = import_module("vllm.platforms")
        selector: Any = import_module("vllm.v1.attention.selector")
        rocm, ops = self.engine[_ROCM].RocmPlatform, import_module("vllm._aiter_ops")
        with ExitStack() as stack:
            for name, answer in kernels.gpu_answers((9, 4)).items():
                stack.enter_context(patch.object(rocm, name, answer, create=True))
            stack.enter_context(patch.object(platforms, "_current_platform", rocm()))
            stack.enter_context(patch.object(ops, "is_aiter_found_and_supported", lambda: self.case.aiter))
            selector._cached_get_attn_backend.cache_clear()
            yield
        selector._cached_get_attn_backend.cache_clear()

    def metadata(self, builder: Any, lens: tuple[int, ...], images: Any) -> Any:
        """What the backend's builder makes of a step of prompts, and the model runner adds to it up to 0.23."""
        batch = self.batch([0] * len(lens), lens, mm_req_doc_ranges=images)
        metadata = builder.build(0, batch)
        if images is not None and "mm_req_doc_ranges" not in {field.name for field in fields(batch)}:
            metadata.mm_prefix_range = images
            if tensor := getattr(type(metadata), "compute_mm_prefix_range_tensor", None):
                metadata.mm_prefix_range_tensor = tensor(images, len(lens), batch.seq_lens.device)
        return metadata

    def cache(self, layer: Any) -> Any:
        """A cache in the shape of the layer's backend."""
        import torch

        size, d, dtype = self.case.page_size, self.case.head_size, self.config.model_config.dtype
        if shape_of := getattr(layer.attn_backend, "get_kv_cache_shape", None):
            return torch.zeros(shape_of(4, size, _KV_HEADS, d), dtype=dtype)
        slots = layer.attn_backend.customize_spec(self.spec(layer)).num_head_slots  # from 0.30 on: keys and values, or heads
        return torch.zeros(4, slots or _KV_HEADS, size, 2 * _KV_HEADS * d // (slots or _KV_HEADS), dtype=dtype)


class _Kernel:
    """A kernel of prompts whose keys are all new. It attends both ways in the ranges that it is told.

    `window_size`: (tokens to the left, and to the right) of a token; `sliding_window`: tokens that it sees, with itself, as
    in `context_attention_fwd` of 0.18.0-0.33.0. Below 1 it sees all.
    """

    def takes(self, lens: tuple[int, ...], k: Any, v: Any) -> None:
        self.step = lens, k, v

    def __call__(self, *, window_size: Any = None, sliding_window: int = -1, mm_prefix_range: Any = None, **launch: Any):
        q, out = (launch[long if long in launch else short] for long, short in (("query", "q"), ("output", "out")))
        lens, k, v = self.step
        window = 1 + window_size[0] if window_size else sliding_window
        ranges = {} if mm_prefix_range is None else dict(enumerate(mm_prefix_range.tolist()))
        scale = launch["sm_scale"] if "sm_scale" in launch else launch["softmax_scale"]
        out.copy_(_attention(lens, q, k, v, scale, window if window > 0 else None, ranges))


def _attention(lens: tuple[int, ...], q: Any, k: Any, v: Any, scale: float, window: int | None, ranges: Any) -> Any:
    """float64. A token sees those before it, in its window, and all of its image."""
    import torch

    parts, group = [], q.shape[1] // k.shape[1]
    for b, (query, key, value) in enumerate(zip(*(x.double().split(lens) for x in (q, k, v)))):
        at = torch.arange(lens[b])
        back = at[:, None] - at
        seen = (back >= 0) & (back < (window or lens[b]))
        for first, last in ranges.get(b, ()):
            inside = (at >= first) & (at <= last) if last > first else at < 0
            seen |= inside[:, None] & inside
        key, value = (x.repeat_interleave(group, 1) for x in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query, key) * scale
        parts.append(torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, -torch.inf).softmax(-1), value))
    return torch.cat(parts)
