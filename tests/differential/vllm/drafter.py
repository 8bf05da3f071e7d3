"""Drafters with a layer of attention of their own: EAGLE and MTP, by the engine's speculator, and what the layer should return.

A drafter reads at the place of each token the one that follows, and what the target has made of the token; its first call is as
long as the target's, the later ones have one row of each request. It has no adapters and sees no images, but its keys follow
from what the target made of them. Its draft follows from the token that it reads, so which drafts are right is known: about two
of three, drawn by the case's seed.
"""

from __future__ import annotations

import random
from importlib import import_module
from typing import Any, NamedTuple

import torch

from attnfix.patches.lab.vllm.construction import _attention
from attnfix.patches.lab.vllm.models import _SHAPE, _TOKENS, _without_weights, folder_of

from .. import reference
from ..protocol import Output
from . import model
from .space import SHAPES, WINDOW

#: Methods whose drafter has a layer
OWN = ("eagle", "mtp")
_EAGLE = "EagleLlamaForCausalLM"
#: architecture of a model -> that of its own head
_HEADS = {"DeepseekV3ForCausalLM": "DeepSeekMTPModel", "NemotronHForCausalLM": "NemotronHMTPModel"}
_RIGHT = 0.65


class Drafted(NamedTuple):
    """What one call of the drafter was given, and what its layer returned."""

    layer: Any
    tokens: Any
    positions: Any
    hidden: Any
    out: Any


def speculation(given: dict[str, Any], target: str) -> dict[str, Any]:
    """What the engine's config of speculation is made of; the registry knows the drafter's architecture then. target: that of
    the model."""
    said = {"method": given["speculative-method"], "num_speculative_tokens": given["num-speculative-tokens"]}
    if said["method"] == "eagle":
        count, kv_count, size = _shape(given)
        text = {
            **_SHAPE, **_TOKENS, "architectures": [_EAGLE], "model_type": "llama", "num_attention_heads": count,
            "num_key_value_heads": kv_count, "head_dim": size, "num_hidden_layers": 1,
            "vocab_size": model.VOCABULARY, "torch_dtype": given["dtype"],
        }  # fmt: skip
        return {**said, "model": folder_of(text)}
    registry: Any = import_module("vllm.model_executor.models.registry").ModelRegistry
    registry.register_model(_HEADS[target], _without_weights())
    return said


def _shape(given: dict[str, Any]) -> tuple[int, int, int]:
    """(query heads, KV heads, head size) of EAGLE's layer."""
    heads, kv_heads, size = SHAPES[given["attention"]]
    return heads * given["draft-heads"], kv_heads * given["draft-heads"], size


def register(given: dict[str, Any], target: str, index: int, contents: Any, here: Any) -> None:
    """The drafter's class, whose layer is `index` of the model, for the engine's registry."""

    def layer(worker: Any) -> Any:
        """By the engine's constructor."""
        if given["speculative-method"] == "mtp":
            return worker.layer(index, quant_config=worker.config.quant_config)
        (heads, kv_heads, size), ranks, name = _shape(given), worker.sizes["tp"], f"model.layers.{index}.self_attn.attn"
        contents.heads[name] = heads, kv_heads
        more = {"per_layer_sliding_window": WINDOW} if given["draft-window"] else {}
        return worker._in_dtype(
            _attention("Attention"), heads // ranks, size, size**-0.5, num_kv_heads=max(1, kv_heads // ranks), prefix=name,
            cache_config=worker.config.cache_config, **more,
        )  # fmt: skip

    registry: Any = import_module("vllm.model_executor.models.registry").ModelRegistry
    architecture = _EAGLE if given["speculative-method"] == "eagle" else _HEADS[target]
    registry.register_model(architecture, make(contents, here, layer))


def draft(contents: Any, token: int, position: int) -> int:
    """What the drafter says behind `token` at `position`."""
    right = int(contents.next(token, position))
    drawn = random.Random(f"{contents.seed} draft {token} {position}")
    return right if drawn.random() < _RIGHT else (right + 1) % model.VOCABULARY


def make(contents: Any, here: Any, layer: Any) -> type:
    """The class of the drafter. layer(worker): makes its layer."""

    class Drafter(torch.nn.Module):
        supports_pp = False

        def __init__(self, *, vllm_config: Any, prefix: str = ""):
            super().__init__()
            worker = here().worker
            self.dtype, self.width = worker.config.model_config.dtype, worker.config.model_config.get_hidden_size()
            self.layers = torch.nn.ModuleList([layer(worker)])

        model = property(lambda self: self)

        embed_input_ids = get_input_embeddings = lambda self, input_ids, *args: torch.zeros(
            len(input_ids), self.width, dtype=self.dtype
        )

        def forward(self, input_ids: Any, positions: Any, hidden_states: Any, inputs_embeds: Any = None, **more: Any) -> Any:
            (layer,) = self.layers
            salts = model.salts_of(hidden_states)
            out = model.attend(layer, contents, here().worker, input_ids, positions, self.dtype, salts)
            here().drafted.append(Drafted(layer, input_ids.clone(), positions.clone(), hidden_states.clone(), out))
            hidden = model.encoded(input_ids, positions + 1, self.width, self.dtype, salts)
            return hidden, hidden

        def compute_logits(self, hidden_states: Any, *args: Any, **more: Any) -> Any:
            return model.logits(hidden_states, lambda token, at: draft(contents, token, at))

        def load_weights(self, weights: Any) -> set[str]:
            return set()

    return Drafter


class Rows(NamedTuple):
    """Of a request in a step: position of its first row, the target's words up to the last row that stands, and all its words
    behind the step. got: whether it has got a token. salts: of the words."""

    start: int
    words: list[int]
    known: list[int]
    count: int
    got: bool
    salts: list[int]


def compare(
    calls: list[Drafted], order: list[str], rows: dict[str, Rows], contents: Any, limit: int, true: Any, within: Any
) -> list[Output]:
    """Every call of a step. order: requests as the batch has them. limit: of the context, behind which the engine lets the
    drafter's positions stand. true(layer, row, start, words, salts): what the layer returns for the words from `start` on, of
    a request that begins at that row of the target's batch; -1 of a batch of the drafter's own."""
    outputs = []
    for number, call in enumerate(calls):
        at, places, texts, hidden, labels, begins = 0, [], [], [], [], []
        for row, name in enumerate(order):
            one = rows[name]
            read = one.known[1 : len(one.words) + 1]  # at each place the token that follows
            read += [-1] * (len(one.words) - len(read))  # which the engine did not sample: no input is right there
            last = len(one.words) - 1
            if number == 0:
                places += range(at, at + last + 1 - one.start)
                hidden += [(one.words[p], p, one.salts[p]) for p in range(one.start, last + 1)]
                texts.append((one.start, read, one.salts))
                begins.append(at)
                at += one.count
            elif one.got and last + number < limit:
                for step in range(number):
                    read.append(draft(contents, read[-1], last + 1 + step))
                places.append(row)
                hidden.append((read[-2], last + number, one.salts[last]))
                texts.append((last + number, read, one.salts + number * one.salts[last:]))
                begins.append(-1)
            else:
                continue
            labels += [f"draft {number} of {name} at {p}" for p in range(texts[-1][0], len(read))]
        if not places:
            continue
        wanted = [(p, words[p]) for start, words, _ in texts for p in range(start, len(words))]
        given = list(zip(call.positions[places].tolist(), call.tokens[places].tolist())) == wanted
        words, spots, salts = torch.tensor(hidden).t()
        seen = model.encoded(words, spots, call.hidden.shape[1], call.hidden.dtype, salts)
        given &= torch.equal(call.hidden[places], seen)
        expected = torch.cat([true(call.layer, begin, *text, torch.tensor(of)) for begin, (*text, of) in zip(begins, texts)])
        out = call.out[places].view(expected.shape)
        compared = reference.compare(call.layer.layer_name, out, expected, labels, within)
        outputs.append(compared if given else model.strange(compared))
    return outputs
