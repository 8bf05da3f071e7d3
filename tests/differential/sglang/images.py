"""Images in prompts: a model that takes them, in the place of one with an encoder, and the engine's own way to it.

An image is a run of placeholders in the prompt, and what an encoder would make of it: drawn embeddings. The engine hashes
these, puts values that follow from the hash into the prompt, by which the radix cache knows the image, and cuts embeddings to
chunks.
"""

from __future__ import annotations

from array import array
from typing import Any

from attnfix.patches.lab.sglang.engine import module

ARCHITECTURE = "LlamaWithImages"
PLACEHOLDER = 2  # which no text has


def install() -> None:
    """Before a server is constructed: as a model that a package of the user's has, and that takes images."""
    module("models.registry").ModelRegistry.models[ARCHITECTURE] = _model()
    module("configs.model_config").multimodal_model_archs.append(ARCHITECTURE)


def _model() -> Any:
    import torch

    llama, images = module("models.llama"), module("managers.mm_utils")

    class LlamaWithImages(llama.LlamaForCausalLM):  # type: ignore[misc, name-defined]
        """What the engine's models with images are around a language model, but for the encoder."""

        def pad_input_ids(self, tokens: Any, given: Any) -> Any:
            return images.MultiModalityDataPaddingPatternMultimodalTokens().pad_input_tokens(tokens, given)

        def get_image_feature(self, items: list[Any]) -> Any:
            return torch.cat([item.feature for item in items])

        def forward(self, input_ids: Any, positions: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
            rows = images.general_mm_embed_routine(
                input_ids=input_ids, forward_batch=forward_batch, language_model=self.model, multimodal_model=self,
                positions=positions,
            )  # fmt: skip
            if self.capture_aux_hidden_states:
                raise NotImplementedError("hidden states of layers, for a drafter")
            return self.logits_processor(input_ids, rows, self.lm_head, forward_batch)

    return LlamaWithImages


def embeddings(image: list[int], wide: int, seed: int) -> Any:
    """What an encoder would make of it, [tokens, wide]: of another length it is another image."""
    import torch

    _, length, which = image
    draw = torch.Generator().manual_seed(hash((seed, length, which)) % 2**63)
    return torch.randn(length, wide, generator=draw).half()


def item(image: list[int], rows: Any) -> Any:
    """As a processor of the engine's hands it over."""
    data = module("managers.schedule_batch")
    begin, length, _ = image
    return data.MultimodalDataItem(modality=data.Modality.IMAGE, feature=rows, offsets=[(begin, begin + length - 1)])


def given(image: list[int], rows: Any) -> Any:
    """What the scheduler gets with a request."""
    return module("managers.schedule_batch").MultimodalProcessorOutput(mm_items=[item(image, rows)], im_token_id=PLACEHOLDER)


def values(image: list[int], rows: Any) -> list[int]:
    """What the engine puts into the prompt in the place of the placeholders."""
    one = item(image, rows)
    one.set_pad_value()
    prompt, inputs = array("q", [PLACEHOLDER] * (image[0] + image[1])), module("managers.schedule_batch").MultimodalInputs
    padded = (
        module("managers.mm_utils")
        .MultiModalityDataPaddingPatternMultimodalTokens()
        .pad_input_tokens(prompt, inputs(mm_items=[one], im_token_id=PLACEHOLDER))
    )
    return list(padded[image[0] :])
