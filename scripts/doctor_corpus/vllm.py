"""Labels of the doctor's corpus for vLLM (`corpus.py`).

    python -m scripts.doctor_corpus.vllm [RELEASE…]   asks releases, and labels what they say
    python -m scripts.doctor_corpus.vllm labels       labels again what they said

A process for each release and GPU, forked for each case: what an engine keeps for itself there is gone afterwards.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from attnfix.compat.releases import fetch
from attnfix.prove.side import _in_a_fork

from . import corpus, vllm_facts, vllm_gpu

_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "CRITICAL", "OMP_NUM_THREADS": "1", "ATTNFIX": "0",
    "VLLM_HAS_FLASHINFER_CUBIN": "1",  # as in the images: FlashInfer needs to load no kernels
}  # fmt: skip


def asked(release: str, of: list[corpus.Case]) -> list[dict[str, Any]]:
    """What the release chooses for each case."""
    os.environ.update(_ENVIRONMENT)
    vllm_gpu.load_what_asks_once()
    site = fetch.fetch("vllm", release)
    answers: dict[corpus.Case, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as models:
        corpus.write_models(Path(models))
        for gpu in dict.fromkeys(case.gpu for case in of):
            cases = [case for case in of if case.gpu == gpu]
            answer = _in_a_fork(_on_gpu, site, gpu, Path(models), cases)
            if "error" in answer:
                raise SystemExit(f"vLLM {release} on {gpu} did not answer: {answer['error']}\n{answer.get('traceback', '')}")
            answers |= zip(cases, answer["answers"], strict=True)
    return [answers[case] for case in of]


def _on_gpu(site: Path, gpu: str, models: Path, cases: list[corpus.Case]) -> dict[str, Any]:
    sys.path.insert(0, str(site))
    vllm_gpu.emulate(vllm_gpu.DEVICES[gpu])
    import_module("vllm.engine.arg_utils")  # before the forks, for all of them
    quantization: Any = import_module("vllm.model_executor.layers.quantization")
    quantization.get_quantization_config("fp8")  # imports all of them
    registry: Any = import_module("vllm.model_executor.models.registry")
    registry._run_in_subprocess = lambda inspect: inspect()
    by_model = {case.model: [one for one in cases if one.model == case.model] for case in cases}
    answers: dict[corpus.Case, dict[str, Any]] = {}
    for model, of_model in by_model.items():
        answers |= zip(of_model, _in_a_fork(_of_model, model, models, of_model)["answers"], strict=True)
    return {"answers": [answers[case] for case in cases]}


def _of_model(model: str, models: Path, cases: list[corpus.Case]) -> dict[str, Any]:
    registry = import_module("vllm.model_executor.models").ModelRegistry
    for architecture in corpus.config_of(model)["architectures"]:
        if architecture in registry.models:
            with suppress(Exception):  # then no server starts, and each case says why
                registry.models[architecture].inspect_model_cls()
    return {"answers": [_in_a_fork(_answer, case, models) for case in cases]}


def _answer(case: corpus.Case, models: Path) -> dict[str, Any]:
    arguments: Any = import_module("vllm.engine.arg_utils").AsyncEngineArgs
    parser: Any = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    usage: Any = import_module("vllm.usage.usage_lib").UsageContext
    try:
        words = ["--model", str(models / case.model), *case.options(models)]
        asked = arguments.from_cli_args(arguments.add_cli_args(parser()).parse_args(words))
        config = asked.create_engine_config(usage.OPENAI_API_SERVER)
    except (Exception, SystemExit) as error:
        return {"refused": _reason(error)}
    try:
        return {"facts": vllm_facts.facts_of(config)}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}


def _reason(error: BaseException) -> str:
    text = re.sub(rf"{re.escape(tempfile.gettempdir())}/\S+", "FOLDER", str(error))
    match = re.search(r"(?:Value|Assertion) error, (.+?)(?: \[type=|$)", text, re.S)
    return f"{type(error).__name__}: {(match[1] if match else text).strip().splitlines()[0][:200] if text.strip() else ''}"


if __name__ == "__main__":
    corpus.main("vllm", asked, sys.argv[1:])
