#!/usr/bin/env python3
"""What vllm.mla-context-order changes in a real vLLM on this machine's GPU: log probabilities of a long prompt, in company.

    python scripts/gpu_context_order.py [--out DIR]     a minute or two for each of three servers, one after another
    … --v2                                              vLLM 0.20-0.23, where Model Runner V2 is off by default
    … --runs stock fixed                                only these of stock, fixed, old

Needs a vLLM of 0.20.0-0.27.1 and attnfix, on PYTHONPATH or installed, and no network: the model is a small DeepSeek-V2 with
random weights, prompts are token ids. Each server is a fresh process: `stock` with ATTNFIX=0, `fixed` with attnfix merely
installed, `old` is stock with the older runner, which puts requests with context first. In each, the same request is served
alone and in company, in two ways:
    chunked     a prompt of five steps, whose last part shares its step with a shorter fresh prompt
    cached      a prompt whose prefix lies in the prefix cache; its step is shared with a shorter fresh prompt
Reported are the log probabilities of its first new token: alone against in company. Writes DIR/gpu_context_order.json and the
servers' logs. Exits 1 when a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tiny_deepseek

FIX = "vllm.mla-context-order"
STEP = 2048  # max_num_batched_tokens
FRESH = 600  # tokens of a short prompt: the FlashAttention backend sends up to 512 new ones through its decode path
TOP, LISTED, NEW_TOKENS = 20, 200, 8
#: Difference of two log probabilities up to which they count as equal: bfloat16 and other batch sizes round differently
ROUNDING = 0.03
SERVERS = {"stock": {"ATTNFIX": "0"}, "fixed": {}, "old": {"ATTNFIX": "0", "VLLM_USE_V2_MODEL_RUNNER": "0"}}


def prompts() -> dict[str, dict[str, list]]:
    """scenario -> {"before": …, "alone": …, "company": …}, each a list of prompts (token ids) sent at once. The one that is
    looked at is the last of "alone"; it is in "company", too. `before` fills the prefix cache."""
    draw = random.Random(0)
    tokens = lambda n: [draw.randrange(2, tiny_deepseek.VOCABULARY) for _ in range(n)]  # noqa: E731
    long = tokens(4 * STEP + 1300)
    # Fills whole steps, so that all that was sent behind it starts together
    ahead, prefix = tokens(4 * STEP), tokens(6000)
    cached = prefix + tokens(1000)
    return {
        # The budget of the fifth step leaves room for it
        "chunked": {"before": [], "alone": [long], "company": [long, tokens(FRESH)]},
        "cached": {"before": [prefix], "alone": [ahead, cached], "company": [ahead, tokens(FRESH), cached]},
    }


# One server


def serve(model: str, eager: bool) -> dict[str, Any]:
    """{scenario: {"alone" or "company": {"tokens": […], "logprobs": {token: log probability}}}} of a vLLM started here, and
    under "machine" what it ran on."""
    import torch
    import vllm

    llm = vllm.LLM(
        model=model, skip_tokenizer_init=True, dtype="bfloat16", seed=0, enforce_eager=eager, max_model_len=16384,
        max_num_batched_tokens=STEP, max_num_seqs=16, max_logprobs=LISTED, gpu_memory_utilization=0.5,
        enable_prefix_caching=True, generation_config="vllm",
    )  # fmt: skip
    params = vllm.SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, logprobs=LISTED, ignore_eos=True, detokenize=False)
    found: dict[str, Any] = {}
    for scenario, sent in prompts().items():
        found[scenario] = {}
        for way in ("alone", "company"):
            _forget(llm)
            if sent["before"]:
                _generate(llm, sent["before"], params)
            outputs = _generate(llm, sent[way], params)
            (seen,) = (output.outputs[0] for output, prompt in zip(outputs, sent[way]) if prompt is sent["alone"][-1])
            listed = {str(token): entry.logprob for token, entry in seen.logprobs[0].items()}
            found[scenario][way] = {"tokens": list(seen.token_ids), "logprobs": listed}
    found["machine"] = {"vllm": vllm.__version__, "torch": torch.__version__, "gpu": torch.cuda.get_device_name()}
    return found


def _generate(llm: Any, wanted: list, params: Any) -> list:
    return llm.generate([{"prompt_token_ids": prompt} for prompt in wanted], params, use_tqdm=False)


def _forget(llm: Any) -> None:
    """Empty the prefix cache; blocks of the last requests may take a moment to be free."""
    for _ in range(50):
        if llm.reset_prefix_cache():
            return
        time.sleep(0.1)
    raise RuntimeError("the prefix cache cannot be reset")


# The comparison


def compare(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Two answers to one request: largest difference of a log probability over the TOP tokens of `a`, how many of them are
    also among those of `b`, and how many new tokens are equal before the first that is not.

    A token that `b` does not list is less probable than all it lists: the difference is then a lower bound.
    """
    best = [sorted(side["logprobs"], key=side["logprobs"].get, reverse=True)[:TOP] for side in (a, b)]
    floor = min(b["logprobs"].values())
    differences = [abs(a["logprobs"][token] - b["logprobs"].get(token, floor)) for token in best[0]]
    equal = [x == y for x, y in zip(a["tokens"], b["tokens"])] + [False]
    return {"difference": max(differences), "in_common": len(set(best[0]) & set(best[1])), "equal_tokens": equal.index(False)}


def patched(records: dict[str, Any]) -> list[dict[str, Any]]:
    """State and counters of the fix in each process that has a record; `records` is what `attnfix status --json` prints."""
    return [
        {"process": process["pid"], "state": row["state"], **row["counters"]}
        for process in records["processes"]
        for row in process["fixes"]
        if row["fix"] == FIX
    ]


def failures(results: dict[str, Any]) -> list[str]:
    """One sentence for each check that does not hold."""
    wrong = []
    for server, result in results.items():
        stands = [row for row in result["records"] if row["state"] == "effective"]
        if server == "fixed" and (len(stands) != 1 or stands[0]["corrections"] < len(result["compared"])):
            wrong.append(f"fixed: {FIX} should be effective in one process and have corrected: {result['records']}")
        if server != "fixed" and result["records"]:
            wrong.append(f"{server}: attnfix was active: {result['records']}")
        for scenario, seen in result["compared"].items():
            if server == "stock" and seen["difference"] <= 2 * ROUNDING:
                wrong.append(f"stock, {scenario}: no difference. Was a step shared, and is this Model Runner V2 (--v2)?")
            if server != "stock" and seen["difference"] > ROUNDING:
                wrong.append(f"{server}, {scenario}: alone and in company differ by {seen['difference']:.3g}")
            if server == "fixed" and "stock" in results:
                same = compare(results["stock"]["answers"][scenario]["alone"], result["answers"][scenario]["alone"])
                if same["difference"] > ROUNDING:
                    wrong.append(f"fixed, {scenario}: alone, it differs from stock by {same['difference']:.3g}")
    return wrong


def table(results: dict[str, Any]) -> str:
    lines = [f"{'server':<8}{'scenario':<10}{'largest difference':>20}{f'of the top {TOP}':>16}{'equal tokens':>14}"]
    for server, result in results.items():
        for scenario, seen in result["compared"].items():
            equal, common = f"{seen['equal_tokens']} of {NEW_TOKENS}", f"{seen['in_common']} of {TOP}"
            lines.append(f"{server:<8}{scenario:<10}{seen['difference']:>20.4g}{common:>16}{equal:>14}")
        for row in result["records"]:
            lines.append(f"  {FIX}: {row['state']}, {row['corrections']} corrections in {row['calls']} calls")
    return "\n".join(lines)


# All servers


def run_server(name: str, model: Path, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Serve in a fresh process; {"answers", "compared", "records"}. Raises SystemExit where it does not come to an answer."""
    records, answer = out / f"{name}-records", out / f"{name}.json"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ATTNFIX")}
    environment.pop("VLLM_USE_V2_MODEL_RUNNER", None)
    environment |= {"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_NO_USAGE_STATS": "1"}
    environment |= {"HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": "1"}  # the installed attnfix, not the source folder
    environment |= {"VLLM_USE_V2_MODEL_RUNNER": "1"} if options.v2 else {}
    environment |= {"ATTNFIX_RUN_DIR": str(records), **SERVERS[name]}
    answer.unlink(missing_ok=True)
    shutil.rmtree(records, ignore_errors=True)
    command = [sys.executable, str(Path(__file__).resolve()), "--serve", str(model), "--answer", str(answer)]
    command += ["--eager"] if options.eager else []
    with open(out / f"{name}.log", "w") as log:
        subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
    if not answer.is_file():
        raise SystemExit(f"{name}: no answer\n" + "".join((out / f"{name}.log").read_text().splitlines(True)[-40:]))
    status = [sys.executable, "-m", "attnfix", "status", "--json"]
    told = json.loads(subprocess.run(status, env=environment, check=True, capture_output=True, text=True).stdout)
    answers = json.loads(answer.read_text())
    compared = {scenario: compare(answers[scenario]["alone"], answers[scenario]["company"]) for scenario in prompts()}
    return {"answers": answers, "compared": compared, "records": patched(told)}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, default=Path("gpu_context_order"), help="folder for results and logs")
    arguments.add_argument("--runs", nargs="+", choices=SERVERS, default=list(SERVERS), help="which servers")
    arguments.add_argument("--v2", action="store_true", help="ask for Model Runner V2")
    arguments.add_argument("--eager", action="store_true", help="no torch.compile, no CUDA graphs: starts faster")
    arguments.add_argument("--serve", metavar="MODEL", help=argparse.SUPPRESS)
    arguments.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.serve:
        options.answer.write_text(json.dumps(serve(options.serve, options.eager)))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    results = {}
    with tempfile.TemporaryDirectory(prefix="attnfix-") as scratch:
        tiny_deepseek.make(Path(scratch, "model"))
        for name in options.runs:
            results[name] = run_server(name, Path(scratch, "model"), options.out.resolve(), options)
    wrong = failures(results)
    machine = next(iter(results.values()))["answers"]["machine"]
    report = {**machine, "eager": options.eager, "results": results, "failures": wrong}
    (options.out / "gpu_context_order.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"vLLM {machine['vllm']}, torch {machine['torch']}, {machine['gpu']}")
    print("First new token of a long prompt: log probabilities alone against in company")
    print(table(results))
    print("\n".join(wrong) or "all checks hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
