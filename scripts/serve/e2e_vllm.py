"""vLLM for gpu_e2e_vllm.py: the engine in a process of its own, `python -m scripts.serve.e2e_vllm`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from scripts.serve import e2e
from scripts.serve.e2e import LISTED, TOP
from scripts.serve.sides import Serving

SCRIPT = "-m", "scripts.serve.e2e_vllm"
NEW_TOKENS = 8
#: Every engine. The cache's size is given, so that servers which start together do not measure each other's memory
SHARED: dict[str, Any] = {
    "max_num_seqs": 16, "gpu_memory_utilization": 0.1, "kv_cache_memory_bytes": 4 << 30, "enable_prefix_caching": True,
}  # fmt: skip
#: The engine core is a process of its own, by spawn; no sampler that FlashInfer would have to compile
VARIABLES = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn", "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip
#: A compilation config: graphs of decodes without Inductor, with which a start takes half the time
GRAPHS = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4, 8, 16]}
V1_RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
FORMER, FORMER_PATCHED = "stock, former runner", "patched, former runner"  # sides with it, where the others have V2
OFF = {"ATTNFIX": "0"}


class Child:
    """In a process of its own: the engine, and what it is asked for."""

    def start(self, **settings: Any) -> dict[str, Any]:
        began = time.monotonic()
        import vllm

        self.vllm = vllm
        self.llm = vllm.LLM(
            skip_tokenizer_init=True, dtype="bfloat16", seed=0, max_logprobs=LISTED, generation_config="vllm", **settings
        )
        return {"seconds": round(time.monotonic() - began, 1), "machine": e2e.machine("vllm")}

    def answer(
        self, prompts: list, new_tokens: int | list[int] = NEW_TOKENS, together: bool = False, at: int = 0
    ) -> dict[str, Any]:
        """Answers in the order of the prompts. new_tokens: of all, or of each. `together`: all are there before the engine's
        first step. `at`: the new token whose log-probabilities are told."""
        each = isinstance(new_tokens, list)
        params = [self._params(one, LISTED) for one in new_tokens] if each else self._params(new_tokens, LISTED)
        outputs = self._held(prompts, params)[0] if together else self.llm.generate(_ids(prompts), params, use_tqdm=False)
        return {"answers": [_answer(output, at) for output in outputs]}

    def forget(self) -> dict[str, Any]:
        """Empty the prefix cache; blocks of the last requests may take a moment to be free."""
        for _ in range(50):
            if self.llm.reset_prefix_cache():
                return {}
            time.sleep(0.1)
        raise RuntimeError("the prefix cache cannot be reset")

    def round(
        self, before: list, prompts: list, singles: list, new_tokens: int | list[int], keep: bool = False
    ) -> dict[str, Any]:
        """One part of a round of scripts.serve.turns: prefixes into the cache, which is emptied first unless it is to `keep`
        what it has, all prompts together, then single ones for the latency of a first token. A single one may be several
        prompts that share their steps: then it is the last one's first token."""
        if not keep:
            self.forget()
        if before:
            self._held(before, self._params(1))  # what a step consists of shows in the last bits of what is cached
        params = [self._params(one) for one in new_tokens] if isinstance(new_tokens, list) else self._params(new_tokens)
        outputs, seconds = self._held(prompts, params)
        first = []
        for prompt in singles:
            if isinstance(prompt[0], list):
                first.append(self._held(prompt, self._params(1))[1])
                continue
            began = time.perf_counter()
            self.llm.generate(_ids([prompt]), self._params(1), use_tqdm=False)
            first.append(time.perf_counter() - began)
        return {"seconds": seconds, "first": first, "tokens": [list(output.outputs[0].token_ids) for output in outputs]}

    def _params(self, new_tokens: int, listed: int | None = None) -> Any:
        return self.vllm.SamplingParams(
            temperature=0.0, max_tokens=new_tokens, logprobs=listed, ignore_eos=True, detokenize=False
        )

    def _held(self, prompts: list, params: Any) -> tuple[list, float]:
        """The outputs, and the seconds from the first step on. What a step consists of is then no matter of arrival times."""
        self.llm.sleep(level=0)  # requests are taken, and wait
        self.llm.enqueue(_ids(prompts), params, use_tqdm=False)
        began = time.perf_counter()
        self.llm.wake_up(tags=["scheduling"])
        outputs = self.llm.wait_for_completion(use_tqdm=False)
        return outputs, time.perf_counter() - began


def _ids(prompts: list) -> list:
    return [{"prompt_token_ids": prompt} for prompt in prompts]


def _answer(output: Any, at: int) -> dict[str, Any]:
    seen = output.outputs[0]
    listed = {str(token): entry.logprob for token, entry in seen.logprobs[at].items()}
    return {"tokens": list(seen.token_ids), "logprobs": listed, "cached": output.num_cached_tokens}


def serving(model: Path, out: Path, one_by_one: bool = False) -> Serving:
    return Serving(SCRIPT, model, out, SHARED, VARIABLES, cache="VLLM_CACHE_ROOT", one_by_one=one_by_one)


def activity_failures(found: dict[str, Any], expected: dict[str, set[str]]) -> list[str]:
    """Which fixes corrected on each side, against `expected`; where none is, attnfix must not have been active at all."""
    wrong = []
    for name, side in found.items():
        seen = {fix for process in side["processes"] for fix in process["fixes"] if e2e.corrections([process], fix)}
        if seen != expected.get(name, set()):
            wrong.append(f"{name}: corrected by {sorted(seen) or 'nothing'}, expected {sorted(expected.get(name, set()))}")
        if name not in expected and side["processes"]:
            wrong.append(f"{name}: attnfix was active")
        ended = "ended" in side
        if not ended and not e2e.alive(side["processes"]):
            wrong.append(f"{name}: a process that was serving counts as ended")
    return wrong


def table(found: dict[str, Any]) -> list[str]:
    lines = [f"{'side':<28}{'scenario':<14}{'largest difference':>20}{f'of the top {TOP}':>16}{'equal tokens':>14}"]
    for name, side in found.items():
        for scenario, seen in side.get("compared", {}).items():
            figures = f"{seen['difference']:>20.4g}{seen['in_common']:>16}{seen['equal_tokens']:>14}"
            lines.append(f"{name:<28}{scenario:<14}{figures}")
        lines += [f"  {line}" for line in e2e.activity(side["processes"])]
    return lines


if __name__ == "__main__":
    _child = Child()
    e2e.serve({name: getattr(_child, name) for name in ("start", "answer", "forget", "round")})
