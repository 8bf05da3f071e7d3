"""Models with random weights and no tokenizer, made in seconds: what GPU runs serve in the place of real ones.

A family is its config.json beside BASE and the tensors of a layer. Every projection keeps the size of what it is given; queries
are larger, so that a token attends to few others and not to the mean of all. `make(family, **options)` gives what writes a
model into a folder.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu.serving.child import IMAGE, MERGED, PATCH, VISION_END, VISION_START, images

VOCABULARY = 8192
#: Of every config.json. Models take up to 32768 tokens
BASE: dict[str, Any] = dict(
    torch_dtype="bfloat16", vocab_size=VOCABULARY, hidden_act="silu", rms_norm_eps=1e-6, attention_bias=False,
    max_position_embeddings=32768, rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=False, bos_token_id=0,
    eos_token_id=1, pad_token_id=1,
)  # fmt: skip
Tensors = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """layers, hidden, inner: as in config.json. drawn: how many layers have weights of their own; the others repeat these."""

    layers: int = 4
    hidden: int = 1024
    inner: int = 2048
    drawn: int = 4


#: With the first the engine's Python is what takes the time; with the others it is the GPU, as with a model in service
TINY, MEDIUM, LARGE = Size(), Size(8, 2304, 9216, 8), Size(16, 4096, 11008)


class Draw:
    """Tensors in bfloat16, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        import torch

        self.torch, self.generator = torch, torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Any:
        return self.torch.randn(*shape, generator=self.generator).bfloat16()

    def matrix(self, rows: int, columns: int, gain: float = 1.0) -> Any:
        return (self.torch.randn(rows, columns, generator=self.generator) * gain * columns**-0.5).bfloat16()

    def full(self, count: int, value: float = 1.0) -> Any:
        return self.torch.full((count,), value).bfloat16()

    def attention(self, hidden: int, heads: int, kv_heads: int, head: int, gated: bool = False, out: float = 1.0) -> Tensors:
        """Projections. gated: queries come with a gate for each; out: gain of the output."""
        return {
            "q_proj": self.matrix((1 + gated) * heads * head, hidden, 3.0), "k_proj": self.matrix(kv_heads * head, hidden),
            "v_proj": self.matrix(kv_heads * head, hidden), "o_proj": self.matrix(hidden, heads * head, out),
        }  # fmt: skip

    def mlp(self, hidden: int, inner: int) -> Tensors:
        shapes = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
        return {name: self.matrix(*shape) for name, shape in shapes.items()}


def below(prefix: str, tensors: Mapping[str, Any]) -> Tensors:
    """The tensors with their names behind a prefix."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


@dataclass(frozen=True)
class Family:
    """config: of a size and options, beside BASE unless it has a text_config. layer: tensors of layer `at`; rest: all others;
    both named without ".weight".

    layers: what the names of layers begin with. every: kinds of layers come back after so many. seed: of the weights. beside:
    {file: what it holds} of other files."""

    config: Callable[..., dict[str, Any]]
    layer: Callable[..., Tensors]
    rest: Callable[..., Tensors]
    layers: str = "model.layers"
    every: int = 1
    tiny: Size = TINY
    large: Size = LARGE
    seed: int = 20
    beside: Callable[[], dict[str, Any]] = dict


#: What names of tensors that are no weights end with
BARE = "A_log", "dt_bias", ".D", ".bias"


def config(family: str, size: Size | None = None, **options: Any) -> dict[str, Any]:
    """The config.json of a family. size: TINY's kind where it is None."""
    kind, size = FAMILIES[family], size or FAMILIES[family].tiny
    about = kind.config(size, **options)
    return about if "text_config" in about else BASE | _sizes(size) | about


def _sizes(size: Size) -> dict[str, int]:
    return {"hidden_size": size.hidden, "intermediate_size": size.inner, "num_hidden_layers": size.layers}


def weights(family: str, size: Size | None = None, **options: Any) -> Tensors:
    """{name: tensor} of a checkpoint."""
    kind, size = FAMILIES[family], size or FAMILIES[family].tiny
    draw, made, layers = Draw(kind.seed), Tensors(), list[Tensors]()
    for at in range(size.layers):
        # A file holds no tensor twice
        copied = layers[at % size.drawn if kind.every == 1 else at - kind.every] if at >= size.drawn else {}
        layers.append({name: one.clone() for name, one in copied.items()} or kind.layer(draw, size, at, **options))
        made |= below(f"{kind.layers}.{at}", layers[at])
    made |= kind.rest(draw, size, **options)
    return {name if name.endswith(BARE) else f"{name}.weight": tensor for name, tensor in made.items()}


def make(family: str, size: Size | None = None, calibrated: bool = False, query: float | None = None, awq: bool = False,
         **options: Any) -> Callable[[Path], Path]:  # fmt: skip
    """What writes a model of that family into a folder, unless one is there, and returns the folder.

    calibrated: with scales of an FP8 KV cache, and of queries where one is given; awq: projections in AWQ's format."""
    return functools.partial(_write, family, size, calibrated, query, awq, tuple(options.items()))


def large(family: str, **options: Any) -> Callable[[Path], Path]:
    """`make` in a size in which it is the GPU that takes the time: 2 to 2.6 billion weights."""
    return make(family, FAMILIES[family].large, **options)


def adapted(model: Callable[[Path], Path], *ranks: int) -> Callable[[Path], Path]:
    """`model`, and in folders `adapter-1`, … a LoRA adapter of each rank, which adds to a projection about what it gives."""
    return functools.partial(_write_adapters, model, ranks)


def _write_adapters(model: Callable[[Path], Path], ranks: tuple[int, ...], folder: Path) -> Path:
    from safetensors import safe_open
    from safetensors.torch import save_file

    model(folder)
    with safe_open(folder / "model.safetensors", "pt") as held:
        shapes = {name: held.get_slice(name).get_shape() for name in held.keys() if "_proj." in name}  # noqa: SIM118
    for at, rank in enumerate(ranks, 1):
        draw, made, home = Draw(100 + at), Tensors(), folder / f"adapter-{at}"
        for name, (rows, columns) in sorted(shapes.items()):
            layer = f"base_model.model.{name.removesuffix('.weight')}"
            made |= {f"{layer}.lora_A.weight": draw.matrix(rank, columns), f"{layer}.lora_B.weight": draw.matrix(rows, rank)}
        home.mkdir(exist_ok=True)
        targets = sorted({name.split(".")[-2] for name in shapes})
        about = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": targets}
        (home / "adapter_config.json").write_text(json.dumps(about))
        save_file(made, home / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def _write(
    family: str, size: Size | None, calibrated: bool, query: float | None, awq: bool, options: tuple[tuple[str, Any], ...],
    folder: Path,
) -> Path:  # fmt: skip
    from safetensors.torch import save_file

    if (folder / "model.safetensors").exists():
        return folder
    about, tensors = config(family, size, **dict(options)), weights(family, size, **dict(options))
    if calibrated:
        about["quantization_config"], scales = _calibration(tensors, about["num_hidden_layers"], query)
        tensors |= scales
    if awq:
        about["quantization_config"], tensors = AWQ, quantized(tensors)
    folder.mkdir(parents=True, exist_ok=True)
    for name, held in {"config.json": about, **FAMILIES[family].beside()}.items():
        (folder / name).write_text(json.dumps(held, indent=1))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


# Llama, Granite, Qwen3 MoE: layers of attention and of an MLP

HEADS, KV_HEADS, HEAD = 16, 4, 64


def _norms(draw: Draw, size: Size) -> Tensors:
    return {"input_layernorm": draw.full(size.hidden), "post_attention_layernorm": draw.full(size.hidden)}


def _embedded(draw: Draw, size: Size, gain: float = 1.0, **_: Any) -> Tensors:
    return {
        "model.embed_tokens": draw.normal(VOCABULARY, size.hidden), "model.norm": draw.full(size.hidden),
        "lm_head": draw.matrix(VOCABULARY, size.hidden, gain),
    }  # fmt: skip


def _llama(_: Size, kv_heads: int = KV_HEADS) -> dict[str, Any]:
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": kv_heads, "head_dim": HEAD}
    return dict(architectures=["LlamaForCausalLM"], model_type="llama", mlp_bias=False, **heads)


def _llama_layer(draw: Draw, size: Size, _: int, kv_heads: int = KV_HEADS) -> Tensors:
    attention = draw.attention(size.hidden, HEADS, kv_heads, HEAD)
    return below("self_attn", attention) | below("mlp", draw.mlp(size.hidden, size.inner)) | _norms(draw, size)


def _tokenizer(special: Mapping[str, int], **more: str) -> dict[str, Any]:
    """Files of a tokenizer with a word for each token id."""
    added = [
        {"id": at, "content": word, "special": True, "normalized": False, "lstrip": False, "rstrip": False,
         "single_word": False} for word, at in special.items()
    ]  # fmt: skip
    words = {"type": "WordLevel", "vocab": {f"w{at}": at for at in range(VOCABULARY)}, "unk_token": "w0"}
    return {
        "tokenizer.json": {
            "version": "1.0", "added_tokens": added, "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": words,
        },
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"} | more,
    }  # fmt: skip


def _granite(size: Size) -> dict[str, Any]:
    """A Llama whose multipliers do nothing. Llamas of sglang 0.5.23 need CUTLASS, even on Hopper."""
    multipliers = dict(embedding_multiplier=1.0, residual_multiplier=1.0, attention_multiplier=HEAD**-0.5, logits_scaling=1.0)
    return _llama(size) | dict(architectures=["GraniteForCausalLM"], model_type="granite", **multipliers)


_EXPERTS, _CHOSEN, _EXPERT = 8, 2, 512


def _qwen3_moe(size: Size) -> dict[str, Any]:
    """Rounding may choose other experts."""
    return _llama(size) | dict(
        architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", decoder_sparse_step=1, mlp_only_layers=[],
        num_experts=_EXPERTS, num_experts_per_tok=_CHOSEN, norm_topk_prob=True, moe_intermediate_size=_EXPERT,
    )  # fmt: skip


def _qwen3_moe_layer(draw: Draw, size: Size, _: int) -> Tensors:
    made = below("self_attn", draw.attention(size.hidden, HEADS, KV_HEADS, HEAD)) | _norms(draw, size)
    # A gain of the projection would be taken out again
    made |= {"self_attn.q_norm": draw.full(HEAD, 3), "self_attn.k_norm": draw.full(HEAD)}
    for expert in range(_EXPERTS):
        made |= below(f"mlp.experts.{expert}", draw.mlp(size.hidden, _EXPERT))
    return made | {"mlp.gate": draw.matrix(_EXPERTS, size.hidden)}


# BERT: every token sees all of its text


def _bert(size: Size) -> dict[str, Any]:
    """Texts have up to 2048 tokens."""
    return dict(
        architectures=["BertModel"], model_type="bert", num_attention_heads=HEADS, max_position_embeddings=2048,
        type_vocab_size=2, layer_norm_eps=1e-12, hidden_act="gelu", position_embedding_type="absolute",
    )  # fmt: skip


def _bert_layer(draw: Draw, size: Size, _: int) -> Tensors:
    """Queries are large, as everywhere here; norms take out what a layer adds to its size."""
    hidden = size.hidden
    made = {
        "attention.self.query": draw.matrix(hidden, hidden, 3.0), "attention.self.key": draw.matrix(hidden, hidden),
        "attention.self.value": draw.matrix(hidden, hidden), "attention.output.dense": draw.matrix(hidden, hidden),
        "intermediate.dense": draw.matrix(size.inner, hidden), "output.dense": draw.matrix(hidden, size.inner),
    }  # fmt: skip
    made |= {f"{name}.bias": draw.full(len(tensor), 0) for name, tensor in made.items()}
    return made | _layer_norm(draw, size, "attention.output") | _layer_norm(draw, size, "output")


def _bert_rest(draw: Draw, size: Size) -> Tensors:
    rows = {"word": VOCABULARY, "position": 2048, "token_type": 2}
    made = {f"embeddings.{name}_embeddings": draw.normal(count, size.hidden) for name, count in rows.items()}
    return made | _layer_norm(draw, size, "embeddings")


def _layer_norm(draw: Draw, size: Size, owner: str) -> Tensors:
    return {f"{owner}.LayerNorm": draw.full(size.hidden), f"{owner}.LayerNorm.bias": draw.full(size.hidden, 0)}


# DeepSeek-V2: latent attention, dense layers

NOPE, ROPE, VDIM, LORA = 128, 64, 128, 512


def _deepseek(size: Size) -> dict[str, Any]:
    return dict(
        architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", num_attention_heads=HEADS,
        num_key_value_heads=HEADS, q_lora_rank=None, kv_lora_rank=LORA, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE,
        v_head_dim=VDIM,
        # No layer is one of experts; the engines ask for these figures all the same
        first_k_dense_replace=size.layers, moe_layer_freq=1, moe_intermediate_size=256, n_routed_experts=8, n_shared_experts=1,
        num_experts_per_tok=2, n_group=1, topk_group=1, topk_method="greedy", scoring_func="softmax", norm_topk_prob=False,
        routed_scaling_factor=1.0,
    )  # fmt: skip


def _deepseek_layer(draw: Draw, size: Size, _: int) -> Tensors:
    hidden = size.hidden
    return {
        "self_attn.q_proj": draw.matrix(HEADS * (NOPE + ROPE), hidden, 3.0),
        "self_attn.kv_a_proj_with_mqa": draw.matrix(LORA + ROPE, hidden), "self_attn.kv_a_layernorm": draw.full(LORA),
        "self_attn.kv_b_proj": draw.matrix(HEADS * (NOPE + VDIM), LORA),
        "self_attn.o_proj": draw.matrix(hidden, HEADS * VDIM),
    } | below("mlp", draw.mlp(hidden, size.inner)) | _norms(draw, size)  # fmt: skip


# Gemma 2: every other layer has a short window; scores are capped

GEMMA_HEADS, GEMMA_KV_HEADS, GEMMA_HEAD = 8, 4, 128
WINDOW = 512  # tokens that a window layer attends to, the newest included; layers 0, 2, … are window layers
SCORES, LOGITS = 50.0, 30.0  # caps of attention scores and of the last logits


def _gemma(_: Size, repeats: bool = False) -> dict[str, Any]:
    return dict(
        architectures=["Gemma2ForCausalLM"], model_type="gemma2", num_attention_heads=GEMMA_HEADS,
        num_key_value_heads=GEMMA_KV_HEADS, head_dim=GEMMA_HEAD, query_pre_attn_scalar=GEMMA_HEAD, sliding_window=WINDOW,
        attn_logit_softcapping=SCORES, final_logit_softcapping=LOGITS, hidden_act="gelu_pytorch_tanh",
        hidden_activation="gelu_pytorch_tanh", max_position_embeddings=16384, tie_word_embeddings=True,
    )  # fmt: skip


def _gemma_layer(draw: Draw, size: Size, _: int, repeats: bool = False) -> Tensors:
    norms = "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
    made = below("self_attn", draw.attention(size.hidden, GEMMA_HEADS, GEMMA_KV_HEADS, GEMMA_HEAD))
    # A norm of Gemma's multiplies by 1 + its weight
    return made | below("mlp", draw.mlp(size.hidden, size.inner)) | {name: draw.full(size.hidden, 0) for name in norms}


def _gemma_rest(draw: Draw, size: Size, repeats: bool = False) -> Tensors:
    """The output layer is the embedding, so that such a model `repeats` its last token; else the embedding counts little beside
    what the layers add, and the most probable token is one that attention chose."""
    embedding, last = (1.5, 0.0) if repeats else (0.15, 9.0)
    embeddings = draw.matrix(VOCABULARY, size.hidden, embedding)
    return {"model.embed_tokens": embeddings, "model.norm": draw.full(size.hidden, last)}


# Qwen3-Next: three layers of Gated DeltaNet and one of attention; an MTP head

QWEN_HEADS, QWEN_KV_HEADS, QWEN_HEAD = 8, 2, 128
_KEYS, _VALUES, _STATE, _CONV = 2, 4, 128, 4  # heads of the recurrent layers, the size of each, and their convolution's length
_MIXED = 2 * _KEYS * _STATE + _VALUES * _STATE
_NEXT_EXPERTS, _NEXT_EXPERT = 2, 256


def _qwen(size: Size, sparse: bool = False) -> dict[str, Any]:
    """The first layer and that of the MTP head, both of the index 0, have experts, since vLLM takes neither without; all
    are chosen for each token, so that rounding never chooses others. sparse: all layers have some, as sglang takes it."""
    return dict(
        architectures=["Qwen3NextForCausalLM"], model_type="qwen3_next", num_attention_heads=QWEN_HEADS,
        num_key_value_heads=QWEN_KV_HEADS, head_dim=QWEN_HEAD, partial_rotary_factor=0.25,
        layer_types=["full_attention" if at % 4 == 3 else "linear_attention" for at in range(size.layers)],
        linear_num_key_heads=_KEYS, linear_num_value_heads=_VALUES, linear_key_head_dim=_STATE, linear_value_head_dim=_STATE,
        linear_conv_kernel_dim=_CONV, full_attention_interval=4, decoder_sparse_step=1,
        mlp_only_layers=[] if sparse else list(range(1, size.layers)),
        num_experts=_NEXT_EXPERTS, num_experts_per_tok=_NEXT_EXPERTS, norm_topk_prob=True, moe_intermediate_size=_NEXT_EXPERT,
        shared_expert_intermediate_size=_NEXT_EXPERT, num_nextn_predict_layers=1,
    )  # fmt: skip


def _delta_net(draw: Draw, hidden: int, **rows: int) -> Tensors:
    """A recurrent layer whose projections have so many rows."""
    return below("linear_attn", {
        **{name: draw.matrix(count, hidden) for name, count in rows.items()},
        "conv1d": draw.normal(_MIXED, 1, _CONV) * 0.5, "norm": draw.full(_STATE),
        "out_proj": draw.matrix(hidden, _VALUES * _STATE),
        # A token's decay is exp(-exp(A_log) * softplus(what it projects to + dt_bias))
        "A_log": draw.torch.linspace(-8, -4, _VALUES).bfloat16(), "dt_bias": draw.full(_VALUES, 0),
    })  # fmt: skip


def _qwen_layer(draw: Draw, size: Size, at: int, full: bool = False, sparse: bool = False) -> Tensors:
    """States keep what they hold for hundreds to thousands of tokens, so that an answer depends on all of a prompt's last turn;
    attention looks at few tokens, so that it depends on each of their keys."""
    hidden = size.hidden
    made = {"input_layernorm": draw.full(hidden, 0), "post_attention_layernorm": draw.full(hidden, 0)}
    if full or at % 4 == 3:
        made |= below("self_attn", draw.attention(hidden, QWEN_HEADS, QWEN_KV_HEADS, QWEN_HEAD, gated=True, out=2.0))
        made |= {"self_attn.q_norm": draw.full(QWEN_HEAD, 2), "self_attn.k_norm": draw.full(QWEN_HEAD, 0)}
    else:
        made |= _delta_net(draw, hidden, in_proj_qkvz=_MIXED + _VALUES * _STATE, in_proj_ba=2 * _VALUES)
    if at and not sparse:
        return made | below("mlp", draw.mlp(hidden, size.inner))
    for n in range(_NEXT_EXPERTS):
        made |= below(f"mlp.experts.{n}", draw.mlp(hidden, _NEXT_EXPERT))
    made |= below("mlp.shared_expert", draw.mlp(hidden, _NEXT_EXPERT))
    return made | {"mlp.gate": draw.matrix(_NEXT_EXPERTS, hidden), "mlp.shared_expert_gate": draw.matrix(1, hidden)}


def _qwen_rest(draw: Draw, size: Size, **_: Any) -> Tensors:
    hidden = size.hidden
    made = _embedded(draw, size, gain=3.0) | {"model.norm": draw.full(hidden, 0), "mtp.fc": draw.matrix(hidden, 2 * hidden)}
    made |= {f"mtp.{name}": draw.full(hidden, 0) for name in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding")}
    return made | below("mtp.layers.0", _qwen_layer(draw, size, 0, full=True))


# Qwen3.5: the same without experts, and images

#: Lanes of a head that turn by time, by height and by width
SECTION = [6, 5, 5]
_END = "<|endoftext|>"
_SPECIAL = {"<|vision_start|>": VISION_START, "<|image_pad|>": IMAGE, "<|vision_end|>": VISION_END, "<|video_pad|>": 8195,
            _END: 8196}  # fmt: skip
_EYE, _EYE_HEADS, _EYE_LAYERS, _PLACES = 256, 4, 2, 48**2
_QWEN35 = "model.language_model"


def _qwen35(size: Size) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": BASE["rope_theta"], "partial_rotary_factor": 0.25,
            "mrope_section": SECTION, "mrope_interleaved": True}  # fmt: skip
    shared = ("num_attention_heads", "num_key_value_heads", "head_dim", "partial_rotary_factor", "layer_types")
    next_ = _qwen(size)
    text = BASE | _sizes(size) | {name: next_[name] for name in next_ if name in shared or name.startswith("linear_")} | dict(
        model_type="qwen3_5_text", vocab_size=VOCABULARY + 64, full_attention_interval=4, attn_output_gate=True,
        rope_parameters=rope,
    )  # fmt: skip
    eye = dict(
        model_type="qwen3_5", depth=_EYE_LAYERS, hidden_size=_EYE, intermediate_size=2 * _EYE, num_heads=_EYE_HEADS,
        in_channels=PATCH[0], temporal_patch_size=PATCH[1], patch_size=PATCH[2], spatial_merge_size=MERGED,
        out_hidden_size=size.hidden, num_position_embeddings=_PLACES, hidden_act="gelu_pytorch_tanh",
        deepstack_visual_indexes=[],
    )  # fmt: skip
    ids = {"image_token_id": IMAGE, "video_token_id": _SPECIAL["<|video_pad|>"], "vision_start_token_id": VISION_START,
           "vision_end_token_id": VISION_END}  # fmt: skip
    return dict(
        architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5", torch_dtype="bfloat16",
        tie_word_embeddings=False, text_config=text, vision_config=eye, **ids,
    )  # fmt: skip


def _qwen35_layer(draw: Draw, size: Size, at: int) -> Tensors:
    if at % 4 == 3:
        return _qwen_layer(draw, size, at)
    made = {"input_layernorm": draw.full(size.hidden, 0), "post_attention_layernorm": draw.full(size.hidden, 0)}
    made |= _delta_net(draw, size.hidden, in_proj_qkv=_MIXED, in_proj_z=_VALUES * _STATE, in_proj_b=_VALUES, in_proj_a=_VALUES)
    return made | below("mlp", draw.mlp(size.hidden, size.inner))


def _qwen35_rest(draw: Draw, size: Size) -> Tensors:
    hidden, merged = size.hidden, MERGED**2 * _EYE
    made = {
        f"{_QWEN35}.embed_tokens": draw.normal(VOCABULARY + 64, hidden), f"{_QWEN35}.norm": draw.full(hidden, 0),
        "lm_head": draw.matrix(VOCABULARY + 64, hidden, 3.0),
    }  # fmt: skip

    def linear(name: str, rows: int, columns: int, gain: float = 1.0) -> Tensors:
        return {name: draw.matrix(rows, columns, gain), f"{name}.bias": draw.full(rows, 0)}

    def norm(name: str) -> Tensors:
        return {name: draw.full(_EYE), f"{name}.bias": draw.full(_EYE, 0)}

    eye = linear("patch_embed.proj", _EYE, math.prod(PATCH)) | {"pos_embed": draw.normal(_PLACES, _EYE)}
    eye["patch_embed.proj"] = eye["patch_embed.proj"].view(_EYE, *PATCH)
    for at in range(_EYE_LAYERS):
        eye |= below(f"blocks.{at}", (
            norm("norm1") | norm("norm2") | linear("attn.qkv", 3 * _EYE, _EYE) | linear("attn.proj", _EYE, _EYE)
            | linear("mlp.linear_fc1", 2 * _EYE, _EYE) | linear("mlp.linear_fc2", _EYE, 2 * _EYE)
        ))  # fmt: skip
    eye |= below("merger", (
        norm("norm") | linear("linear_fc1", merged, merged) | linear("linear_fc2", hidden, merged, 2.0)
    ))  # fmt: skip
    return made | below("model.visual", eye)


def _qwen35_beside() -> dict[str, Any]:
    """What a server wants of a processor at its start: a tokenizer, and what images and videos are made to."""
    sizes = {"patch_size": PATCH[2], "temporal_patch_size": PATCH[1], "merge_size": MERGED,
             "size": {"shortest_edge": 1024, "longest_edge": 1 << 20}, "processor_class": "Qwen3VLProcessor"}  # fmt: skip
    return _tokenizer(_SPECIAL, processor_class="Qwen3VLProcessor", eos_token=_END, pad_token=_END) | {
        "preprocessor_config.json": sizes | {"image_processor_type": "Qwen2VLImageProcessorFast"},
        "video_preprocessor_config.json": sizes | {"video_processor_type": "Qwen3VLVideoProcessor"},
    }  # fmt: skip


# NemotronH: layers of Mamba2, of an MLP and of attention; an MTP head

PATTERN = "M-M*M-M*"
_MAMBA_HEADS, _MAMBA_HEAD, _GROUPS = 16, 64, 8
CHUNK = 128  # tokens that a kernel of the recurrent layers computes at once


def _nemotron(size: Size) -> dict[str, Any]:
    return dict(
        architectures=["NemotronHForCausalLM"], model_type="nemotron_h",
        hybrid_override_pattern=PATTERN * (size.layers // len(PATTERN)), num_attention_heads=QWEN_HEADS,
        num_key_value_heads=QWEN_KV_HEADS, head_dim=QWEN_HEAD, mlp_hidden_act="relu2", mlp_bias=False, use_bias=False,
        layer_norm_epsilon=1e-5, rms_norm_eps=1e-5, mamba_num_heads=_MAMBA_HEADS, mamba_head_dim=_MAMBA_HEAD,
        ssm_state_size=_STATE, n_groups=_GROUPS, conv_kernel=_CONV, chunk_size=CHUNK, expand=2, use_conv_bias=True,
        mamba_hidden_act="silu", mamba_proj_bias=False, num_nextn_predict_layers=1, mtp_hybrid_override_pattern="*",
    )  # fmt: skip


def _mamba2(draw: Draw, hidden: int) -> Tensors:
    inner = _MAMBA_HEADS * _MAMBA_HEAD
    mixed = inner + 2 * _GROUPS * _STATE
    return {
        "in_proj": draw.matrix(inner + mixed + _MAMBA_HEADS, hidden), "conv1d": draw.normal(mixed, 1, _CONV) * 0.5,
        "conv1d.bias": draw.full(mixed, 0), "norm": draw.full(inner), "out_proj": draw.matrix(hidden, inner),
        # A token's decay is exp(-exp(A_log) * softplus(what it projects to + dt_bias))
        "A_log": draw.torch.linspace(math.log(0.02), math.log(0.5), _MAMBA_HEADS).bfloat16(),
        "dt_bias": draw.full(_MAMBA_HEADS, math.log(math.expm1(0.05))), "D": draw.full(_MAMBA_HEADS, 0.1),
    }  # fmt: skip


def _nemotron_layer(draw: Draw, size: Size, at: int) -> Tensors:
    """A state forgets within 40 to 1000 tokens, so that an answer depends on all of a prompt's last turn."""
    hidden, kind = size.hidden, PATTERN[at % len(PATTERN)]
    if kind == "*":
        made = draw.attention(hidden, QWEN_HEADS, QWEN_KV_HEADS, QWEN_HEAD, out=2.0)
    elif kind == "-":
        made = {"up_proj": draw.matrix(size.inner, hidden), "down_proj": draw.matrix(hidden, size.inner)}
    else:
        made = _mamba2(draw, hidden)
    return below("mixer", made) | {"norm": draw.full(hidden)}


def _nemotron_rest(draw: Draw, size: Size) -> Tensors:
    hidden = size.hidden
    made = {"backbone.embeddings": draw.normal(VOCABULARY, hidden), "backbone.norm_f": draw.full(hidden),
            "lm_head": draw.matrix(VOCABULARY, hidden, 3.0)}  # fmt: skip
    head = below("mixer", draw.attention(hidden, QWEN_HEADS, QWEN_KV_HEADS, QWEN_HEAD, out=2.0))
    head |= {"eh_proj": draw.matrix(hidden, 2 * hidden)}
    head |= {name: draw.full(hidden) for name in ("norm", "enorm", "hnorm", "final_layernorm")}
    return made | below("mtp.layers.0", head)


# Falcon-H1: attention and Mamba2 side by side in each layer


def _falcon(size: Size) -> dict[str, Any]:
    return dict(
        architectures=["FalconH1ForCausalLM"], model_type="falcon_h1", num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        head_dim=HEAD, mlp_bias=False, projectors_bias=False, mamba_d_ssm=_MAMBA_HEADS * _MAMBA_HEAD,
        mamba_n_heads=_MAMBA_HEADS, mamba_d_head=_MAMBA_HEAD, mamba_d_state=_STATE, mamba_n_groups=_GROUPS, mamba_d_conv=_CONV,
        mamba_chunk_size=CHUNK, mamba_expand=2, mamba_conv_bias=True, mamba_proj_bias=False, mamba_rms_norm=True,
    )  # fmt: skip


def _falcon_layer(draw: Draw, size: Size, _: int) -> Tensors:
    attention = draw.attention(size.hidden, HEADS, KV_HEADS, HEAD)
    made = below("self_attn", attention) | below("mamba", _mamba2(draw, size.hidden))
    made |= below("feed_forward", draw.mlp(size.hidden, size.inner))
    return made | {"input_layernorm": draw.full(size.hidden), "pre_ff_layernorm": draw.full(size.hidden)}


def _falcon_rest(draw: Draw, size: Size) -> Tensors:
    made = _embedded(draw, size)
    return made | {"model.final_layernorm": made.pop("model.norm")}


_HYBRID = Size(layers=8, hidden=512, inner=1024, drawn=8)
FAMILIES = {
    "falcon-h1": Family(_falcon, _falcon_layer, _falcon_rest),
    "llama": Family(_llama, _llama_layer, _embedded, beside=lambda: _tokenizer({})),
    "granite": Family(_granite, _llama_layer, _embedded),
    "bert": Family(_bert, _bert_layer, _bert_rest, "encoder.layer"),
    "qwen3-moe": Family(_qwen3_moe, _qwen3_moe_layer, _embedded, seed=26),
    "deepseek": Family(_deepseek, _deepseek_layer, _embedded),
    "gemma": Family(_gemma, _gemma_layer, _gemma_rest, large=MEDIUM),
    # Drawn of the large one are the first layer, with its experts, and four more
    "qwen3-next": Family(_qwen, _qwen_layer, _qwen_rest, every=4, tiny=_HYBRID, large=Size(16, 4096, 11008, 5), seed=24),
    "qwen3.5": Family(
        _qwen35, _qwen35_layer, _qwen35_rest, f"{_QWEN35}.layers", every=4, tiny=_HYBRID, large=Size(16, 4096, 11008, 5),
        seed=35, beside=_qwen35_beside,
    ),
    "nemotron-h": Family(
        _nemotron, _nemotron_layer, _nemotron_rest, "backbone.layers", every=8, tiny=_HYBRID, large=Size(32, 4096, 22016, 8),
        seed=29,
    ),
}  # fmt: skip


# Quantization

#: The quotients of a calibrated FP8 cache: about the largest key and value over the largest number that FP8 holds
SCALES = {"k": 0.011, "v": 0.012}
#: Where AWQ packs eight 4-bit values into a word: value j lies at bit 4 * AWQ_ORDER[j]
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
GROUP = 128  # rows of an AWQ weight that share scale and zero point
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}


def _calibration(tensors: Tensors, layers: int, query: float | None) -> tuple[dict[str, Any], Tensors]:
    """A quantization_config that leaves all projections as they are, and the scales."""
    import torch

    left = [name.removesuffix(".weight") for name in tensors if "_proj" in name]
    made = Tensors()
    for at in range(layers):
        made |= {f"model.layers.{at}.self_attn.{part}_proj.{part}_scale": torch.tensor(by) for part, by in SCALES.items()}
        made |= {f"model.layers.{at}.self_attn.q_scale": torch.tensor(query)} if query is not None else {}
    about = {"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": left, "kv_cache_scheme": "static"}
    return about, made


def quantized(tensors: Tensors) -> Tensors:
    """A checkpoint with every projection in AWQ's format: qweight, qzeros and scales instead of weight."""
    made = Tensors()
    for name, tensor in tensors.items():
        projection = "_proj" in name
        made |= {name.replace("weight", part): one for part, one in awq(tensor).items()} if projection else {name: tensor}
    return made


def awq(weight: Any, group: int = GROUP) -> Tensors:
    """A weight [out, in] rounded to 4 bits: qweight int32 [in, out / 8], qzeros int32 [groups, out / 8], scales float16
    [groups, out]; value (q - zero) * scale."""
    import torch

    grouped = weight.t().float().reshape(-1, group, weight.shape[0])
    low, high = grouped.amin(1).clamp(max=0), grouped.amax(1).clamp(min=0)
    scales = ((high - low) / 15).half()
    zeros = (-low / scales.float()).round().clamp(0, 15)
    values = (grouped / scales.float()[:, None] + zeros[:, None]).round().clamp(0, 15)
    shifts = 4 * torch.tensor(AWQ_ORDER)

    def packed(x: Any) -> Any:
        words = (x.long().unflatten(-1, (-1, 8)) << shifts).sum(-1)
        return torch.where(words < 2**31, words, words - 2**32).int()

    return {"qweight": packed(values.flatten(0, 1)), "qzeros": packed(zeros), "scales": scales}


# The Gemma in float64


def exact(folder: Path, prompts: list[list[int]], device: str = "cuda", last: int = 1) -> list[Any]:
    """Log-probabilities of the tokens after each of the `last` tokens of each prompt, float64 [last, VOCABULARY], on the
    host, of the Gemma in `folder`: its weights, and every operation in float64."""
    import torch
    from safetensors.torch import load_file

    tensors = {name: one.to(device, torch.float64) for name, one in load_file(folder / "model.safetensors").items()}
    layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    return [torch.log_softmax(_logits(tensors, prompt, layers, device, last), -1).cpu() for prompt in prompts]


def _logits(tensors: Tensors, prompt: list[int], layers: int, device: str, last: int) -> Any:
    """[last, VOCABULARY]"""
    import torch
    import torch.nn.functional as F

    count, at = len(prompt), torch.arange(len(prompt), device=device)
    back = at[:, None] - at[None]  # how far a key lies behind the query
    embeddings = tensors["model.embed_tokens.weight"]
    x = embeddings[torch.tensor(prompt, device=device)] * torch.tensor(embeddings.shape[1] ** 0.5).bfloat16().double()

    def normed(x: Any, name: str) -> Any:
        return x * (x.square().mean(-1, keepdim=True) + BASE["rms_norm_eps"]).rsqrt() * (1 + tensors[f"{name}.weight"])

    for number in range(layers):
        layer = f"model.layers.{number}"
        part = lambda x, name: x @ tensors[f"{layer}.{name}.weight"].t()  # noqa: B023, E731
        y = normed(x, f"{layer}.input_layernorm")
        shared = GEMMA_HEADS // GEMMA_KV_HEADS
        q, k, v = (
            part(y, f"self_attn.{name}_proj").view(count, -1, GEMMA_HEAD).transpose(0, 1).repeat_interleave(repeat, 0)
            for name, repeat in (("q", 1), ("k", shared), ("v", shared))
        )
        scores = _rotated(q, at) @ _rotated(k, at).transpose(1, 2) * GEMMA_HEAD**-0.5
        seen = (back >= 0) & (back < (WINDOW if number % 2 == 0 else count))
        out = (SCORES * torch.tanh(scores / SCORES)).masked_fill(~seen, -torch.inf).softmax(-1) @ v
        x = x + normed(part(out.transpose(0, 1).reshape(count, -1), "self_attn.o_proj"), f"{layer}.post_attention_layernorm")
        y = normed(x, f"{layer}.pre_feedforward_layernorm")
        y = F.gelu(part(y, "mlp.gate_proj"), approximate="tanh") * part(y, "mlp.up_proj")
        x = x + normed(part(y, "mlp.down_proj"), f"{layer}.post_feedforward_layernorm")
    return LOGITS * torch.tanh(normed(x[-last:], "model.norm") @ embeddings.t() / LOGITS)


def _rotated(x: Any, positions: Any) -> Any:
    """Rotary embedding of [heads, tokens, head]: the two halves of a head are the two parts of each pair."""
    import torch

    half = torch.arange(0, GEMMA_HEAD, 2, device=x.device, dtype=torch.float64)
    angles = positions[:, None] * BASE["rope_theta"] ** (-half / GEMMA_HEAD)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


# The Qwen3.5 in float32


def in_float32(folder: Path, prompts: list[list[int]], device: str = "cuda") -> list[Any]:
    """Log-probabilities of the token after each prompt, float32 [vocabulary], on the host, of transformers' own model."""
    import torch
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").to(device)

    def last(prompt: list[int]) -> Any:
        ids = torch.tensor([prompt], device=device)
        shown = {name: one.to(device) for name, one in (images(prompt) or {}).items()}
        kinds = {"mm_token_type_ids": (ids == IMAGE).int()} if shown else {}
        return model(input_ids=ids, **shown, **kinds).logits[0, -1].float().log_softmax(-1).cpu()

    with torch.no_grad():
        return [last(prompt) for prompt in prompts]
