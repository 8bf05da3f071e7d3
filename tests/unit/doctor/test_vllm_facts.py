"""Facts of vLLM that several fixes ask for, in each direction: what decides them, and what leaves them open."""

from __future__ import annotations

import shlex

import pytest
from packaging.version import Version

from attnfix.compat.doctor import diagnosis, gpus
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.doctor.vllm import FACTS

ON, OFF, OPEN = ("on",), ("off",), ("on", "off")
NEXT = {"architectures": ["Qwen3NextForCausalLM"], "layer_types": ["linear_attention", "full_attention"], "num_experts": 8}
NEMOTRON = {"architectures": ["NemotronHForCausalLM"], "mamba_num_heads": 128}
GRANITE = {"architectures": ["GraniteMoeHybridForCausalLM"], "layer_types": ["mamba", "attention"]}
JAMBA = {"architectures": ["JambaForCausalLM"], "mamba_d_state": 16}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 32768, "use_sliding_window": False}
MISTRAL = {"architectures": ["MistralForCausalLM"], "sliding_window": 4096}
R1 = {"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512, "n_routed_experts": 256}


def values(name, launch="", release="0.27.0", config=None, gpu="h100"):
    line = read(shlex.split(f"vllm serve m {launch}")) if launch is not None else None
    return FACTS[name](Deployment("vllm", Version(release) if release else None, config, gpus.named(gpu), line)).values


@pytest.mark.parametrize(
    "release, config, launch, runner",
    [
        ("0.21.0", None, "", ("V1",)), ("0.28.0", None, "", ()), ("0.29.0", None, "", ("V2",)), ("0.34.0", LLAMA, "", ()),
        ("0.22.0", LLAMA, "", ("V1",)), ("0.23.0", LLAMA, "", ("V2",)), ("0.24.0", {**LLAMA, "num_experts": 8}, "", ("V2",)),
        ("0.23.0", LLAMA, "--quantization fp8", ("V1", "V2")), ("0.24.0", QWEN2, "", ("V1",)), ("0.25.0", QWEN2, "", ("V2",)),
        ("0.28.0", R1, "", ("V1",)), ("0.29.0", R1, "", ("V2",)), ("0.28.0", NEXT, "", ("V1",)), ("0.29.0", NEXT, "", ("V2",)),
        ("0.33.0", NEXT, "-sc.method=suffix", ("V1",)), ("0.32.0", NEXT, "-sc.method=medusa", ("V1",)),
        ("0.33.0", NEXT, "-sc.method=medusa", ("V2",)), ("0.33.0", NEXT, "--enable-dbo", ("V1",)),
        ("0.33.0", NEXT, "--unheard-of x", ("V2", "V1")), ("0.33.0", NEXT, "--config a.yaml", ()),
        ("0.28.0", NEXT, "-sc.method=dspark", ("V2",)), ("0.28.0", NEXT, "-sc.model=x", ("V1", "V2")),
        ("0.30.0", NEXT, "--mamba-cache-mode all", ("V2", "V1")), ("0.33.0", NEXT, "--mamba-cache-mode all", ("V2",)),
    ],
)  # fmt: skip
def test_model_runner(release, config, launch, runner):
    assert values("model runner", launch, release, config) == runner


@pytest.mark.parametrize(
    "config, mamba2, window",
    [
        (NEXT, OFF, OFF), (NEMOTRON, ON, OFF), (GRANITE, ON, OFF), (JAMBA, OFF, OFF), (LLAMA, OFF, OFF), (QWEN2, OFF, OFF),
        (MISTRAL, OFF, ON), ({"model_type": "gpt_oss"}, OFF, ON), ({"sliding_window": [None, 128]}, OFF, ON),
        ({**MISTRAL, "layer_types": ["full_attention"]}, OFF, OFF), ({"layer_types": ["sliding_attention"]}, OFF, ON),
        ({**GRANITE, "layer_types": ["attention"]}, OFF, OFF), ({"text_config": NEMOTRON}, ON, OFF),
        ({"llm_config": {"hybrid_override_pattern": "M*-"}}, ON, OFF), ({"layers_block_type": ["mamba2"]}, ON, OFF),
        (None, (), ()),
    ],
)  # fmt: skip
def test_layers(config, mamba2, window):
    assert values("Mamba2 layers", config=config) == mamba2
    assert values("sliding-window layers", config=config) == window


def test_a_window_that_is_switched_off():
    assert values("sliding-window layers", "--disable-sliding-window", config=MISTRAL) == OFF
    assert values("sliding-window layers", "--config a.yaml", config=MISTRAL) == ()
    assert values("sliding-window layers", None, config=MISTRAL) == ON


def test_ranks_and_connectors():
    assert values("data parallel ranks") == (1,) and values("data parallel ranks", "-dp 4") == (4,)
    assert values("data parallel ranks", "--config a.yaml") == ()
    assert values("KV connector") == OFF and values("KV connector", "--kv-offloading-size 8") == ON
    for value in ("""'{"kv_connector": "NixlConnector"}'""", "'{'"):
        assert values("KV connector", f"--kv-transfer-config {value}") == ON
    assert values("KV connector", "--config a.yaml") == ()


@pytest.mark.parametrize(
    "release, launch, answer",
    [
        ("0.13.0", "", OFF), ("0.13.0", "--async-scheduling", ON), ("0.14.0", "", ON), ("0.14.0", "--no-async-scheduling", OFF),
        ("0.14.0", "-pp 2", OFF), ("0.15.0", "-pp 2", ON), ("0.33.0", "-pp 2", ON), ("0.28.0", "-sc.method=mtp", ON),
        ("0.28.0", "-sc.method=ngram", OFF), ("0.33.0", "-sc.method=ngram", ON), ("0.33.0", "-sc.method=suffix", OFF),
        ("0.28.0", "-sc.model=x", OPEN), ("0.28.0", "--distributed-executor-backend ray", OPEN),
        ("0.28.0", "--config a.yaml", ()),
        ("0.16.0", "--enable-prefix-caching", OFF), ("0.16.0", "", ON), ("0.17.0", "--enable-prefix-caching", ON),
        ("0.28.0", "--runner pooling", OPEN), ("0.34.0", "", ()), (None, "", ()),
    ],
)  # fmt: skip
def test_async_scheduling(release, launch, answer):
    assert values("async scheduling", launch, release, NEXT) == answer


@pytest.mark.parametrize(
    "release, launch, answer",
    [
        ("0.27.1", "", OFF), ("0.28.0", "", ON), ("0.28.0", "--no-enable-prefix-caching", OFF), (None, "", ()),
        ("0.26.0", "--enable-prefix-caching", ON), ("0.11.0", "--enable-prefix-caching", OFF),
        ("0.14.1", "--enable-prefix-caching", OFF), ("0.15.0", "--enable-prefix-caching", ON),
    ],
)  # fmt: skip
def test_cached_prefixes_of_a_hybrid_model(release, launch, answer):
    assert values("cached prefixes of a hybrid model", launch, release, NEXT) == answer


DENSE = {**LLAMA, "head_dim": 128}


@pytest.mark.parametrize(
    "config, launch, release, gpu, backend",
    [
        (DENSE, "", "0.33.0", "h100", ("FLASH_ATTN",)), (DENSE, "", "0.19.1", "a100", ("FLASH_ATTN",)),
        (DENSE, "", "0.33.0", "b200", ()), (DENSE, "", "0.33.0", "mi300x", ()), (DENSE, "", "0.34.0", "h100", ()),
        (DENSE, "--kv-cache-dtype fp8", "0.33.0", "h100", ("FLASH_ATTN",)),
        (DENSE, "--kv-cache-dtype fp8", "0.33.0", "a100", ()),
        ({**DENSE, "model_type": "gpt_oss"}, "", "0.33.0", "h100", ("FLASH_ATTN",)),
        ({**DENSE, "model_type": "gpt_oss"}, "", "0.33.0", "a100", ()), ({**DENSE, "head_dim": 80}, "", "0.33.0", "h100", ()),
        ({**DENSE, "global_head_dim": 512}, "", "0.33.0", "h100", ()), ({"text_config": DENSE}, "", "0.33.0", "h100", ()),
        (DENSE, "--dtype float32", "0.33.0", "h100", ()), (DENSE, "--config a.yaml", "0.33.0", "h100", ()),
        (DENSE, "-ac.flash_attn_version=2", "0.33.0", "h100", ()), (None, "", "0.33.0", "h100", ()),
    ],
)  # fmt: skip
def test_the_backend_that_is_tried_first(config, launch, release, gpu, backend):
    assert values("attention backend", launch, release, config, gpu) == backend


WINDOW = "sliding-window layers"
SCHEME = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"type": "float"}}


@pytest.mark.parametrize(
    "name, config, overrides, found",
    [
        (WINDOW, LLAMA, """ '{"sliding_window": 4096}'""", ON), (WINDOW, LLAMA, ".sliding_window 8", ON),
        (WINDOW, MISTRAL, """='{"sliding_window": null}'""", OFF), (WINDOW, MISTRAL, " {}", ON),
        (WINDOW, {"text_config": LLAMA}, ".text_config.sliding_window 8", ON),
        (WINDOW, {"text_config": LLAMA}, """ '{"text_config": {"sliding_window": 8}}'""", ON),
        (WINDOW, {"text_config": MISTRAL}, """ '{"text_config": {"head_dim": 8}}'""", ON),
        (WINDOW, {"text_config": LLAMA}, ".sliding_window 8", OFF),
        (WINDOW, LLAMA, " '{sliding'", ()), (WINDOW, LLAMA, " $X", ()), (WINDOW, LLAMA, " '[8]'", ()),
        ("Mamba2 layers", LLAMA, ".architectures+ NemotronHForCausalLM", ON),
        ("KV cache scales", {"quantization_config": SCHEME}, """.quantization_config '{"quant_method": "fp8"}'""", ("others",)),
    ],
)  # fmt: skip
def test_overrides_are_written_over_config_json(name, config, overrides, found):
    assert values(name, f"--hf-overrides{overrides}", config=config) == found
    if "=" in overrides or overrides.startswith(" "):
        assert values(name, f"--hf_overrides{overrides}", config=config) == found


def test_a_config_json_that_is_not_here_is_told():
    line = read(["vllm", "serve", "m", "--hf-config-path", "elsewhere"])
    found = diagnosis.facts(Deployment("vllm", Version("0.27.0"), None, None, line), {})(WINDOW)
    assert found == ((), "needs the config.json of --hf-config-path, which is not on this machine")
    line = read(["vllm", "serve", "m", "--hf-overrides", "{what"])
    found = diagnosis.facts(Deployment("vllm", Version("0.27.0"), LLAMA, None, line), {})(WINDOW)
    assert found == ((), "--hf-overrides changes config.json, and its JSON cannot be read")


LATENT = {**R1, "model_type": "deepseek_v3", "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}


@pytest.mark.parametrize(
    "config, launch, release, gpu, backend",
    [
        (LATENT, "", "0.33.0", "h100", ("FLASH_ATTN_MLA",)), (LATENT, "-dcp 8", "0.19.0", "h200", ("FLASH_ATTN_MLA",)),
        (LATENT, "--kv-cache-dtype fp8", "0.25.1", "h100", ("FLASHMLA",)), (LATENT, "", "0.25.1", "b200", ("FLASHINFER_MLA",)),
        (LATENT, "", "0.22.1", "a100", ("TRITON_MLA",)), (LATENT, "", "0.18.0", "h100", ()), (LATENT, "", "0.34.0", "h100", ()),
        (LATENT, "--block-size 64", "0.33.0", "h100", ()), (LATENT, "--kv-cache-dtype fp8_ds_mla", "0.33.0", "h100", ()),
        ({**LATENT, "v_head_dim": 256}, "", "0.33.0", "h100", ()), ({**LATENT, "index_topk": 2048}, "", "0.33.0", "h100", ()),
        (LATENT, "", "0.33.0", "mi300x", ()), (LATENT, "-ac.flash_attn_version=2", "0.33.0", "h100", ()),
    ],
)  # fmt: skip
def test_the_backend_of_mla(config, launch, release, gpu, backend):
    assert values("attention backend", launch, release, config, gpu) == backend


@pytest.mark.parametrize(
    "launch, release, gpu, graphs",
    [
        ("-sc.method=mtp --attention-backend FLASHINFER", "0.29.0", "h100", OFF),
        ("-sc.method=mtp --attention-backend FLASHINFER", "0.30.0", "h100", ON),
        ("-sc.method=mtp --attention-backend FLASHINFER", "0.33.0", "a100", OFF),
        ("-sc.method=mtp --attention-backend FLASHINFER", "0.28.0", "b200", ON),
        ("-sc.method=mtp --attention-backend FLASH_ATTN", "0.29.0", "h100", ON),
        ("--attention-backend FLASHINFER", "0.29.0", "h100", ON),
        ("--attention-backend FLASHINFER --config a.yaml", "0.29.0", "h100", ()),
    ],
)  # fmt: skip
def test_full_graphs_of_drafts(launch, release, gpu, graphs):
    assert values("full CUDA graphs", launch, release, NEXT, gpu) == graphs
