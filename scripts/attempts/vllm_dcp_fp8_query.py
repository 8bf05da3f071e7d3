"""vLLM under decode context parallelism with an FP8 KV cache (docs/upstream/vllm-dcp-fp8-query.md): there is no fix.

    python -m scripts.attempts.vllm_dcp_fp8_query FLASH_ATTN
    python -m scripts.attempts.vllm_dcp_fp8_query FLASHINFER

Needs two GPUs of the Hopper generation and vLLM, no network: the model is made here with random weights. A Llama with one KV
head on two ranks answers a prompt of 300 tokens, in four processes at once: with the keys on each rank, and with both sharing
them; with a cache of the model's dtype, and with one of FP8. Prints what each of the four came to: its tokens, or the first
exception. The first three are controls.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scripts.serve import e2e_vllm, tiny_llama

_CASES = [(ranks, cache) for ranks in (1, 2) for cache in ("auto", "fp8")]


def answer(model: str, backend: str, ranks: int, cache: str) -> None:
    """In a process of its own: serves, and prints the first token."""
    import vllm

    llm = vllm.LLM(
        model=model, skip_tokenizer_init=True, dtype="bfloat16", seed=0, enforce_eager=True, attention_backend=backend,
        tensor_parallel_size=2, decode_context_parallel_size=ranks, kv_cache_dtype=cache, max_model_len=4096, **e2e_vllm.SHARED,
    )  # fmt: skip
    params = vllm.SamplingParams(temperature=0.0, max_tokens=4, detokenize=False, ignore_eos=True)
    output = llm.generate([{"prompt_token_ids": list(range(10, 310))}], params, use_tqdm=False)[0]
    print("answered", output.outputs[0].token_ids)


def outcome(lines: list[str]) -> str:
    """The answer, or the first exception in what is logged. A warning may name one, too, that ended nothing."""
    for line in lines:
        if line.startswith("answered"):
            return line
    logged = [line for line in lines if " WARNING " not in line]
    raised = [
        found.group(0) for line in logged if (found := re.search(r"\b(RuntimeError|ValueError|AssertionError)\b.*", line))
    ]
    return f"raised {raised[0]}" if raised else "ended without a word: " + " | ".join(lines[-3:])


def main(backend: str) -> None:
    variables = os.environ | e2e_vllm.VARIABLES | {"ATTNFIX": "0"}
    with tempfile.TemporaryDirectory() as scratch:
        model = tiny_llama.make(Path(scratch) / "model", kv_heads=1)

        def one(case: tuple[int, str]) -> str:
            ranks, cache = case
            words = [sys.executable, "-m", "scripts.attempts.vllm_dcp_fp8_query", backend, str(model), str(ranks), cache]
            ended = subprocess.run(words, env=variables, text=True, capture_output=True, timeout=300)
            said = outcome((ended.stdout + ended.stderr).splitlines())
            return f"{backend}, context parallel size {ranks}, cache {cache}: {said}"

        with ThreadPoolExecutor(len(_CASES)) as pool:
            print(*pool.map(one, _CASES), sep="\n")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        answer(sys.argv[2], sys.argv[1], int(sys.argv[3]), sys.argv[4])
