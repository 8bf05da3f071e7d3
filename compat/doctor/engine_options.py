"""The command-line options and variables of the engines that `launch` reads, under the engines' own names.

`tests/integration/test_doctor.py` finds each in the source of published releases. Common options that decide no verdict are
here, too, so that they are not called not understood.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

VALUE, SWITCH, JSON, FILE = "value", "switch", "json", "file"


@dataclass(frozen=True)
class Option:
    """`names` as typed, the first of them is its name in `Launch.options`; `kind`: what follows it."""

    names: tuple[str, ...]
    kind: str

    @property
    def name(self) -> str:
        return self.names[0].lstrip("-")


def _options(kind: str, *lines: str) -> Iterator[Option]:
    """One option per line, its names separated by blanks."""
    for line in lines:
        yield Option(tuple(line.split()), kind)


SGLANG = (
    *_options(
        VALUE,
        "--model-path --model",
        "--attention-backend",
        "--prefill-attention-backend",
        "--decode-attention-backend",
        "--speculative-algorithm",
        "--speculative-num-steps",
        "--speculative-eagle-topk",
        "--speculative-ngram-max-bfs-breadth",
        "--speculative-attention-mode",
        "--speculative-draft-attention-backend",
        "--speculative-draft-model-path --speculative-draft-model",
        "--speculative-num-draft-tokens",
        "--speculative-adaptive-config",
        "--speculative-dflash-block-size",
        "--speculative-dspark-block-size",
        "--disaggregation-mode",
        "--dcp-size --decode-context-parallel-size",
        "--chunked-prefill-size",
        "--page-size",
        "--dtype",
        "--kv-cache-dtype",
        "--quantization-param-path",
        "--device",
        "--rl-on-policy-target",
        "--attn-cp-size --attention-context-parallel-size",
        "--mamba-radix-cache-strategy --mamba-scheduler-strategy",
        "--radix-cache-backend",
        "--cuda-graph-backend-prefill",
        "--pp-size --pipeline-parallel-size",
        "--moe-a2a-backend",
        "--linear-attn-backend",
    ),
    *_options(
        SWITCH,
        "--disable-cuda-graph",
        "--disable-radix-cache",
        "--disable-prefill-cuda-graph",
        "--disable-piecewise-cuda-graph",
        "--enable-breakable-cuda-graph",
        "--enable-memory-saver",
        "--enable-torch-compile",
        "--disaggregation-decode-enable-radix-cache",
        "--disable-chunked-prefix-cache",
        "--enable-two-batch-overlap",
        "--enable-deterministic-inference",
        "--enable-hierarchical-cache",
        "--disable-hybrid-swa-memory",
        "--enable-dp-attention",
        "--enable-prefill-context-parallel",
        "--enable-prefill-cp",
        "--enable-multimodal",
        "--disable-overlap-schedule",
        "--enable-unified-memory",
        "--speculative-adaptive",
    ),
    *_options(FILE, "--config"),
    # They decide no verdict
    *_options(
        VALUE,
        "--tp-size --tensor-parallel-size",
        "--dp-size --data-parallel-size",
        "--quantization",
        "--host",
        "--port",
        "--nnodes",
        "--node-rank",
        "--dist-init-addr",
        "--mem-fraction-static",
        "--context-length",
        "--served-model-name",
        "--tokenizer-path",
        "--max-running-requests",
        "--cuda-graph-max-bs",
        "--cuda-graph-backend-decode",
        "--cuda-graph-config",
        "--moe-runner-backend",
        "--tool-call-parser",
        "--reasoning-parser",
        "--log-level",
        "--api-key",
        "--chat-template",
        "--schedule-policy",
    ),
    *_options(SWITCH, "--trust-remote-code", "--enable-metrics", "--skip-server-warmup"),
)

VLLM = (
    *_options(
        VALUE,
        "--model",
        "--attention-backend",
        "--quantization -q",
        "--decode-context-parallel-size -dcp",
        "--dcp-comm-backend",
        "--prefill-context-parallel-size",
        "--kv-cache-dtype",
        "--kv-cache-dtype-skip-layers",
        "--data-parallel-size -dp",
        "--data-parallel-backend -dpb",
        "--pipeline-parallel-size -pp",
        "--distributed-executor-backend",
        "--kv-offloading-size",
        "--mamba-cache-mode",
        "--prefix-cache-retention-interval",
        "--logits-processors",
        "--logprobs-mode",
        "--runner",
        "--convert",
        "--task",
        "--ubatch-size",
    ),
    *_options(
        SWITCH,
        "--enable-prefix-caching",
        "--enable-chunked-prefill",
        "--enable-dbo",
        "--enforce-eager",
        "--disable-cascade-attn",
        "--disable-sliding-window",
        "--async-scheduling",
        "--calculate-kv-scales",
        "--enable-elastic-ep",
        "--enable-prompt-embeds",
        "--enable-return-routed-experts",
        "--kv-sharing-fast-prefill",
    ),
    *_options(
        JSON,
        "--attention-config -ac",
        "--speculative-config -sc",
        "--compilation-config -cc",
        "--kv-transfer-config",
        "--ec-transfer-config",
        "--watermark-config",
    ),
    *_options(FILE, "--config"),
    # They decide no verdict
    *_options(
        VALUE,
        "--tensor-parallel-size -tp",
        "--max-model-len",
        "--max-num-batched-tokens",
        "--max-num-seqs",
        "--gpu-memory-utilization",
        "--dtype",
        "--block-size",
        "--host",
        "--port",
        "--served-model-name",
        "--tokenizer",
        "--tool-call-parser",
        "--reasoning-parser",
        "--chat-template",
        "--api-key",
        "--load-format",
        "--seed",
        "--swap-space",
        "--data-parallel-size-local -dpl",
        "--data-parallel-start-rank -dpr",
        "--data-parallel-rank -dpn",
        "--data-parallel-address -dpa",
        "--data-parallel-rpc-port -dpp",
        "--all2all-backend",
        "--moe-backend",
        "--api-server-count -asc",
        "--nnodes",
        "--node-rank",
        "--master-addr",
        "--master-port",
        "--kv-offloading-backend",
        "--limit-mm-per-prompt",
        "--mm-encoder-tp-mode",
        "--mamba-block-size",
        "--mamba-cache-dtype",
        "--mamba-ssm-cache-dtype",
        "--max-cudagraph-capture-size",
        "--revision",
        "--download-dir",
        "--generation-config",
        "--scheduling-policy",
        "--tokenizer-mode",
        "--watermark",
    ),
    *_options(
        SWITCH,
        "--trust-remote-code",
        "--enable-expert-parallel",
        "--enable-auto-tool-choice",
        "--enable-eplb",
        "--enable-log-requests",
        "--language-model-only",
        "--headless",
        "--data-parallel-hybrid-lb -dph",
        "--data-parallel-external-lb -dpe",
    ),
)

OPTIONS = {"sglang": SGLANG, "vllm": VLLM}

#: Variables that decide a verdict
VARIABLES = {
    "sglang": (
        "SGLANG_ENABLE_SPEC_V2",
        "SGLANG_ENABLE_UNIFIED_RADIX_TREE",
        "SGLANG_EXPERIMENTAL_CPP_RADIX_TREE",
        "SGLANG_FLASHINFER_USE_PAGED",
        "SGLANG_MAMBA_CONV_DTYPE",
    ),
    "vllm": (
        "VLLM_ATTENTION_BACKEND",
        "VLLM_MLA_DISABLE",
        "VLLM_USE_V1",
        "VLLM_USE_V2_MODEL_RUNNER",
        "VLLM_USE_CUDNN_PREFILL",
        "VLLM_USE_TRTLLM_RAGGED_DEEPSEEK_PREFILL",
        "VLLM_DISABLE_FLASHINFER_PREFILL",
        "VLLM_TEST_FORCE_FP8_MARLIN",
        "VLLM_BATCH_INVARIANT",
        "VLLM_FLASH_ATTN_VERSION",
    ),
}
