"""Attention of Gemma 3 on the server of `paged`: prompts, some of which have an image whose tokens see each other.

Real: the model's attention layers as its constructor makes them, its masks of images, and `MultimodalInputs`, with the Triton
backend of `paged`. The reference of images is of the layer that sees all tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from attnfix.patches.lab.proof import replaced

from . import construction, paged
from .engine import module

MODEL, CONTEXT, LAYERS = (
    "sglang.srt.models.gemma3_mm", "sglang.srt.model_executor.forward_context", "sglang.srt.models.gemma3_causal",
)  # fmt: skip
#: Among the modes of a launch: each token of a prompt sees the whole prompt, as in EmbeddingGemma
BOTH_WAYS = "use_bidirectional_attention"
_CONFIG = {
    **construction.LLAMA, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 64,
    "num_attention_heads": paged.HEADS, "num_key_value_heads": 1, "head_dim": paged.DIM, "num_hidden_layers": 2,
    "max_position_embeddings": paged.CONTEXT, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": paged.DIM,
    "layer_types": ["full_attention", "sliding_attention"], "rope_local_base_freq": 10000, "attention_bias": False,
}  # fmt: skip


@dataclass(frozen=True)
class Prompts(paged.Step):
    """`images`: the first and the last token of each prompt's image, None for a prompt without; empty for a batch without."""

    images: tuple[tuple[int, int] | None, ...] = ()


def prompts(cached: tuple[int, ...], new: tuple[int, ...], images: tuple[Any, ...] = (), **options: Any) -> Prompts:
    return Prompts("EXTEND", cached, new, images=images, **options)


class Server(paged.Server):
    spans: Iterator[tuple[int, int] | None] = iter(())

    def __init__(self, kind: str, launch: paged.Launch, seed: int):
        self.both_ways = BOTH_WAYS in launch.modes
        with replaced(paged, "_GEMMA2", {**_CONFIG, BOTH_WAYS: self.both_ways}):
            super().__init__(kind, launch, seed)

    def _model(self) -> None:
        super()._model()
        home, config = module("models.gemma3_causal"), self.runner.model_config.hf_config
        for name in ("rope_theta", "rope_scaling", "rope_local_base_freq"):  # older releases' Transformers have them
            setattr(config, name, getattr(config, name, None))
        with replaced(home, "get_rope", lambda *_, **__: None) if hasattr(home, "get_rope") else nullcontext():
            for number in (paged.FULL, paged.SLIDING):
                self.layers[number] = home.Gemma3Attention(number, config, paged.CONTEXT).attn

    def _batch(self, step: paged.Step, size: int) -> Any:
        self.spans = iter(())
        batch = super()._batch(step, size)
        if isinstance(step, Prompts) and step.images:
            batch.mm_inputs = [None if span is None else _image(span) for span in step.images]
        vars(batch)["attn_backend"] = self.backend
        return batch

    def _attend(self, layer_id: int, step: paged.Step, batch: Any) -> Any:
        if context := module(CONTEXT.removeprefix("sglang.srt.")):
            context.set_forward_context(context.ForwardContext(attn_backend=self.backend))
        if batch.contains_image_inputs():  # what the model's forward asks
            import torch

            kind = module(MODEL.removeprefix("sglang.srt.")).Gemma3ForConditionalGeneration
            object.__new__(kind).prepare_attn_masks(batch, batch.input_ids, mask_dtype=torch.bool)
        self.spans = iter(step.images if isinstance(step, Prompts) else ())
        return super()._attend(layer_id, step, batch)

    def _paths(self, layer_id: int, n: int, more: int, parents: tuple[int, ...]) -> list[list[int]]:
        """A token of an image sees the whole image, unless a part of that is cached."""
        if self.both_ways and more > 1:
            return [[*range(n + more)]] * more
        begin, last = next(self.spans, None) or (-1, -1)
        paths = super()._paths(layer_id, n, more, parents)
        return [[*range(last + 1)] if n <= begin < len(path) <= last else path for path in paths]


def _image(span: tuple[int, int]) -> Any:
    home = module("managers.schedule_batch")
    item = home.MultimodalDataItem(modality=home.Modality.IMAGE, offsets=[span])
    return home.MultimodalInputs(mm_items=[item])
