"""Every fix's condition in both directions: deployments that hit the bug, do not, or leave it open, each with why."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from packaging.version import Version

from attnfix.compat.doctor import diagnosis, gpus
from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE, Above, AllOf, AnyOf, Fact, Is, known, unknown
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.fix import CRASH, SLOWER, WRONG_OUTPUT
from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import BY_ID, FIXES, facts_of_fixes
from tests.unit.doctor.hit_cases import CASES, DEVELOPMENT, EXTEND_BY_DECODE, LONG_CHAIN, MODELS, ON_CUTEDSL, R1, SGL


def facts_of(deployment):
    return diagnosis.facts(deployment, facts_of_fixes(deployment.engine))


def answer(fix, release, model, gpu, launch, code=None):
    deployment = Deployment(
        BY_ID[fix].engine,
        release=Version(release) if release else None,
        config=MODELS[model] if model else None,
        gpu=gpus.named(gpu) if gpu else None,
        launch=read(shlex.split(launch)) if launch else None,
    )
    code = code or ledger.load(BY_ID[fix]).verdict(release)
    return diagnosis.answer(BY_ID[fix], code, release, facts_of(deployment))


@pytest.mark.parametrize("fix, release, model, gpu, launch, verdict, says", CASES)
def test_a_published_release(fix, release, model, gpu, launch, verdict, says):
    assert ledger.load(BY_ID[fix]).verdict(release) == ledger.AFFECTED or fix == "sglang.zero-kv-rows", "else the code decides"
    found = answer(fix, release, model, gpu, launch)
    assert found.verdict == verdict, found.reasons
    assert says in " / ".join(found.reasons)


@pytest.mark.parametrize("fix, release, model, gpu, launch, verdict, says", DEVELOPMENT)
def test_development_code(fix, release, model, gpu, launch, verdict, says):
    found = answer(fix, release, model, gpu, launch, ledger.AFFECTED)
    assert found.verdict == verdict, found.reasons
    assert says in " / ".join(found.reasons)
    assert answer(fix, release, model, gpu, launch).verdict == NOT_HIT, "no release has it"


@pytest.mark.parametrize(
    "fix, release, model, gpu, launch, verdict",
    [("sglang.draft-row-spill", None, "Llama", "h100", LONG_CHAIN, POSSIBLE),
     ("sglang.lse-log-base", None, "R1", "h100", EXTEND_BY_DECODE, POSSIBLE),
     ("sglang.lse-log-base", "0.5.14rc1", "R1", "h100", EXTEND_BY_DECODE, HIT),
     ("sglang.lse-log-base", "0.5.13rc1", "R1", "b200", ON_CUTEDSL, HIT),
     ("sglang.lse-log-base", "0.5.13.dev3", "R1", "b200", ON_CUTEDSL, HIT),
     ("sglang.lse-log-base", "0.0.0.dev0", "R1", "b200", ON_CUTEDSL, POSSIBLE)],
)  # fmt: skip
def test_an_unknown_release_has_no_rule_and_a_candidate_that_of_its_release(fix, release, model, gpu, launch, verdict):
    assert answer(fix, release, model, gpu, launch, ledger.AFFECTED).verdict == verdict
    later = Deployment(BY_ID[fix].engine, config=MODELS[model], gpu=gpus.named(gpu), launch=read(shlex.split(launch)))
    later = replace(later, release=Version(release) if release else None)
    assert diagnosis.answer(BY_ID[fix], ledger.AFFECTED, "", facts_of(later)).verdict == verdict


@pytest.mark.parametrize("fix", BY_ID)
def test_every_fix_is_tried_in_both_directions(fix):
    verdicts = {case[5] for case in (*CASES, *DEVELOPMENT) if case[0] == fix}
    assert {HIT, NOT_HIT} <= verdicts
    engine = BY_ID[fix].engine
    assert BY_ID[fix].hits.names <= {*diagnosis.SHARED[engine], *facts_of_fixes(engine)}
    assert BY_ID[fix].harm in (WRONG_OUTPUT, CRASH, SLOWER)


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.id)
def test_nothing_known_is_never_an_answer(fix):
    """No release, model, GPU or launch: every bug that the code has is possible."""
    deployment = Deployment(fix.engine)
    assert diagnosis.answer(fix, ledger.AFFECTED, "", facts_of(deployment)).verdict == POSSIBLE
    assert diagnosis.answer(fix, ledger.FIXED, "", facts_of(deployment)).verdict == NOT_HIT


#: The facts that make each fix's bug hit: name -> (values that do, one that does not). A bug with two ways to it stands twice
_MLA, _PREFIX, _GRAPHS = (("MLA",), "MHA"), (("on",), "off"), (("on",), "off")
_NVIDIA, _OTHERS, _CORE = (("NVIDIA",), "AMD"), (("AMD", "Intel"), "NVIDIA"), (("V1",), "V0")
_V2 = {"speculative algorithm": (("EAGLE", "EAGLE3", "STANDALONE"), "NGRAM"), "spec v2": (("on",), "off")}
_RAGGED = {"attention": _MLA, "cached prefix": _PREFIX, "MLA prefill backend": (("trtllm_ragged",), "flash_attn")}
_MERGED = {"attention": _MLA, "cached prefix": _PREFIX, "engine core": _CORE}
_CHUNKED = {"attention": _MLA, "cached prefix": _PREFIX, "chunked prefix cache": (("on",), "off")}
_PREFILL = ("prefill backend", "draft prefill backend")
_BASE_2 = ("trtllm_mla", "flashinfer", "flashmla", "cutlass_mla")
_CASCADE = {"attention backend": (("FLASH_ATTN",), "FLASHINFER"), "cascade attention": (("on",), "off")}
_CHECKPOINTS = {
    "layers that store checkpoints": (("on",), "off"), "cached prefixes of a hybrid model": (("on",), "off"),
    "chunks that have a block for a checkpoint": (("the last one",), "each"),
}  # fmt: skip
_DRAFTLESS = {"Mamba2 layers": (("on",), "off"), "speculative decoding": (("on",), "off"), "model runner": (("V2",), "V1")}
WAYS = [
    *(("sglang.zero-kv-rows", {**_CHUNKED, name: (("trtllm_mla",), "flashinfer")}) for name in _PREFILL),
    *(("sglang.lse-log-base", {**_CHUNKED, name: (_BASE_2, "fa3")}) for name in _PREFILL),
    ("sglang.uniform-replay-stride-mla", {**_V2, "draft extend backend": (("trtllm_mla",), "triton"), "CUDA graphs": _GRAPHS}),
    ("sglang.uniform-replay-stride-triton", {**_V2, "draft extend backend": (("triton",), "fa3"), "CUDA graphs": _GRAPHS}),
    ("sglang.stale-prefill-fallback",
     {"attention": _MLA, "speculative decoding": (("on",), "off"), "verify backend": (("trtllm_mla",), "flashinfer"),
      "verify after a fallback": (("on",), "off")}),
    ("sglang.triton-draft-double-count", {**_V2, "draft extend backend": (("triton",), "fa3"), "CUDA graphs": _GRAPHS}),
    ("sglang.mha-draft-extend-routing", {**_V2, "draft extend backend": (("trtllm_mha",), "trtllm_mla")}),
    ("sglang.skip-seq-lens-sync",
     {**_V2, "speculative algorithm": (("EAGLE", "EAGLE3"), "STANDALONE"), "decode backend": (("trtllm_mla",), "fa3"),
      "two-batch overlap": (("off",), "on")}),
    ("sglang.draft-kv-indices",
     {"speculative algorithm": _V2["speculative algorithm"], "speculative topk": ((2, 8), 1), "speculative steps": ((2, 5), 1),
      "attention": (("MHA",), "MLA"), "draft decode backend": (("flashinfer",), "triton"), "CUDA graphs": _GRAPHS}),
    ("sglang.triton-swa-deterministic",
     {"deterministic inference": (("on",), "off"), "prefill backend": (("triton",), "fa3"),
      "sliding-window KV pool": (("on",), "off")}),
    ("sglang.fa3-swa-topk",
     {"speculative algorithm": _V2["speculative algorithm"], "speculative topk": ((2, 8), 1),
      "verify backend": (("fa3", "fa4"), "triton"), "sliding-window KV pool": (("on",), "off")}),
    ("sglang.encoder-decode-lengths",
     {"encoder-decoder": (("on",), "off"), "decode backend": (("flashinfer",), "fa3"), "CUDA graphs": _GRAPHS}),
    ("sglang.fa3-cross-lengths",
     {"encoder-decoder": (("on",), "off"), "prefill backend": (("fa3", "fa4"), "triton")}),
    ("sglang.fa3-cross-lengths",
     {"encoder-decoder": (("on",), "off"), "decode backend": (("fa3", "fa4"), "triton")}),
    ("sglang.fa3-encoder-replay",
     {"encoder-decoder": (("on",), "off"), "prefill backend": (("fa3", "fa4"), "triton")}),
    ("sglang.fa3-encoder-replay",
     {"encoder-decoder": (("on",), "off"), "decode backend": (("fa3", "fa4"), "triton")}),
    ("sglang.trtllm-mla-bf16-scale",
     {"decode backend": (("trtllm_mla",), "fa3"), "KV cache scales": (("unused",), "none")}),
    ("sglang.trtllm-mla-bf16-scale",
     {"verify backend": (("trtllm_mla",), "fa3"), "KV cache scales": (("unused",), "calibrated FP8")}),
    ("sglang.trtllm-mha-kv-scales",
     {"attention": (("MHA",), "MLA"), "prefill backend": (("trtllm_mha",), "fa3"),
      "KV cache scales": (("calibrated FP8", "unused"), "none")}),
    ("sglang.trtllm-mha-kv-scales",
     {"attention": (("MHA",), "MLA"), "decode backend": (("trtllm_mha",), "fa3"),
      "KV cache scales": (("calibrated FP8", "unused"), "none")}),
    ("sglang.kv-scales-file",
     {"KV scales from a file": (("on",), "off"), "backends that want more than a file leaves": (("on",), "off")}),
    ("sglang.xqa-verify-mask",
     {"attention": (("MHA",), "MLA"), "verify backend": (("trtllm_mha",), "fa3"),
      "speculative algorithm": (("EAGLE", "EAGLE3", "STANDALONE"), "NGRAM"), "TRT-LLM MHA's kernel": (("XQA",), "its own")}),
    ("sglang.hybrid-chunk-metadata",
     {**_CHUNKED, "prefill backend": (("flashinfer", "flashmla", "cutlass_mla"), "trtllm_mla"),
      "hybrid backend": (("on",), "off")}),
    ("sglang.draft-row-spill", {"spec v2": (("on",), "off"), "rows of slots": (("too short",), "wide enough")}),
    ("sglang.draft-row-spill",
     {"speculative algorithm": (("DFLASH", "DSPARK", "FROZEN_KV_MTP", "NGRAM"), "none"),
      "rows of slots": (("too short",), "wide enough")}),
    ("sglang.draft-kv-context-limit",
     {"speculative algorithm": _V2["speculative algorithm"], "speculative steps": ((2, 5), 1),
      "draft decode backend": (("flashinfer", "triton"), "fa3")}),
    ("sglang.draft-kv-context-limit",
     {"speculative algorithm": _V2["speculative algorithm"], "speculative steps": ((2, 5), 1),
      "draft decode backend": (("trtllm_mla",), "fa3"), "lists of slots on trtllm_mla": (("on",), "off")}),
    ("sglang.mla-draft-lengths",
     {"speculative algorithm": _V2["speculative algorithm"], "speculative steps": ((2, 5), 1), "attention": _MLA,
      "draft decode backend": (("flashmla", "trtllm_mla"), "fa3")}),
    ("sglang.mla-draft-lengths",
     {"speculative algorithm": _V2["speculative algorithm"], "speculative steps": ((2, 5), 1), "attention": _MLA,
      "draft decode backend": (("flashinfer",), "triton"), "latent attention of the drafter": (("on",), "off")}),
    ("sglang.fa3-mla-tree-pages",
     {"trees of drafts": (("on",), "off"), "page size": ((16, 64), 1), "attention": _MLA,
      "verify backend": (("fa3",), "triton")}),
    ("sglang.triton-tree-window",
     {"trees of drafts": (("on",), "off"), "window of the runner": (("a token short",), "none"),
      "verify backend": (("triton",), "fa3"), "deterministic inference": (("off",), "on")}),
    ("sglang.fa3-tree-sinks",
     {"trees of drafts": (("on",), "off"), "attention sinks": (("on",), "off"),
      "verify backend": (("fa3", "fa4"), "triton")}),
    ("sglang.fa3-context-limit",
     {"speculative decoding": (("on",), "off"), "verify backend": (("fa3", "fa4"), "triton"), "CUDA graphs": (("on",), "off")}),
    ("sglang.fa3-context-limit",
     {"speculative decoding": (("on",), "off"),
      "draft decode backend": (("fa3", "fa4"), "triton"), "CUDA graphs": (("on",), "off")}),
    ("sglang.fa3-context-limit",
     {"speculative decoding": (("on",), "off"),
      "draft extend backend": (("fa3", "fa4"), "triton"), "CUDA graphs": (("on",), "off")}),
    ("sglang.fa3-scheduler-metadata",
     {"attention": (("MHA",), "MLA"), "decode backend": (("fa3",), "triton"),
      "FlashAttention schedule": (("for other heads",), "right")}),
    ("sglang.flashinfer-swa-prefill",
     {"prefill backend": (("flashinfer",), "triton"), "sliding-window layers": (("on",), "off"),
      "prefill with the window": (("missed",), "right")}),
    ("sglang.eagle-swa-verify",
     {"speculative algorithm": (("EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "FROZEN_KV_MTP"), "DFLASH"),
      "verify backend": (("flashinfer",), "triton"), "sliding-window layers": (("on",), "off")}),
    ("sglang.eagle-swa-verify",
     {"speculative algorithm": (("EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "FROZEN_KV_MTP"), "DFLASH"),
      "draft extend backend": (("flashinfer",), "triton"), "sliding-window layers": (("on",), "off")}),
    ("sglang.triton-window-decode",
     {"decode backend": (("triton",), "fa3"), "speculative decoding": (("off",), "on"),
      "window of the runner": (("a token short",), "none")}),
    ("sglang.flashinfer-soft-cap",
     {"prefill backend": (("flashinfer",), "triton"), "soft cap of scores": (("on",), "off")}),
    ("sglang.flashinfer-soft-cap",
     {"decode backend": (("flashinfer",), "triton"), "soft cap of scores": (("on",), "off")}),
    ("sglang.mamba2-initial-state", {"Mamba2 layers": (("on",), "off"), "tracked Mamba states": (("on",), "off")}),
    ("sglang.mamba2-h-grid", {"Mamba2 layers": (("on",), "off"), "tracked Mamba states": (("on",), "off")}),
    ("sglang.mamba2-track-tail",
     {"Mamba2 layers": (("on",), "off"), "tracked Mamba states": (("on",), "off"), "CUDA graphs": (("on",), "off")}),
    ("sglang.mamba-float16-conv",
     {"Mamba2 layers": (("on",), "off"), "tracked Mamba states": (("on",), "off"),
      "convolution states of another dtype": (("on",), "off")}),
    ("sglang.mamba-track-boundary",
     {"recurrent layers": (("on",), "off"), "states kept by turns": (("on",), "off"),
      "speculative decoding": (("off",), "on")}),
    ("vllm.skip-context-zero-fill", _RAGGED),
    ("vllm.empty-context-chunks", _RAGGED),
    ("vllm.lse-log-base", {**_RAGGED, "engine core": _CORE, "MLA prefill backend": (("trtllm_ragged", "flashinfer"), "cudnn")}),
    ("vllm.lse-log-base",
     {"attention": (("MHA",), "MLA"), "cached prefix": _PREFIX, "decode context parallel size": ((2, 8), 1),
      "attention backend": (("FLASHINFER",), "FLASH_ATTN")}),
    ("vllm.lse-log-base",
     {"attention": (("MHA",), "MLA"), "speculative decoding": (("on",), "off"), "decode context parallel size": ((2, 8), 1),
      "attention backend": (("FLASHINFER",), "FLASH_ATTN")}),
    ("vllm.quantized-mla-context", {"attention": _MLA, "cached prefix": _PREFIX, "kv_b_proj": (("packed",), "floats")}),
    ("vllm.mla-context-order", {"attention": _MLA, "cached prefix": _PREFIX, "model runner": (("V2",), "V1")}),
    ("vllm.dcp-empty-shard",
     {"attention": _MLA, "decode context parallel size": ((2, 8), 1),
      "decode without KV": (("undefined",), "neutral")}),
    ("vllm.dcp-page-counts",
     {"attention": (("MHA",), "MLA"), "decode context parallel size": ((2, 8), 1),
      "attention backend": (("FLASHINFER",), "FLASH_ATTN"), "FlashInfer's page counts": (("wrong",), "right")}),
    ("vllm.dcp-decode-lse-base",
     {"attention": (("MHA",), "MLA"), "decode context parallel size": ((2, 8), 1),
      "attention backend": (("FLASHINFER",), "FLASH_ATTN")}),
    ("vllm.padded-v-merge",
     {"attention": _MLA, "cached prefix": _PREFIX, "MLA prefill backend": (("flash_attn",), "trtllm_ragged"),
      "FlashAttention pads values": (("on",), "off")}),
    ("vllm.both-empty-merge-cuda", {**_MERGED, "GPU": _NVIDIA}),
    ("vllm.both-empty-merge-triton", {**_MERGED, "GPU": _OTHERS}),
    ("vllm.kv-scale-float",
     {"KV cache scales": (("compressed-tensors",), "others"),
      "scales of the attention backend": (("numbers",), "tensors")}),
    ("vllm.skipped-layer-scales",
     {"KV cache scales": (("compressed-tensors",), "others"), "layers left unquantised": (("on",), "off"),
      "kernels of the attention backend": (("FlashInfer",), "others")}),
    ("vllm.flashinfer-q-scale",
     {"attention": (("MHA",), "MLA"), "scales of queries": (("of a checkpoint", "computed"), "none"),
      "queries of FlashInfer": (("the model's",), "FP8"),
      "kernels of the attention backend": (("FlashInfer",), "others")}),
    ("vllm.flashmla-fp8-graph",
     {"attention": _MLA, "attention backend": (("FLASHMLA",), "FLASH_ATTN_MLA"), "full CUDA graphs": _GRAPHS,
      "KV cache dtype": (("fp8", "fp8_e4m3"), "auto")}),
    ("vllm.fa3-dcp-graph",
     {"attention": (("MHA",), "MLA"), "attention backend": (("FLASH_ATTN",), "FLASHINFER"), "full CUDA graphs": _GRAPHS,
      "decode context parallel size": ((2, 8), 1)}),
    ("vllm.dcp-fa2-split",
     {"attention": (("MHA",), "MLA"), "attention backend": (("FLASH_ATTN",), "FLASHINFER"),
      "decode context parallel size": ((2, 8), 1), "FlashAttention of FLASH_ATTN": (("2",), "others")}),
    ("vllm.gdn-launch-assert", {"linear attention": (("on",), "off"), "speculative decoding": (("on",), "off")}),
    ("vllm.gdn-uniform-decode",
     {"linear attention": (("on",), "off"), "speculative decoding": (("on",), "off"), "full CUDA graphs": _GRAPHS,
      "model runner": (("V1",), "V2")}),
    ("vllm.dcp-spec-graph",
     {"attention": _MLA, "decode context parallel size": ((2, 8), 1), "speculative decoding": (("on",), "off"),
      "full CUDA graphs": _GRAPHS, "drafts under DCP": (("prefills",), "decodes")}),
    ("vllm.fa3-cascade", {**_CASCADE, "attention sinks": (("on",), "off")}),
    ("vllm.fa3-cascade", {**_CASCADE, "full CUDA graphs": _GRAPHS}),
    ("vllm.dflash-aot-schedule",
     {"drafter": (("DFlash",), "another"), "model runner": (("V2",), "V1"),
      "schedule of the drafter": (("made ahead",), "none")}),
    ("vllm.dummy-draft-kv",
     {"model runner": (("V2",), "V1"), "data parallel ranks": ((2, 8), 1), "ranks in lock step": (("on",), "off"),
      "drafts of a dummy batch": (("several",), "one")}),
    ("vllm.int8-mla-context",
     {"attention": _MLA, "cached prefix": _PREFIX, "weight of kv_b_proj": (("int8",), "others")}),
    ("sglang.flashinfer-fp8-prefix", {"attention": (("MHA",), "MLA"), "prefill backend": (("flashinfer",), "fa3"),
      "cached prefix": _PREFIX, "KV cache scales": (("calibrated FP8",), "none")}),
    *(
        ("vllm.accepted-counts-race",
         {"recurrent layers": (("on",), "off"), "speculative decoding": (("on",), "off"), "async scheduling": (("on",), "off"),
          "model runner": (("V1",), "V2"), "accepted counts on the host": ((when,), "never"), **more})
        for when, more in (("always", {}),
                           ("where states are cached", {"cached prefixes of a hybrid model": (("on",), "off")}))
    ),
    ("vllm.mamba-prefix-cache",
     {"recurrent layers": (("on",), "off"), "cached prefixes of a hybrid model": (("on",), "off"),
      "drafts from hidden states": (("on",), "off")}),
    ("vllm.mamba-prefix-cache",
     {"recurrent layers": (("on",), "off"), "cached prefixes of a hybrid model": (("on",), "off"),
      "chunks after a preemption": (("anywhere",), "with blocks")}),
    ("vllm.mamba-stale-checkpoint", {**_CHECKPOINTS, "draft tokens of a step": (("one",), "several")}),
    ("vllm.mamba-stale-checkpoint", {**_CHECKPOINTS, "sliding-window layers": (("on",), "off")}),
    ("vllm.mamba-state-column",
     {"recurrent layers": (("on",), "off"), "cached prefixes of a hybrid model": (("on",), "off"),
      "model runner": (("V2",), "V1"), "blocks beside those of states": (("shorter",), "as long")}),
    ("vllm.mamba-decode-order", {**_DRAFTLESS, "drafts by batch size": (("on",), "off")}),
    ("vllm.mamba-decode-order", {**_DRAFTLESS, "async scheduling": (("off",), "on")}),
    ("vllm.mamba2-padded-tail", {"Mamba2 layers": (("on",), "off"), "speculative decoding": (("on",), "off")}),
    ("vllm.padded-one-token-prompt", {"recurrent layers": (("on",), "off"), "speculative decoding": (("on",), "off")}),
    ("vllm.prefill-context-merge", {"attention": _MLA, "cached prefix": _PREFIX, "GPU": _NVIDIA}),
]  # fmt: skip


@pytest.mark.parametrize("fix, way", WAYS)
def test_each_fact_decides(fix, way):
    """With all of them the bug is hit; one wrong value, and it is not; one unknown, and it is possible."""
    asks = BY_ID[fix].hits
    # What only the other way to the bug asks for has a value that never fulfils it
    base = {name: known(0) for name in asks.names} | {name: known(values[0]) for name, (values, _) in way.items()}
    assert set(way) <= asks.names
    for name, (values, wrong) in way.items():
        for value in values:
            assert asks({**base, name: known(value)}.__getitem__).verdict == HIT, (name, value)
        assert asks({**base, name: known(wrong)}.__getitem__).verdict == NOT_HIT, (name, wrong)
        assert asks({**base, name: unknown("")}.__getitem__).verdict == POSSIBLE, name


@pytest.mark.parametrize("fix", BY_ID)
def test_no_fact_is_left_out(fix):
    ways = [way for name, way in WAYS if name == fix]
    assert set().union(*ways) == BY_ID[fix].hits.names


def test_code_that_nobody_judged_is_at_most_possible():
    arguments = ("sglang.zero-kv-rows", "0.5.9", "R1", "b200", SGL)
    assert answer(*arguments, code=ledger.UNKNOWN).verdict == POSSIBLE
    assert answer("sglang.zero-kv-rows", "0.5.9", "R1", "h100", SGL, code=ledger.UNKNOWN).verdict == NOT_HIT


@pytest.mark.parametrize("odd", [[1], {"quant_method": "x", "config_groups": 1}])
def test_a_config_of_an_unheard_of_form_leaves_the_fact_unknown(odd):
    config = {**R1, "quantization_config": odd}
    deployment = Deployment("vllm", Version("0.25.1"), config, gpus.named("h100"), read(["vllm", "serve", "m"]))
    found = diagnosis.answer(BY_ID["vllm.quantized-mla-context"], ledger.AFFECTED, "", facts_of(deployment))
    assert found.verdict == POSSIBLE and "config.json has a form that is not read" in found.reasons[0]


def test_three_valued_logic():
    facts = {"a": known("x", "said"), "b": Fact(("x", "y")), "c": unknown("ask"), "n": known(3)}.__getitem__
    assert [Is("a", "x")(facts).verdict, Is("a", "y")(facts).verdict, Is("c", "x")(facts).verdict] == [HIT, NOT_HIT, POSSIBLE]
    assert Is("b", "x", "y")(facts).verdict == HIT and Is("b", "x")(facts).verdict == POSSIBLE
    assert Is("b", "z")(facts).verdict == NOT_HIT
    assert Above("n", 2)(facts).verdict == HIT and Above("n", 3)(facts).verdict == NOT_HIT
    assert AllOf(Is("c", "x"), Is("a", "y"))(facts).verdict == NOT_HIT, "a missing fact matters only where it decides"
    assert AllOf(Is("c", "x"), Is("a", "x"))(facts).reasons == ("c: unknown (ask)",)
    assert AnyOf(Is("c", "x"), Is("a", "x"))(facts).reasons == ("a: x (said)",)
    assert AnyOf(Is("c", "x"), Is("a", "y"))(facts).verdict == POSSIBLE
    assert AnyOf(Is("b", "z"), Is("a", "y"))(facts).verdict == NOT_HIT


@pytest.mark.parametrize(
    "name, capability", [("H100", 90), ("NVIDIA H200", 90), ("GB200", 100), ("RTX 5090", 120), ("sm_103", 103), ("sm90a", 90)]
)
def test_gpus_are_known_by_the_names_that_people_use(name, capability):
    assert gpus.named(name).capability == capability


def test_an_unknown_gpu_is_none():
    assert gpus.named("h1000") is None and gpus.named("") is None
