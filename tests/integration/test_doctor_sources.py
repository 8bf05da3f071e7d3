"""What doctor knows of the engines, held against them: names must stand in the source of real releases, and defaults are asked
of the engines' own functions, taken out of their modules and run with stand-ins for what they ask the machine.
"""

from __future__ import annotations

import ast
import copy
import re
import sys
from functools import cache
from pathlib import Path
from types import CodeType, SimpleNamespace

import pytest
from packaging.version import Version

from attnfix.compat.doctor import engine_options, gpus, sglang, vllm
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.engine_options import VARIABLES
from attnfix.compat.doctor.launch_command import Launch
from attnfix.compat.gate import ledger
from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import BY_ID
from attnfix.patches.vllm.dcp_empty_shard import facts as dcp_empty_shard
from attnfix.prove.warm import Warm
from scripts.flags import choices, generate

#: Releases whose parsers hold the options: the oldest ones, the last of a kind, the newest
PARSERS = {"sglang": ("0.5.1", "0.5.9", "0.5.13.post1", "0.5.23"), "vllm": ("0.10.2", "0.14.1", "0.25.1", "0.33.0")}
FILES = {
    "sglang": ("srt/server_args.py", "srt/arg_groups/fields/*.py", "srt/environ.py", "srt/utils.py", "srt/utils/common.py"),
    "vllm": ("engine/arg_utils.py", "entrypoints/**/cli_args.py", "envs.py", "utils/argparse_utils.py", "config/attention.py"),
}
#: The head sizes that the facts speak of
R1_DIMS = dict(zip(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), vllm.R1_DIMS))
GLM_DIMS = dict(zip(R1_DIMS, vllm.GLM_DIMS))


@cache
def package(engine: str, release: str) -> Path:
    return fetch.fetch(engine, release, progress=False) / engine


@cache
def text(engine: str, release: str, *patterns: str) -> str:
    root = package(engine, release)
    return "\n".join(path.read_text() for pattern in patterns for path in sorted(root.glob(pattern)))


@cache
def tree(engine: str, release: str, *patterns: str) -> ast.Module:
    return ast.parse(re.sub(r"^from __future__.*$", "", text(engine, release, *patterns), flags=re.M))


def known(engine: str) -> list[str]:
    return [release for release, _ in ledger.load(BY_ID[f"{engine}.lse-log-base"]).releases()]


def before(engine: str, release: str) -> str | None:
    names = known(engine)
    at = names.index(release)
    return names[at - 1] if at else None


def sources(engine: str) -> str:
    return "\n".join(text(engine, release, *FILES[engine]) for release in PARSERS[engine])


@pytest.fixture(scope="module")
def run():
    """Starts Python as a fork of one that has imported torch."""
    with Warm(sys.executable, generate.environment()) as parent:
        yield parent.run


@pytest.mark.parametrize("engine, release", [("sglang", "0.5.9"), ("vllm", "0.25.1")])
def test_the_table_of_a_release_is_as_its_own_parser(engine, release, run):
    live = generate.options(engine, release, run)
    assert len(live) > 250 and generate.options(engine, release, run) == live, "it is the same each time"
    ours = {frozenset(option.names): option for option in engine_options.options(engine, release)}
    for option in live:
        found = ours[frozenset(option["names"])]
        told = engine_options.default(engine, release, found.name), set(engine_options.choices(engine, release, found.name))
        assert (found.takes, told) == (str(option["takes"]), (option["default"], set(option["choices"]))), found.name
    assert {name for names in ours for name in names} - {name for option in live for name in option["names"]} <= {
        "--model-type"
    }


@pytest.mark.parametrize("engine, release", [("sglang", "0.5.9"), ("vllm", "0.25.1")])
def test_the_options_that_choices_read_are_as_the_source_says(engine, release):
    named = {name: option.name for option in engine_options.options(engine, release) for name in option.names}
    found = choices.choices(engine, package(engine, release), named)
    assert len(found) >= 2 and all(found.values())
    for choice, read in found.items():
        assert engine_options.read_by(engine, release, choice) == read.keys(), choice


@pytest.mark.parametrize("engine", VARIABLES)
def test_every_variable_stands_in_a_release(engine):
    source = sources(engine)
    for name in VARIABLES[engine]:
        assert re.search(rf"\b{name}\b", source), name
    patches = Path(dcp_empty_shard.__file__).parents[2]
    files = [Path(vllm.__file__).parent / f"{engine}.py", *patches.glob(f"{engine}/*/facts.py")]
    facts = "".join(path.read_text() for path in files)
    assert set(re.findall(r"\"((?:VLLM|SGLANG)_\w+)\"", facts)) == set(VARIABLES[engine]), "each that is asked for is listed"


def test_keys_of_attention_config_stand_in_a_release():
    source = sources("vllm")
    for key in (*vllm._VARIABLE, "mla_prefill_backend", "backend", "flash_attn_version"):
        assert re.search(rf"^    {key}: ", source, re.M), key


# Which models are MLA


def mla_of_sglang(release: str) -> set[str]:
    found = set()
    for node in ast.walk(tree("sglang", release, "srt/configs/model_config.py")):
        if isinstance(node, ast.If) and any("AttentionArch.MLA" in ast.unparse(line) for line in node.body):
            found |= {leaf.value for leaf in ast.walk(node.test) if isinstance(leaf, ast.Constant)}
    return found


def mla_of_vllm(release: str) -> set[str]:
    files = ("config.py", "config/model.py", "config/__init__.py", "transformers_utils/model_arch_config_convertor.py")
    for node in ast.walk(tree("vllm", release, *files)):
        if isinstance(node, ast.FunctionDef) and node.name == "is_deepseek_mla":
            names = {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)}
            if "deepseek_v2" in names:
                return names
    return set()


@pytest.mark.parametrize(
    "engine, name, first",
    [("sglang", *item) for item in sglang.MLA_SINCE.items()] + [("vllm", *item) for item in vllm.MLA_SINCE.items()],
)
def test_mla_since(engine, name, first):
    of = {"sglang": mla_of_sglang, "vllm": mla_of_vllm}[engine]
    assert name in of(first)
    if earlier := before(engine, first):
        assert name not in of(earlier)
    assert name in of(known(engine)[-1])


def trtllm_mla_by_default(release: str) -> set[str]:
    """The architectures to which the release gives trtllm_mla: by a test of model_arch, later by a decorator."""
    files = ("srt/server_args.py", "srt/arg_groups/overrides.py", "srt/arg_groups/model_overrides/deepseek_v2.py")
    for node in ast.walk(tree("sglang", release, *files)):
        body = "\n".join(map(ast.unparse, getattr(node, "body", []))) if isinstance(node, (ast.If, ast.FunctionDef)) else ""
        if isinstance(node, ast.If) and "model_arch" in ast.unparse(node.test) and "attention_backend = 'trtllm_mla'" in body:
            return {leaf.value for leaf in ast.walk(node.test) if isinstance(leaf, ast.Constant)}
        given = "overrides['attention_backend'] = 'trtllm_mla'" in body
        if isinstance(node, ast.FunctionDef) and given and node.decorator_list:
            return {leaf.value for leaf in ast.walk(node.decorator_list[0]) if isinstance(leaf, ast.Constant)}
    return set()


@pytest.mark.parametrize("architecture, first", sglang.TRTLLM_MLA_SINCE.items())
def test_trtllm_mla_since(architecture, first):
    assert architecture in trtllm_mla_by_default(first)
    assert architecture not in trtllm_mla_by_default(before("sglang", first))
    if known("sglang")[-1] == str(sglang.READ_UP_TO):
        assert architecture in trtllm_mla_by_default(known("sglang")[-1])


# The defaults, asked of the engines


class Machine(dict):
    """Globals of a function taken out of an engine: what is not given answers for the GPU of that capability, or says no."""

    def __init__(self, capability: int, **given):
        major = capability // 10
        hopper, sm100 = capability == 90, major == 10
        platform = SimpleNamespace(
            is_hopper_with_cuda_12_3=hopper, is_sm100=sm100, is_hip=False, has_flashinfer=True, is_out_of_tree=lambda: False
        )
        super().__init__(
            is_hopper_with_cuda_12_3=lambda: hopper, is_sm100_supported=lambda: sm100, is_blackwell=lambda: major in (10, 12),
            is_blackwell_supported=lambda: major in (10, 12), is_flashinfer_available=lambda: True, is_hip=lambda: False,
            is_npu=lambda: False, is_mps=lambda: False, is_page_size_one=lambda args: args.page_size in (None, 1),
            _is_hip=False, _is_npu=False, get_platform=lambda: platform, current_platform=platform, log_info_on_rank0=print,
            logger=SimpleNamespace(info=print, warning=print), resolved_view=lambda args: args,
            resolving_view=lambda args: args, _forces_eagle_topk_one=lambda algorithm: False, **given,
        )  # fmt: skip


def function(engine: str, release: str, name: str, files: tuple[str, ...], machine: Machine):
    """The function `name` of a release, compiled alone, with `machine` for its globals."""
    exec(compiled(engine, release, name, files), machine)
    return machine[name]


@cache
def compiled(engine: str, release: str, name: str, files: tuple[str, ...]) -> CodeType:
    for node in ast.walk(tree(engine, release, *files)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            node = copy.deepcopy(node)
            node.decorator_list, node.returns = [], None
            for argument in (*node.args.args, *node.args.kwonlyargs):
                argument.annotation = None
            node.body = [line for line in node.body if "import current_platform" not in ast.unparse(line)]
            for inner in ast.walk(node):
                if hasattr(inner, "body") and isinstance(inner.body, list):
                    inner.body = [line for line in inner.body if not isinstance(line, ast.ImportFrom)] or [ast.Pass()]
            return compile(ast.fix_missing_locations(ast.Module([node], [])), f"{engine} {release}", "exec")
    raise LookupError(f"{engine} {release} has no {name}")


def default_of_sglang(release: str, capability: int, architecture: str, mla: bool, topk: int | None, spec: str | None) -> str:
    """What the release's own code chooses where no backend is named. Up to 0.5.9 it is one `if` of a longer method."""
    config = SimpleNamespace(
        hf_config=SimpleNamespace(architectures=[architecture]), has_attention_sinks=False, has_asymmetric_kv=False
    )
    args = SimpleNamespace(
        attention_backend=None, prefill_attention_backend=None, decode_attention_backend=None, speculative_eagle_topk=topk,
        speculative_algorithm=spec, page_size=None, tp_size=8, model_config=config,
    )  # fmt: skip
    machine = Machine(capability)
    shared = ("srt/utils.py", "srt/utils/common.py")
    for helper in ("is_no_spec_infer_or_topk_one", "is_fa3_default_architecture"):
        if re.search(rf"^def {helper}\(", text("sglang", release, *shared), re.M):
            function("sglang", release, helper, shared, machine)
    if Version(release) >= Version("0.5.10"):
        name = "get_default_attn_backend" if Version(release) >= Version("0.5.19") else "_get_default_attn_backend"
        files = ("srt/server_args.py", "srt/arg_groups/model_override_base.py")
        return function("sglang", release, name, files, machine)(args, mla, config)
    # In the model runner up to 0.5.4, then among the server's arguments
    in_runner = Version(release) < Version("0.5.4.post1")
    runner = SimpleNamespace(model_config=config, use_mla_backend=mla)
    machine.update({"self": runner if in_runner else args, "server_args": args, "use_mla_backend": mla}, model_config=config)
    test = ("server_args" if in_runner else "self") + ".attention_backend is None"
    for node in ast.walk(tree("sglang", release, "srt/server_args.py", "srt/model_executor/model_runner.py")):
        if isinstance(node, ast.If) and ast.unparse(node.test) == test and "is_hopper_with" in ast.unparse(node):
            exec(compile(ast.Module([node], []), release, "exec"), machine)
            return args.attention_backend
    raise LookupError(release)


OLD, NEW = ["0.5.1", "0.5.4", "0.5.4.post1", "0.5.6", "0.5.7", "0.5.8", "0.5.9"], ["0.5.10", "0.5.13", "0.5.18", "0.5.23"]


@pytest.mark.parametrize("release", OLD + NEW)
def test_default_attention_backend_of_sglang(release):
    """Llama, Gemma and Llama Vision by every rule of MHA; DeepSeek-V2, without a backend of its own, by those of MLA."""
    names = ("LlamaForCausalLM", "Qwen3ForCausalLM", *sglang.GEMMA, *sglang.VISION, "DeepseekV2ForCausalLM")
    tried = 0
    for gpu in ("a100", "l40s", "h100", "b200", "b300", "rtx5090"):
        for architecture, mla in ((name, name == "DeepseekV2ForCausalLM") for name in names):
            for topk, spec in ((None, None), (None, "EAGLE"), (1, "EAGLE"), (4, "EAGLE")):
                launch = Launch("sglang", options={"speculative-algorithm": spec} if spec else {})
                if topk:
                    launch.options["speculative-eagle-topk"] = str(topk)
                config = {"architectures": [architecture], **({"kv_lora_rank": 512} if mla else {})}
                it = Deployment("sglang", Version(release), config, gpus.named(gpu), launch)
                engine = default_of_sglang(release, it.gpu.capability, architecture, mla, topk, spec)
                ours = sglang.FACTS["prefill backend"](it)
                assert ours.values == (engine,), (gpu, architecture, topk, spec, ours, engine)
                tried += 1
    assert tried == 168


@pytest.mark.parametrize("release", ["0.5.1", "0.5.7", "0.5.9", "0.5.13.post1"])
def test_what_speculative_decoding_chooses(release):
    for architecture, (topk, steps) in sglang.CHOSEN.items():
        model = SimpleNamespace(hf_config=SimpleNamespace(architectures=[architecture]))
        args = SimpleNamespace(get_model_config=lambda m=model: m, get_hf_config=lambda m=model: m.hf_config,
                               speculative_algorithm="EAGLE")  # fmt: skip
        choose = function("sglang", release, "auto_choose_speculative_params", ("srt/server_args.py",), Machine(90))
        assert choose(args)[:2] == (steps, topk)


@pytest.mark.parametrize("release, default", [("0.5.9", False), ("0.5.10.post1", False), ("0.5.11", True), ("0.5.13", True)])
def test_spec_v2_by_default(release, default):
    assert f"SGLANG_ENABLE_SPEC_V2 = EnvBool({default})" in text("sglang", release, "srt/environ.py")
    it = Deployment("sglang", Version(release), launch=Launch("sglang", options={"speculative-algorithm": "EAGLE"}))
    assert sglang.FACTS["spec v2"](it).values == ("on" if default else "off",)


def prefill_of_vllm(release: str, capability: int, dims: dict, on: set[str]) -> str:
    """What MLACommonImpl.__init__ of a release up to 0.20.2 chooses: its `if` chain over its own functions."""
    files = ("model_executor/layers/attention/mla_attention.py", "v1/attention/backends/mla/common.py")
    attention = SimpleNamespace(**{option: option in on for option in vllm._VARIABLE})
    config = SimpleNamespace(attention_config=attention, model_config=SimpleNamespace(hf_text_config=SimpleNamespace(**dims)))
    platform = SimpleNamespace(
        has_device_capability=lambda wanted: capability >= wanted,
        is_device_capability=lambda wanted: capability == wanted,
        is_device_capability_family=lambda wanted: capability // 10 == wanted // 10,
    )
    envs = SimpleNamespace(**{variable: option in on for option, variable in vllm._VARIABLE.items()})
    machine = Machine(capability, envs=envs, flashinfer_available=True, has_flashinfer=lambda: True,
                      has_nvidia_artifactory=lambda: True, get_current_vllm_config=lambda: config)  # fmt: skip
    machine["current_platform"] = platform
    chains = {
        "use_flashinfer_prefill": vllm.FLASHINFER,
        "use_trtllm_ragged_deepseek_prefill": vllm.RAGGED,
        "use_cudnn_prefill": vllm.CUDNN,
    }
    for name in ("is_deepseek_r1_mla_compatible", *chains):
        if f"def {name}(" in text("vllm", release, *files):
            function("vllm", release, name, files, machine)
    order = [
        node.test.func.id
        for node in ast.walk(tree("vllm", release, *files))
        if isinstance(node, ast.If) and isinstance(node.test, ast.Call) and getattr(node.test.func, "id", "") in chains
    ]
    assert len(order) >= 2
    return next((chains[name] for name in order if machine[name]()), vllm.FLASH_ATTN)


@pytest.mark.parametrize(
    "release",
    ["0.10.0", "0.10.2", "0.11.0", "0.11.2", "0.12.0", "0.13.0", "0.14.1", "0.15.0", "0.17.1", "0.18.0", "0.18.1", "0.20.2"],
)
def test_mla_prefill_backend_of_vllm_by_options(release):
    found = set()
    asked = ({}, *({option: value} for option in vllm._VARIABLE for value in ("true", "false")))
    for gpu in ("a100", "h200", "b200", "b300", "rtx5090"):
        for dims in (R1_DIMS, GLM_DIMS):
            for options in asked:
                launch = Launch("vllm")
                if Version(release) < Version("0.13.0"):
                    launch.variables = {vllm._VARIABLE[option]: str(value == "true") for option, value in options.items()}
                else:
                    launch.options = {f"attention-config.{option}": value for option, value in options.items()}
                config = {"model_type": "deepseek_v3", "kv_lora_rank": 512, **dims}
                it = Deployment("vllm", Version(release), config, gpus.named(gpu), launch)
                on = {o for o in vllm._VARIABLE if options.get(o, str(default(release, o)).lower()) == "true"}
                engine = prefill_of_vllm(release, it.gpu.capability, dims, known_there(release, on))
                ours = vllm.prefill_backend(it)
                assert ours.values and ours.values[0] == engine, (gpu, dims, options, ours, engine)
                found.add(engine)
    assert len(found) > 1


def default(release: str, option: str) -> bool:
    """The release's own default, from the class of its attention config; up to 0.12 every variable is off."""
    source = text("vllm", release, "config/attention.py")
    return f"{option}: bool = True" in source


def known_there(release: str, on: set[str]) -> set[str]:
    """Of these options those that the release has: others change nothing in it."""
    source = text("vllm", release, "config/attention.py", "envs.py")
    return {option for option in on if option in source or vllm._VARIABLE[option] in source}


@pytest.mark.parametrize("release", [name for name in known("vllm") if Version(name) < Version("0.21.0")])
def test_defaults_of_the_options_of_vllm(release):
    for option in vllm._VARIABLE:
        assert vllm.default_of(option, Version(release)) is default(release, option), option


@pytest.mark.parametrize("release", ["0.21.0", "0.24.0", "0.26.0", "0.27.0", "0.29.0", "0.31.0"])
def test_mla_prefill_backend_of_vllm_by_priority(release):
    folder = "v1/attention/backends/mla/prefill/"
    backends = SimpleNamespace(FLASH_ATTN="flash_attn", TRTLLM_RAGGED="trtllm_ragged", FLASHINFER="flashinfer",
                               TOKENSPEED_MLA="tokenspeed", ROCM_AITER_FA="rocm_aiter_fa")  # fmt: skip
    # A list that grows names a backend that is not here: AttributeError, and the facts must be read again
    for capability, gpu in ((80, "a100"), (90, "h100"), (100, "b200"), (120, "rtx5090")):
        for dims in (R1_DIMS, GLM_DIMS):
            machine = Machine(capability, MLAPrefillBackendEnum=backends, MLADimensions=lambda **sizes: sizes)
            machine["current_platform"] = SimpleNamespace(is_rocm=lambda: False)
            ask = function("vllm", release, "_get_mla_prefill_backend_priorities", (folder + "selector.py",), machine)
            arguments = (SimpleNamespace(major=capability // 10), dims)[: ask.__code__.co_argcount]
            first = ask(*arguments)[0]
            config = {"model_type": "deepseek_v3", "kv_lora_rank": 512, **dims}
            it = Deployment("vllm", Version(release), config, gpus.named(gpu), Launch("vllm"))
            ours = vllm.prefill_backend(it)
            assert ours.values in ((first,), ()), (gpu, dims, ours, first)
            assert ours.values or (capability == 100 and dims == GLM_DIMS), "only what was not read is unknown"


class Open:
    """What a stand-in of a configuration does not name: nothing, of which nothing is on."""

    def __init__(self, **given):
        self.__dict__.update(given)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def config_of_vllm(release: str, architecture: str, options: dict[str, str], machine: Machine, amd: bool, **model) -> Open:
    """A VllmConfig with the release's own methods that choose the runner, over the values that the methods read."""
    size = {
        name: int(options.get(name.replace("_", "-"), 1))
        for name in ("pipeline_parallel_size", "prefill_context_parallel_size")
    }
    parallel = Open(
        **size, tensor_parallel_size=1, decode_context_parallel_size=1, enable_dbo="enable-dbo" in options,
        use_ubatching="enable-dbo" in options, distributed_executor_backend=options.get("distributed-executor-backend", "mp"),
    )  # fmt: skip
    method = options.get("speculative-config.method")
    drafts = Open(method=method, uses_dynamic_speculative_decoding=lambda: False) if method else None
    it = Open(
        model_config=Open(architectures=[architecture], runner_type="generate", **model), speculative_config=drafts,
        parallel_config=parallel, compilation_config=Open(pass_config=Open()), cache_config=Open(mamba_cache_mode="none"),
        attention_config=Open(), _get_v1_model_runner_unsupported_features=lambda: [],
        _dflash_needs_multi_kv_group=lambda: False, _is_dflash2_draft=lambda: False,
    )  # fmt: skip
    source = text("vllm", release, "config/vllm.py")
    machine["current_platform"] = SimpleNamespace(is_rocm=lambda: amd, is_unspecified=lambda: False)
    machine.update(envs=Open(), HAS_TRITON=True, CompilationMode=Open(STOCK_TORCH_COMPILE=1), CUDAGraphMode=Open(NONE=1),
                   entry_points=lambda group: (), get_args=lambda kind: ())  # fmt: skip
    machine["logger"] = SimpleNamespace(warning_once=lambda *_: None, info_once=lambda *_: None)
    for node in tree("vllm", release, "config/vllm.py").body:
        if isinstance(node, ast.Assign) and re.search("V2_MODEL_RUNNER|MRV1", ast.unparse(node.targets[0])):
            exec(compile(ast.Module([node], []), release, "exec"), machine)
    if "def default_v2_model_runner_architectures" in source:
        function("vllm", release, "default_v2_model_runner_architectures", ("config/vllm.py",), machine)
    own = ("_is_default_v2_model_runner_model", "use_v2_model_runner")
    for name in (*own, "_get_v2_model_runner_unsupported_features", "_get_dbo_unsupported_features"):
        if f"def {name}(" in source:
            method = function("vllm", release, name, ("config/vllm.py",), machine)
            it.__dict__[name] = lambda method=method: method(it)
    return it


#: Models by what decides: architecture, config.json, and what the engine's ModelConfig says of it
_EXPERTS, _MLA = {"num_experts": 8}, {"kv_lora_rank": 512}
_STATES = {"is_hybrid": True, "has_inner_state": True}
MODELS_OF_VLLM = (
    ("LlamaForCausalLM", {}, {}),
    ("LlamaForCausalLM", {"quantization_config": {"quant_method": "fp8"}}, {"is_quantized": True}),
    ("Qwen3ForCausalLM", {}, {}),
    ("Gemma3ForConditionalGeneration", {}, {}),
    ("Qwen3MoeForCausalLM", _EXPERTS, {"is_moe": True}),
    ("Qwen2MoeForCausalLM", _EXPERTS, {"is_moe": True}),
    ("DeepseekV2ForCausalLM", _MLA, {"is_moe": True}),
    ("DeepseekV3ForCausalLM", _MLA, {"is_moe": True}),
    ("KimiK25ForConditionalGeneration", _MLA, {"is_moe": True}),
    ("LongcatFlashNgramForCausalLM", _MLA, {"is_moe": True}),
    ("GlmMoeDsaForCausalLM", _MLA, {"is_moe": True}),
    ("DeepseekV4ForCausalLM", {"n_routed_experts": 256}, {"is_moe": True}),
    ("KimiK3ForConditionalGeneration", {"linear_attn_config": {"x": 1}, **_EXPERTS}, {"is_moe": True, **_STATES}),
    ("Qwen3NextForCausalLM", {"linear_num_value_heads": 32, **_EXPERTS}, {"is_moe": True, **_STATES}),
    ("NemotronHForCausalLM", {"mamba_num_heads": 128}, _STATES),
    ("Mamba2ForCausalLM", {}, {"is_attention_free": True, "has_inner_state": True}),
)
LAUNCHES_OF_VLLM = (
    {}, {"enable-dbo": "on"}, {"prefill-context-parallel-size": "2"}, {"pipeline-parallel-size": "2"},
    *({"speculative-config.method": method} for method in (*vllm.V2_TAKES_METHOD, *vllm.V2_NEVER_TAKES)),
    {"speculative-config.method": "eagle3", "pipeline-parallel-size": "2"},
    {"distributed-executor-backend": "external_launcher", "pipeline-parallel-size": "2"},
)  # fmt: skip


@pytest.mark.parametrize("release", [name for name in known("vllm") if Version("0.22") <= Version(name)])
def test_model_runner_of_vllm(release):
    certain = tried = 0
    for architecture, config, says in MODELS_OF_VLLM:
        for options in LAUNCHES_OF_VLLM:
            for gpu in ("h100", "mi300x"):
                machine, unsaid = Machine(90), ("is_moe", "is_hybrid", "is_attention_free", "is_quantized", "has_inner_state")
                model = {**dict.fromkeys(unsaid, False), **says}
                engine = config_of_vllm(release, architecture, options, machine, gpu == "mi300x", **model)
                runner = "V2" if engine.use_v2_model_runner() else "V1"
                it = Deployment("vllm", Version(release), {"architectures": [architecture], **config}, gpus.named(gpu),
                                Launch("vllm", options=dict(options)))  # fmt: skip
                ours = vllm.FACTS["model runner"](it)
                assert runner in ours.values, (architecture, options, gpu, ours, runner)
                tried, certain = tried + 1, certain + (len(ours.values) == 1)
    assert certain > 0.8 * tried
    assert "VLLM_USE_V2_MODEL_RUNNER: bool = False" in text("vllm", "0.21.0", "envs.py")


REFUSALS = [("sglang", "0.5.1"), ("sglang", "0.5.9"), ("sglang", "0.5.23"), ("vllm", "0.25.1")]


@pytest.mark.parametrize("engine, release", REFUSALS)
def test_backends_that_the_engine_refuses_below_blackwell(engine, release):
    if engine == "sglang":
        source = text(engine, release, "srt/server_args.py", "srt/arg_groups/overrides.py")
        assert re.search(r"if not .*\n\s+raise ValueError\(\n\s+\"TRTLLM MLA backend is only supported on Blackwell", source)
    for name in ("flashinfer", "trtllm_ragged") if engine == "vllm" else ():
        assert "return device_capability.major == 10" in text(engine, release, f"v1/attention/backends/mla/prefill/{name}.py")


@pytest.mark.parametrize("release, drops", [("0.11.0", False), ("0.24.0", False), ("0.25.0", True), ("0.27.1", True)])
def test_from_when_on_the_combine_of_ranks_drops_nan(release, drops):
    source = text("vllm", release, "attention/ops/common.py", "v1/attention/ops/common.py")
    assert "output = output * factor" in source and ("tl.where(factor == 0.0, 0.0, output)" in source) is drops
    launch = Launch("vllm", options={"attention-backend": "TRITON_MLA"})
    ours = dcp_empty_shard.decode_without_kv(Deployment("vllm", Version(release), launch=launch))
    assert ours.values == ("neutral" if drops else "undefined",)
    launch.options["dcp-comm-backend"] = "a2a"
    ours = dcp_empty_shard.decode_without_kv(Deployment("vllm", Version(release), launch=launch))
    assert ours.values == ("undefined",)
