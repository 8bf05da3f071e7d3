"""An engine in a process of its own, which does what comes as JSON lines: `python child.py vllm`.

The engine's own children (vLLM's engine core, sglang's scheduler) are children of this process, so whether attnfix reaches them
is part of every run. This file imports nothing of the project: an installed attnfix is the one that is tried.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

LISTED = 200  # log-probabilities asked for
#: Token ids of a Qwen3.5, behind those of text: what begins an image, what stands for a place in it, and what ends it
VISION_START, IMAGE, VISION_END = range(8192, 8195)
PATCH, MERGED = (3, 2, 16, 16), 2  # numbers of a patch: colours, times, rows, columns; patches that a token spans, each way
#: Settings of sglang that later releases call otherwise
RENAMED = {
    "disable_piecewise_cuda_graph": "disable_prefill_cuda_graph", "cuda_graph_max_bs": "cuda_graph_max_bs_decode",
    "mamba_scheduler_strategy": "mamba_radix_cache_strategy",
}  # fmt: skip


def images(prompt: list[int]) -> dict[str, Any] | None:
    """What a processor gives for the images of a prompt, where it has some: patches, drawn by the prompt, and (time, height,
    width) of each in patches. An image is a square: as many IMAGE in a row as it has places."""
    import torch

    runs = [len(run) for run in "".join("x" if token == IMAGE else " " for token in prompt).split()]
    if not runs:
        return None
    sides = [MERGED * math.isqrt(run) for run in runs]
    patches = sum(side**2 for side in sides), math.prod(PATCH)
    drawn = torch.randn(patches, generator=torch.Generator().manual_seed(sum(prompt)))
    return {"pixel_values": drawn, "image_grid_thw": torch.tensor([[1, side, side] for side in sides])}


class Child:
    """What an engine is asked for. A subclass starts it, empties its prefix cache, and generates."""

    engine: str

    def start(self, **settings: Any) -> dict[str, Any]:
        began = time.monotonic()
        self.load(settings)
        return {"seconds": round(time.monotonic() - began, 1), "machine": self.machine()}

    def answer(
        self, prompts: list, new_tokens: int | list[int] = 8, together: bool = False, at: int | None = 0
    ) -> dict[str, Any]:
        """Answers in the order of the prompts: tokens, how many were cached, and log-probabilities of the new token `at`.

        new_tokens: of all, or of each. together: all prompts are there before the engine's first step. at: -1 asks for the
        log-probabilities of every new token; None, for no log-probabilities."""
        found, _ = self.generate(prompts, new_tokens, None if at is None else LISTED, together)
        answers = []
        for one in found:
            listed = one.pop("logprobs")
            if at is not None:
                one["logprobs"] = listed if at == -1 else listed[at]
            answers.append(one)
        return {"answers": answers}

    def forget(self) -> dict[str, Any]:
        """Empty the prefix cache; what the last requests hold may take a moment to be free."""
        for _ in range(50):
            if self.emptied():
                return {}
            time.sleep(0.1)
        raise RuntimeError("the prefix cache cannot be emptied")

    def round(self, before: list, prompts: list, singles: list, new_tokens: Any, keep: bool = False) -> dict[str, Any]:
        """One part of a round of `turns`: prefixes into the cache, which is emptied first unless it is to `keep` what it has;
        all prompts together; then single ones for the latency of a first token. A single one may be several prompts that share
        their steps."""
        if not keep:
            self.forget()
        if before:
            self.generate(before, 1, None, True)  # the requests of a step show in the last bits of what is cached
        found, seconds = self.generate(prompts, new_tokens, None, True)
        first = [self.generate(one, 1, None, True)[1] if isinstance(one[0], list) else self.generate([one], 1)[1]
                 for one in singles]  # fmt: skip
        return {"seconds": seconds, "first": first, "tokens": [one["tokens"] for one in found]}

    def load(self, settings: dict[str, Any]) -> None:
        raise NotImplementedError

    def emptied(self) -> bool:
        raise NotImplementedError

    def generate(
        self, prompts: list, new_tokens: int | list[int], listed: int | None = None, together: bool = False
    ) -> tuple[list[dict[str, Any]], float]:
        """Answers, each with the log-probabilities of each new token, and the seconds from the first step on."""
        raise NotImplementedError

    def machine(self) -> dict[str, Any]:
        """What this process runs on."""
        import torch

        found: dict[str, Any] = {"engine": self.engine, "release": importlib.import_module(self.engine).__version__}
        for package in ("attnfix", "flashinfer-python", "triton", "transformers"):
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                found[package] = None
        if shutil.which("nvidia-smi"):
            asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            found["driver"] = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split("\n")[0]
        gpu = torch.cuda.get_device_name()
        return found | {"gpu": gpu, "torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()}


class Vllm(Child):
    engine = "vllm"

    def load(self, settings: dict[str, Any]) -> None:
        import vllm

        self.vllm = vllm
        fixed = {
            "skip_tokenizer_init": settings.get("runner") != "pooling",
            "dtype": "bfloat16",
            "seed": 0,
            "generation_config": "vllm",
        }
        self.pools = settings.get("runner") == "pooling"
        self.llm = vllm.LLM(max_logprobs=LISTED, **fixed | settings)

    def emptied(self) -> bool:
        return self.llm.reset_prefix_cache()

    def generate(
        self, prompts: list, new_tokens: int | list[int], listed: int | None = None, together: bool = False
    ) -> tuple[list[dict[str, Any]], float]:
        ids = [{"prompt_token_ids": prompt} for prompt in prompts]
        if self.pools:
            began = time.perf_counter()
            found = self.llm.embed(ids, use_tqdm=False)
            answers = [{"embedding": one.outputs.embedding, "tokens": [], "logprobs": [], "cached": 0} for one in found]
            return answers, time.perf_counter() - began
        each = isinstance(new_tokens, list)
        params = [self._params(one, listed) for one in new_tokens] if each else self._params(new_tokens, listed)
        if together:
            self.llm.sleep(level=0)  # requests are taken, and wait
            self.llm.enqueue(ids, params, use_tqdm=False)
        began = time.perf_counter()
        if together:
            self.llm.wake_up(tags=["scheduling"])
            outputs = self.llm.wait_for_completion(use_tqdm=False)
        else:
            outputs = self.llm.generate(ids, params, use_tqdm=False)
        return [self._answer(output) for output in outputs], time.perf_counter() - began

    def _params(self, new_tokens: int, listed: int | None) -> Any:
        return self.vllm.SamplingParams(
            temperature=0.0, max_tokens=new_tokens, logprobs=listed, ignore_eos=True, detokenize=False
        )

    @staticmethod
    def _answer(output: Any) -> dict[str, Any]:
        seen = output.outputs[0]
        each = [{str(token): one.logprob for token, one in listed.items()} for listed in seen.logprobs or ()]
        return {"tokens": list(seen.token_ids), "logprobs": each, "cached": output.num_cached_tokens}


class Sglang(Child):
    """Token ids go to the scheduler as one message: it has all prompts before its next step."""

    engine = "sglang"
    pools = False
    adapters: tuple[str | None, ...] = (None,)  # of a prompt, the one at its first token modulo their number

    def load(self, settings: dict[str, Any]) -> None:
        import sglang
        from sglang.srt.server_args import ServerArgs

        model = settings.pop("model")
        self.pools = settings.get("is_embedding", False)
        self.adapters = (None, *(path.partition("=")[0] for path in settings.get("lora_paths", ())))
        settings = {RENAMED[name] if hasattr(ServerArgs, RENAMED.get(name, "-")) else name: to for name, to in settings.items()}
        self.llm = sglang.Engine(
            model_path=model, skip_tokenizer_init=True, random_seed=1, log_level="warning", **settings
        )  # fmt: skip

    def emptied(self) -> bool:
        return self.llm.flush_cache().success

    def generate(
        self, prompts: list, new_tokens: int | list[int], listed: int | None = None, together: bool = False
    ) -> tuple[list[dict[str, Any]], float]:
        if self.pools:
            return self._embedded(prompts)
        params = [_params(one) for one in new_tokens] if isinstance(new_tokens, list) else _params(new_tokens)
        asked: dict[str, Any] = {"return_logprob": True, "top_logprobs_num": listed} if listed else {}
        shown = [images(prompt) for prompt in prompts]
        if any(shown):
            asked["image_data"] = [[one | {"format": "processor_output"}] if one else [] for one in shown]
        if len(self.adapters) > 1:
            asked["lora_path"] = [self.adapters[prompt[0] % len(self.adapters)] for prompt in prompts]
        began = time.perf_counter()
        found = self.llm.generate(input_ids=prompts, sampling_params=params, **asked)
        return [self._answer(one) for one in found], time.perf_counter() - began

    def _embedded(self, prompts: list) -> tuple[list[dict[str, Any]], float]:
        """`Engine.encode` takes texts alone."""
        from sglang.srt.managers.io_struct import EmbeddingReqInput

        began = time.perf_counter()
        asked = self.llm.tokenizer_manager.generate_request(EmbeddingReqInput(input_ids=prompts), None)
        found = self.llm.loop.run_until_complete(anext(asked))
        answers = [{"embedding": one["embedding"], "tokens": [], "logprobs": [], "cached": 0} for one in found]
        return answers, time.perf_counter() - began

    @staticmethod
    def _answer(one: dict[str, Any]) -> dict[str, Any]:
        about = one["meta_info"]
        each = [{str(token): value for value, token, *_ in listed} for listed in about.get("output_top_logprobs", ())]
        answer = {"tokens": one["output_ids"], "logprobs": each, "cached": about["cached_tokens"]}
        steps = about.get("spec_verify_ct")  # with drafts: how many tokens a step has given
        return answer | ({"accepted": about["completion_tokens"] / steps} if steps else {})


def _params(new_tokens: int) -> dict[str, Any]:
    return {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True}


def serve(child: Child) -> None:
    """Do what comes on standard input until there is no more. Output of the engine goes to standard error, which is the log."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(child, request.pop("do"))(**request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve({"vllm": Vllm, "sglang": Sglang}[sys.argv[1]]())
