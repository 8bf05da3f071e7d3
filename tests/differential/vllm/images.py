"""Images in prompts: tokens whose keys follow from an image, which the engine's own scheduler has encoded before they are read.

Real: budgets of the encoder and of its cache, block hashes, the runner's batches of images, its cache of what they became, and
the rows of the model that get it. Emulated: the encoder, whose result says of each token of which image it is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import torch

#: The token that an image is laid over; no text has it
PLACEHOLDER = 2
_HALF = 128  # a number is two that are exact in bfloat16
_TOKEN, _WHICH, _LENGTH, _AT = 0, 1, 2, 4  # columns of embeddings


class Image(NamedTuple):
    begin: int
    length: int
    which: int

    def laid_over(self, text: list[int]) -> list[int]:
        return text[: self.begin] + self.length * [PLACEHOLDER] + text[self.begin + self.length :]

    def salts(self, count: int) -> Any:
        """What it makes of the first so many positions."""
        at = torch.arange(count) - self.begin
        inside = (at >= 0) & (at < self.length)
        return torch.where(inside, _salt(torch.tensor(self.which), torch.tensor(self.length), at), 0)

    def feature(self) -> Any:
        """For the engine's request, under a name that no other image has."""
        inputs: Any = import_module("vllm.multimodal.inputs")
        name = f"image-{self.which}-of-{self.length}"
        element = inputs.MultiModalFieldElem(torch.tensor([self.which, self.length]), inputs.MultiModalBatchedField())
        return inputs.MultiModalFeatureSpec(
            data=inputs.MultiModalKwargsItem({"image": element}), modality="image", identifier=name,
            mm_position=inputs.PlaceholderRange(self.begin, self.length), mm_hash=name,
        )  # fmt: skip


def of(base: type) -> type:
    """The class of a model, with images."""
    interface: Any = import_module("vllm.model_executor.models.interfaces").SupportsMultiModal
    processing: Any = import_module("vllm.multimodal.processing")

    class Info(processing.BaseProcessingInfo):  # type: ignore[misc, name-defined]
        def get_supported_mm_limits(self) -> dict[str, int | None]:
            return {"image": None}

        def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Any) -> dict[str, int]:
            return {"image": seq_len}

    class Processor(processing.BaseMultiModalProcessor):  # type: ignore[misc, name-defined]
        """Images are processed elsewhere; the engine asks this one what it knows of them."""

        requires_tokenizer = False

        def _get_mm_fields_config(self, *args: Any) -> Any:
            raise NotImplementedError

        _get_prompt_updates = _get_mm_fields_config

    class WithImages(base, interface):  # type: ignore[misc, valid-type]
        @classmethod
        def get_placeholder_str(cls, modality: str, i: int) -> str | None:
            return None

        def get_language_model(self) -> Any:
            return self

        def embed_multimodal(self, *, image: Any) -> list[Any]:
            return [self._encoded(which, length) for which, length in image.tolist()]

        def _encoded(self, which: int, length: int) -> Any:
            made = torch.zeros(length, self.width, dtype=self.dtype)
            made[:, _TOKEN], made[:, _WHICH] = PLACEHOLDER, which
            _put(made, _LENGTH, torch.full((length,), length))
            _put(made, _AT, torch.arange(length))
            return made

        def embed_input_ids(
            self, input_ids: Any, multimodal_embeddings: Any = None, *, is_multimodal: Any = None
        ) -> Any:  # fmt: skip
            made = torch.zeros(len(input_ids), self.width, dtype=self.dtype)
            made[:, _TOKEN] = input_ids.to(self.dtype)
            if multimodal_embeddings is not None and len(multimodal_embeddings):
                made[is_multimodal] = torch.cat(tuple(multimodal_embeddings))
            return made

    registry: Any = import_module("vllm.multimodal").MULTIMODAL_REGISTRY
    registered: type = registry.register_processor(Processor, info=Info, dummy_inputs=lambda info: None)(WithImages)
    return registered


def read(embeddings: Any) -> tuple[Any, Any]:
    """(tokens, salts) of rows of embeddings."""
    which = embeddings[:, _WHICH].long()
    salts = _salt(which, _number(embeddings, _LENGTH), _number(embeddings, _AT))
    return embeddings[:, _TOKEN].long(), torch.where(which > 0, salts, 0)


def _salt(which: Any, length: Any, at: Any) -> Any:
    return which * (101 + 2 * length) + 31 * at


def _put(rows: Any, column: int, numbers: Any) -> None:
    rows[:, column], rows[:, column + 1] = numbers % _HALF, numbers // _HALF


def _number(rows: Any, column: int) -> Any:
    return rows[:, column].long() + _HALF * rows[:, column + 1].long()
