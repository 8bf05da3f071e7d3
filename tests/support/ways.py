"""Facts that several fixes ask for, as the data modules in tests/fixes name them: (values that hit, one that does not)."""

from __future__ import annotations

MLA, PREFIX, GRAPHS = (("MLA",), "MHA"), (("on",), "off"), (("on",), "off")
NVIDIA, OTHERS, CORE = (("NVIDIA",), "AMD"), (("AMD", "Intel"), "NVIDIA"), (("V1",), "V0")
SPEC_V2 = {"speculative algorithm": (("EAGLE", "EAGLE3", "STANDALONE"), "NGRAM"), "spec v2": (("on",), "off")}
RAGGED_PREFILL = {"attention": MLA, "cached prefix": PREFIX, "MLA prefill backend": (("trtllm_ragged",), "flash_attn")}
MERGED = {"attention": MLA, "cached prefix": PREFIX, "engine core": CORE}
CHUNKED = {"attention": MLA, "cached prefix": PREFIX, "chunked prefix cache": (("on",), "off")}
PREFILL = ("prefill backend", "draft prefill backend")
BASE_2 = ("trtllm_mla", "flashinfer", "flashmla", "cutlass_mla")
CASCADE = {"attention backend": (("FLASH_ATTN",), "FLASHINFER"), "cascade attention": (("on",), "off")}
CHECKPOINTS = {
    "layers that store checkpoints": (("on",), "off"), "cached prefixes of a hybrid model": (("on",), "off"),
    "chunks that have a block for a checkpoint": (("the last one",), "each"),
}  # fmt: skip
DRAFTLESS = {"Mamba2 layers": (("on",), "off"), "speculative decoding": (("on",), "off"), "model runner": (("V2",), "V1")}
