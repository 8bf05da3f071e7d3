"""A model that is nothing but layers with a cache, for the engine's own loader.

Query, key and value of a token follow from the token, its position, and a salt: its adapter's, or an image's. So what a layer
should return is known without the model. The next token follows from token and position: a wrong output of a layer changes no
step that follows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ..protocol import Output
from . import images, lora, recurrent

VOCABULARY = 128
_ROWS, _PERIOD = 1021, 5
_SALT, _HALF = 3, 128  # the columns of hidden states that say it, in two numbers that are exact in bfloat16
_OF_ADAPTER = 389  # its salt, times its number


class Contents:
    """What a case's seed decides: the words of prompts and answers, and the rows of queries, keys and values."""

    def __init__(self, seed: int, sinks: Any = None):
        """sinks: their dtype; None for that of the model."""
        self.seed, self._sinks = seed, sinks
        self._draw = torch.Generator().manual_seed(seed)
        self._tables: dict[Any, Any] = {}
        self.heads: dict[str, tuple[int, int]] = {}  # for queries and keys, of layers that have others than the model
        self._pattern = random.Random(seed).sample(range(3, VOCABULARY), _PERIOD)

    def word(self, position: int, salt: int = 0) -> int:
        """Of a prompt: mostly a pattern that repeats, so that an n-gram drafter finds something."""
        if random.Random(f"{self.seed} {salt} {position}").random() < 0.25:
            return random.Random(f"{self.seed} {salt} {position} other").randrange(3, VOCABULARY)
        return self._pattern[position % _PERIOD]

    def next(self, token: int, position: int) -> int:
        """What follows `token` at `position`."""
        return self.word(position + 1, salt=token)

    def rows(self, layer: str, kind: str, tokens: Any, positions: Any, heads: int, size: int, salts: Any = 0) -> Any:
        """[tokens, heads, size] in float32, each a row of a table. salts: of the tokens, or the one of all."""
        key = layer, kind, heads, size
        if key not in self._tables:
            self._tables[key] = torch.randn(_ROWS, heads, size, generator=self._draw)
        return self._tables[key][(tokens.long() * 131 + positions.long() * 17 + salts) % _ROWS]

    def inputs(self, layer: Any, worker: Any, tokens: Any, positions: Any, salts: Any = 0) -> list[Any]:
        """This rank's query, key and value of these tokens; with MLA query, latent, and what of the key has the position."""
        text, rank, ranks = worker.config.model_config.hf_text_config, worker.rank, worker.sizes["tp"]
        heads, kv_heads = self.heads.get(layer.layer_name, (text.num_attention_heads, text.num_key_value_heads))
        mine = slice(rank * layer.num_heads, (rank + 1) * layer.num_heads)
        rows = lambda kind, *shape: self.rows(layer.layer_name, kind, tokens, positions, *shape, salts)  # noqa: E731
        if worker.config.model_config.use_mla:
            rope = layer.qk_rope_head_dim
            q = rows("q", heads, layer.qk_nope_head_dim + rope)
            return [q[:, mine], rows("latent", 1, layer.kv_lora_rank), rows("rope", 1, rope)]
        size, own = layer.head_size, layer.num_kv_heads
        first = rank * kv_heads // ranks  # several ranks share a head where there are fewer of them
        q, k, v = rows("q", heads, size), rows("k", kv_heads, size), rows("v", kv_heads, size)
        return [q[:, mine], k[:, first : first + own], v[:, first : first + own]]

    def sinks(self, layer: int, worker: Any) -> Any:
        """A score of each head of this rank."""
        at = torch.tensor([layer])
        every = self.rows(f"{layer}", "sinks", at, at, worker.config.model_config.hf_text_config.num_attention_heads, 1)
        return every.view(-1).to(self._sinks or every.dtype).chunk(worker.sizes["tp"])[worker.rank]


class Ran(NamedTuple):
    """What one call of a layer was given and returned."""

    layer: Any
    tokens: Any
    positions: Any
    out: Any


def make(
    contents: Contents, here: Callable[[], Any], windows: Any, soft_cap: float, sinks: bool, states: int = 0,
    adapted: bool = False, seeing: bool = False,
) -> type:  # fmt: skip
    """The class of the model. here(): the rank that asks: its `worker`, and `ran`, what its layers returned. windows: one for
    each layer of attention, None for none. states: how many layers with a recurrent state come behind them. adapted,
    seeing: whether it takes adapters, and images."""

    class Model(torch.nn.Module):
        supports_pp = False

        def __init__(self, *, vllm_config: Any, prefix: str = ""):
            super().__init__()
            worker = here().worker
            config = worker.config
            self.config = config.model_config.hf_config
            self.mla = config.model_config.use_mla
            self.dtype, self.width = config.model_config.dtype, config.model_config.get_hidden_size()
            layers = []
            for index, window in enumerate(windows):
                more: dict[str, Any] = {"quant_config": config.quant_config}
                if window is not None:
                    more["per_layer_sliding_window"] = window
                if soft_cap:
                    more["logits_soft_cap"] = soft_cap
                if sinks:
                    more["sinks"] = contents.sinks(index, worker)
                layers.append(worker.layer(index, **more))
            layers += [recurrent.layer(len(windows) + at, worker) for at in range(states)]
            self.layers = torch.nn.ModuleList(layers)
            if adapted:
                self.adapted = lora.layer(worker)

        model = property(lambda self: self)  # a drafter looks there for the target's embedding

        def embed_input_ids(self, input_ids: Any, *args: Any) -> Any:
            return torch.zeros(len(input_ids), self.width, dtype=self.dtype)

        get_input_embeddings = embed_input_ids

        def forward(self, input_ids: Any, positions: Any, intermediate_tensors: Any = None, inputs_embeds: Any = None) -> Any:
            input_ids, salts = (input_ids, 0) if inputs_embeds is None else images.read(inputs_embeds)
            salts = salts + _OF_ADAPTER * lora.of_rows(self, len(input_ids))
            for layer in self.layers:
                if recurrent.is_recurrent(layer):
                    rows = recurrent.inputs(layer, here().worker, contents, input_ids, positions, salts).to(self.dtype)
                    here().ran.append(Ran(layer, input_ids.clone(), positions.clone(), recurrent.run(layer, rows)))
                    continue
                out = attend(layer, contents, here().worker, input_ids, positions, self.dtype, salts)
                here().ran.append(Ran(layer, input_ids.clone(), positions.clone(), out))
            return encoded(input_ids, positions, self.width, self.dtype, salts)

        def compute_logits(self, hidden_states: Any, *args: Any) -> Any:
            return logits(hidden_states, contents.next)

        def load_weights(self, weights: Any) -> set[str]:
            return set()

    for name, trait in ((recurrent.traits() if states else {}) | (lora.traits() if adapted else {})).items():
        setattr(Model, name, trait)
    return images.of(Model) if seeing else Model


def attend(
    layer: Any, contents: Contents, worker: Any, tokens: Any, positions: Any, dtype: Any, salts: Any
) -> Any:  # fmt: skip
    """What a layer of attention makes of these tokens."""
    rows = [x.to(dtype) for x in contents.inputs(layer, worker, tokens, positions, salts)]
    if worker.config.model_config.use_mla:
        q, latent, rope = rows
        return layer(q, latent.flatten(1), rope, output_shape=(len(q), layer.num_heads * layer.v_head_dim))
    return layer(*(x.flatten(1) for x in rows))


def encoded(tokens: Any, positions: Any, width: int, dtype: Any, salts: Any) -> Any:
    """[tokens, width]: hidden states that say which token was read where, and its salt."""
    hidden = torch.zeros(len(tokens), width, dtype=dtype)
    hidden[:, _SALT], hidden[:, _SALT + 1] = salts % _ROWS % _HALF, salts % _ROWS // _HALF
    for column, what in enumerate((tokens, positions % 128, positions // 128)):  # exact in bfloat16
        hidden[:, column] = what.to(dtype)
    return hidden


def logits(hidden: Any, follows: Callable[[int, int], int]) -> Any:
    """Of what follows each token at its position."""
    made = torch.zeros(len(hidden), VOCABULARY)
    for row, (token, low, high) in enumerate(hidden[:, :3].int().tolist()):
        if 0 <= token < VOCABULARY:
            made[row, follows(token, high * 128 + low)] = 9.0
    return made


def salts_of(hidden: Any) -> Any:
    """Of each row of hidden states."""
    return hidden[:, _SALT].long() + _HALF * hidden[:, _SALT + 1].long()


def salts_for(adapter: int, image: images.Image | None, count: int) -> Any:
    """Of the first so many tokens of a request."""
    return torch.full((count,), _OF_ADAPTER * adapter) + (0 if image is None else image.salts(count))


def strange(output: Output) -> Output:
    """The model was given other words, or other positions, than the requests have."""
    output.error, output.at = float("inf"), "the model's input"
    return output


def register_loader() -> None:
    """The load format "attention": the engine constructs the model, and its layers get the scales of a checkpoint."""
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader
    from vllm.model_executor.model_loader.weight_utils import default_weight_loader

    @register_model_loader("attention")
    class Loader(BaseModelLoader):
        def download_model(self, model_config: Any) -> None: ...

        def load_weights(self, model: Any, model_config: Any) -> None:
            scales = self.load_config.model_loader_extra_config.get("scales", {})
            draw = torch.Generator().manual_seed(self.load_config.model_loader_extra_config["seed"])
            for name, parameter in model.named_parameters():
                load, kind = getattr(parameter, "weight_loader", default_weight_loader), name.rpartition(".")[2]
                if not name.startswith("layers."):  # of the layer that adapters change, which nobody reads
                    continue
                if recurrent.load(name, parameter, model, draw):
                    continue
                if name.endswith("kv_b_proj.weight"):  # [columns, rank], of all ranks
                    columns, rank = parameter.shape
                    columns *= model.layers[0].kv_b_proj.tp_size
                    load(parameter, (torch.randn(columns, rank, generator=draw) * rank**-0.5).to(parameter.dtype))
                elif kind in scales:
                    load(parameter, torch.tensor(scales[kind]))
