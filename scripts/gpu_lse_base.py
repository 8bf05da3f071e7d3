#!/usr/bin/env python3
"""Serves a tiny DeepSeek-V2 with a real sglang and FlashInfer's kernels: a long prompt uncached, then with its prefix cached.

    python scripts/gpu_lse_base.py --out DIR        with sglang 0.5.13 and attnfix installed beside it; about 5 minutes

Stock (ATTNFIX=0) and fixed are two servers with the same command. The log-probabilities of the next token must not depend on
where the prefix came from. By default one-shot attention covers batches up to 128k tokens; SGLANG_MAX_KV_CHUNK_CAPACITY brings
the path that merges chunks within reach of a small run, as trtllm_mla takes it on every prefix hit of 8192.
Prints a table and writes DIR/gpu_lse_base.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tiny_deepseek

PREFIX, NEW, PROMPTS, TOP = 8192, 64, 4, 20
_ENVIRONMENT = {"SGLANG_MAX_KV_CHUNK_CAPACITY": "2048"}


def serve(model: str, out: str) -> None:
    """In a process of its own: the log-probabilities of each prompt's next token, uncached and cached, as JSON in `out`."""
    import sglang

    engine = sglang.Engine(
        model_path=model, skip_tokenizer_init=True, attention_backend="flashinfer", sampling_backend="pytorch",
        grammar_backend="none", disable_cuda_graph=True, disable_piecewise_cuda_graph=True, chunked_prefill_size=-1,
        max_prefill_tokens=32768, mem_fraction_static=0.4, context_length=16384, random_seed=1, log_level="warning",
    )  # fmt: skip
    draw, rows = random.Random(20), []
    for _ in range(PROMPTS):
        prefix, new = ([draw.randrange(2, tiny_deepseek.VOCABULARY) for _ in range(n)] for n in (PREFIX, NEW))
        engine.flush_cache()
        uncached = _next_token(engine, prefix + new)
        engine.flush_cache()
        _next_token(engine, prefix)
        rows.append({"uncached": uncached, "cached": _next_token(engine, prefix + new)})
    from attnfix.compat import records

    found = [fix for record in records.read_all() for fix in record["fixes"] if fix["fix"] == "sglang.lse-log-base"]
    Path(out).write_text(json.dumps({"rows": rows, "states": found, "sglang": sglang.__version__}))
    engine.shutdown()


def _next_token(engine: object, tokens: list[int]) -> dict:
    answer = engine.generate(  # type: ignore[attr-defined]
        input_ids=tokens, sampling_params={"max_new_tokens": 1, "temperature": 0}, return_logprob=True, top_logprobs_num=TOP
    )
    about = answer["meta_info"]
    top = {str(token): value for value, token, *_ in about["output_top_logprobs"][0]}
    return {"cached_tokens": about["cached_tokens"], "top": top}


def compare(rows: list[dict]) -> list[dict]:
    """Per prompt: tokens found in the cache, largest difference in log-probability, and how many of the top 20 both have."""
    compared = []
    for row in rows:
        a, b = row["uncached"]["top"], row["cached"]["top"]
        both = a.keys() & b.keys()
        difference = max((abs(a[token] - b[token]) for token in both), default=float("inf"))
        compared.append({"cached_tokens": row["cached"]["cached_tokens"], "difference": difference, "in_common": len(both)})
    return compared


def run(model: Path, side: str, scratch: Path) -> dict:
    out, folder = scratch / f"{side}.json", scratch / f"records-{side}"
    folder.mkdir(mode=0o700)
    environment = {**os.environ, **_ENVIRONMENT, "ATTNFIX_RUN_DIR": str(folder)}
    if side == "stock":
        environment["ATTNFIX"] = "0"
    subprocess.run([sys.executable, __file__, "--serve", str(model), str(out)], env=environment, check=True)
    answer = json.loads(out.read_text())
    return {"prompts": compare(answer["rows"]), "states": answer["states"], "sglang": answer["sglang"]}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, default=Path("."))
    arguments.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.serve:
        serve(*options.serve)
        return 0
    import torch

    with tempfile.TemporaryDirectory() as scratch:
        model = tiny_deepseek.make(Path(scratch) / "model")
        sides = {side: run(model, side, Path(scratch)) for side in ("stock", "fixed")}
    from importlib.metadata import version

    about = {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "python": platform.python_version(),
        "sglang": sides["stock"].pop("sglang"), "flashinfer": version("flashinfer-python"), "prefix": PREFIX, "new": NEW,
        "environment": _ENVIRONMENT, **sides,
    }  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu_lse_base.json").write_text(json.dumps(about, indent=1) + "\n")
    print(f"sglang {about['sglang']}, FlashInfer {about['flashinfer']}, {about['gpu']}: {PREFIX} tokens cached + {NEW} new")
    for side, found in sides.items():
        for at, row in enumerate(found["prompts"]):
            print(
                f"  {side} prompt {at}: {row['cached_tokens']} cached, log-probabilities differ by {row['difference']:.3f}, "
                f"{row['in_common']} of the top {TOP} in common"
            )
        for state in found["states"]:
            print(f"  {side}: {state['state']}, {state['reason']}; {state['counters']}")
    stock, fixed = ([row["difference"] for row in sides[side]["prompts"]] for side in ("stock", "fixed"))
    effective = any(state["state"] == "effective" for state in sides["fixed"]["states"])
    return 0 if effective and max(fixed) < min(stock) / 3 else 1


if __name__ == "__main__":
    sys.exit(main())
