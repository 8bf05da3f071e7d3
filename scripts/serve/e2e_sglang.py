"""sglang for scripts/serve/gpu_e2e_sglang.py: the engine in a process of its own, `python -m scripts.serve.e2e_sglang`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from scripts.serve import e2e
from scripts.serve.e2e import LISTED
from scripts.serve.sides import Serving

SCRIPT = "-m", "scripts.serve.e2e_sglang"
NEW_TOKENS = 8
#: What every case starts its servers with
SHARED = {
    "attention_backend": "flashinfer", "sampling_backend": "pytorch", "grammar_backend": "none",
    "disable_piecewise_cuda_graph": True, "mem_fraction_static": 0.5, "max_total_tokens": 262144, "context_length": 16384,
}  # fmt: skip
#: Settings that later releases call otherwise
RENAMED = {
    "disable_piecewise_cuda_graph": "disable_prefill_cuda_graph", "cuda_graph_max_bs": "cuda_graph_max_bs_decode",
    "mamba_scheduler_strategy": "mamba_radix_cache_strategy",
}  # fmt: skip


def serving(model: Path, out: Path, settings: dict[str, Any], one_by_one: bool = False) -> Serving:
    return Serving(SCRIPT, model, out, settings, one_by_one=one_by_one)


class Child:
    """In a process of its own: the engine, and what it is asked for."""

    def start(self, **settings: Any) -> dict[str, Any]:
        began = time.monotonic()
        import sglang
        from sglang.srt.server_args import ServerArgs

        model = settings.pop("model")
        settings = {RENAMED[name] if hasattr(ServerArgs, RENAMED.get(name, "-")) else name: to for name, to in settings.items()}
        self.engine = sglang.Engine(
            model_path=model, skip_tokenizer_init=True, random_seed=1, log_level="warning", **settings
        )  # fmt: skip
        return {"seconds": round(time.monotonic() - began, 1), "machine": e2e.machine("sglang")}

    def answer(self, prompt: list[int]) -> dict[str, Any]:
        return self.answers([prompt])["answers"][0]

    def answers(self, prompts: list, new_tokens: int | list[int] = NEW_TOKENS) -> dict[str, Any]:
        """Answers in the order of the prompts, which are sent at once. new_tokens: of all, or of each."""
        params = [_params(one) for one in new_tokens] if isinstance(new_tokens, list) else _params(new_tokens)
        found = self.engine.generate(input_ids=prompts, sampling_params=params, return_logprob=True, top_logprobs_num=LISTED)
        return {"answers": [_answer(one) for one in found]}

    def steps(self, prompt: list[int], new_tokens: int) -> dict[str, Any]:
        """One answer, with the log-probabilities of each of its tokens: the first comes of prefill, the others of decode."""
        found = self.engine.generate(
            input_ids=prompt, sampling_params=_params(new_tokens), return_logprob=True, top_logprobs_num=LISTED
        )
        each = [{str(token): value for value, token, *_ in one} for one in found["meta_info"]["output_top_logprobs"]]
        return {"tokens": found["output_ids"], "logprobs": each}

    def accepted(self, prompts: list, new_tokens: int) -> dict[str, Any]:
        """How many tokens each request has got from a step with drafts, on average."""
        found = self.engine.generate(input_ids=prompts, sampling_params=_params(new_tokens))
        about = [one["meta_info"] for one in found]
        return {"accepted": [one["completion_tokens"] / one["spec_verify_ct"] for one in about]}

    def forget(self) -> dict[str, Any]:
        """Empty the prefix cache, once the scheduler is idle."""
        for _ in range(50):
            if self.engine.flush_cache().success:
                return {}
            time.sleep(0.1)
        raise RuntimeError("the prefix cache cannot be emptied")

    def round(
        self, before: list, prompts: list, singles: list, new_tokens: int | list[int], keep: bool = False
    ) -> dict[str, Any]:
        """One part of a round of scripts.serve.turns: prefixes into the cache, which is emptied first unless it is to `keep`
        what it has, all prompts together, then single ones for the latency of a first token. A single one may be several
        prompts that share their steps: then it is the last one's first token.

        Token ids go to the scheduler as one message: it has all of them before its next step."""
        if not keep:
            self.forget()
        if before:
            self.engine.generate(input_ids=before, sampling_params=_params(1))
        params = [_params(one) for one in new_tokens] if isinstance(new_tokens, list) else _params(new_tokens)
        began = time.perf_counter()
        found = self.engine.generate(input_ids=prompts, sampling_params=params)
        seconds, first = time.perf_counter() - began, []
        for prompt in singles:
            began = time.perf_counter()
            self.engine.generate(input_ids=prompt, sampling_params=_params(1))
            first.append(time.perf_counter() - began)
        return {"seconds": seconds, "first": first, "tokens": [one["output_ids"] for one in found]}


def _answer(found: dict[str, Any]) -> dict[str, Any]:
    about = found["meta_info"]
    listed = {str(token): value for value, token, *_ in about["output_top_logprobs"][0]}
    return {"tokens": found["output_ids"], "logprobs": listed, "cached": about["cached_tokens"]}


def _params(new_tokens: int) -> dict[str, Any]:
    return {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True}


if __name__ == "__main__":
    _child = Child()
    e2e.serve({name: getattr(_child, name) for name in ("start", "answer", "answers", "steps", "accepted", "forget", "round")})
