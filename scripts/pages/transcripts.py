#!/usr/bin/env python3
"""Writes build/transcripts.md for the site: each command typed on a deployment of a real release, and what it printed.

    python -m scripts.pages.transcripts [FILE]

Exits 1 where a command does not print what its section promises. The deployment is that of scripts/serve/deployment.py, in a
folder of its own. Takes two minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attnfix.compat.releases import fetch

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "build" / "transcripts.md"
ENGINE, RELEASE, FIX = "vllm", "0.25.1", "vllm.mla-context-order"
WIDTH = 100
#: What doctor reads of a model: as published for DeepSeek-V2-Lite
MODEL = {
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "num_attention_heads": 16,
    "num_key_value_heads": 16, "hidden_size": 2048, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163840, "torch_dtype": "bfloat16",
}  # fmt: skip


@dataclass(frozen=True)
class Section:
    """`command` is typed in a shell; `shows`: words that it prints; `serving`: while the deployment runs."""

    title: str
    why: str
    command: str
    shows: tuple[str, ...]
    serving: bool = False


SECTIONS = (
    Section(
        "What is here?",
        "`attnfix` alone says what it finds on this machine, and what to type next.",
        "attnfix",
        (f"{ENGINE} {RELEASE}: ", "attnfix doctor MODEL_FOLDER"),
    ),
    Section(
        "Before the start",
        "`attnfix doctor` says which known bugs this deployment would hit. It needs no GPU and no engine code.",
        "attnfix doctor model --gpu h200 -- vllm serve ./model --tensor-parallel-size 2",
        (f"{FIX}: hit", "attention: MLA"),
    ),
    Section(
        "While it serves",
        "`attnfix status`, after two ranks have run a batch that the fix corrects.",
        "attnfix status; echo exit code $?",
        ("worker TP0", "worker TP1", "effective", "8 calls", "4 corrected", "exit code 0"),
        True,
    ),
    Section(
        "For a bug report",
        "`attnfix report` collects everything that a maintainer asks for, and nothing secret. This is a part of it:",
        f"attnfix report --json | grep -m 1 -A 6 '{FIX}'",
        ('"verdict": "affected"', f'"release": "{RELEASE}"'),
        True,
    ),
    Section(
        "Before an upgrade",
        "`attnfix forecast` says what an upgrade changes for the fixes.",
        "attnfix forecast vllm==0.33.0",
        (f"{ENGINE} {RELEASE} (installed) → 0.33.0", "no longer needed"),
    ),
    Section(
        "One release",
        "`attnfix verdict` lists the bugs of a published release and what goes wrong.",
        "attnfix verdict vllm==0.25.1",
        ("what goes wrong", "does not have the bugs of"),
    ),
    Section("The catalogue", "`attnfix list` shows all fixes.", "attnfix list", (FIX, "goes wrong")),
    Section(
        "Bugs without a fix",
        "`attnfix known` lists the bugs of published releases that attnfix knows and does not correct.",
        "attnfix known | head -n 12",
        ("bugs without a fix", "affected releases"),
    ),
    Section(
        "One fix",
        "`attnfix explain` tells everything about one fix.",
        f"attnfix explain {FIX}",
        ("cause", "correction", "fixed in 0.28.0"),
    ),
    Section(
        "Red, then green",
        "`attnfix prove` runs the engine's own code stock and fixed, in fresh processes, and compares both with float64.",
        f"attnfix prove --fix {FIX} --seed 1",
        ("proven", "emulated"),
    ),
    Section(
        "Is its attention right?",
        "`attnfix probe` asks a running server. Where none listens, it says so; what it answers otherwise: [probe](probe.md).",
        "attnfix probe http://localhost:9; echo exit code $?",
        ("does not answer", "exit code 2"),
    ),
    Section(
        "Where no `.pth` is processed",
        "`attnfix run` puts a folder first on PYTHONPATH. Its `sitecustomize` activates attnfix in all Pythons of the command.",
        "attnfix run -- python -c \"import sys; print('attnfix_path_entry' in sys.modules)\"",
        ("True",),
    ),
    Section(
        "A word misspelt",
        "A misspelt command gets the nearest one as a suggestion.",
        "attnfix forcast vllm",
        ("did you mean forecast?",),
    ),
    Section(
        "The kernels",
        "`attnfix bench` on a machine without a GPU. Figures from a machine with a GPU are in [kernels](kernels.md).",
        "attnfix bench",
        ("no CUDA GPU here",),
    ),
)
HEAD = f"""\
# Transcripts

Commands you will need, with sample output. `scripts/pages/transcripts.py` runs every command and writes this page. The
engine is the published code of {ENGINE} {RELEASE}, on a machine without a GPU. One process imports
the package, and two ranks run one batch of the proof of `{FIX}`, with stand-ins for GPU kernels
(`scripts/serve/deployment.py`).
"""


def transcripts() -> Iterator[tuple[Section, str]]:
    """Each section with what its command printed, made ready to be read."""
    site = fetch.fetch(ENGINE, RELEASE)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model").mkdir()
        (Path(folder) / "model" / "config.json").write_text(json.dumps(MODEL))
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("ATTNFIX", "PYTHON"))}
        environment = clean | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(site),
            "ATTNFIX_RUN_DIR": f"{folder}/run",
            "COLUMNS": str(WIDTH),
            "CUDA_VISIBLE_DEVICES": "",
            "TRITON_INTERPRET": "1",
            "OMP_NUM_THREADS": "1",
        }
        names = {str(site): "…/site-packages", str(folder): "…", str(Path(sys.executable).parent): "…/bin"}
        names |= {str(ROOT): "…/attnfix", str(Path.home()): "~"}
        with serving(environment, folder):
            shown = {section: output(section.command, environment, folder) for section in SECTIONS if section.serving}
        for section in SECTIONS:
            text = shown[section] if section in shown else output(section.command, environment, folder)
            yield section, readable(text, names)


@contextlib.contextmanager
def serving(environment: dict[str, str], folder: str) -> Iterator[None]:
    command = [sys.executable, str(ROOT / "scripts" / "serve" / "deployment.py"), f"{ENGINE}=={RELEASE}", FIX]
    with open(f"{folder}/log", "w") as log, subprocess.Popen(
        command, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout
        try:
            if not any(line == "ready\n" for line in process.stdout):
                raise RuntimeError(f"the deployment ended before it was ready:\n{Path(folder, 'log').read_text()}")
            yield
        finally:
            process.stdin.close()


def output(command: str, environment: dict[str, str], folder: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command], env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.stdout


def readable(text: str, names: dict[str, str]) -> str:
    for path, name in names.items():
        text = text.replace(path, name)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def page() -> str:
    """The page. Raises ValueError where a command does not print what its section promises."""
    parts = [HEAD]
    for section, text in transcripts():
        print(f"{section.title}: {section.command}", file=sys.stderr)
        parts.append(_part(section, checked(section, text)))
    return "\n".join(parts)


def checked(section: Section, text: str) -> str:
    """`text`, which is what the command of that section printed."""
    lacking = [words for words in section.shows if words not in text]
    if lacking or "Traceback (most recent call last)" in text:
        raise ValueError(f"`{section.command}` does not show {lacking or 'a result'}:\n{text}")
    return text


def kept() -> str:
    """The page as it was last written; without one, the commands alone."""
    if PAGE.is_file():
        return PAGE.read_text()
    told = "The output is not here: `python -m scripts.pages.transcripts` runs all commands and adds it.\n"
    return "\n".join([HEAD, told, *(_part(section, "…") for section in SECTIONS)])


def _part(section: Section, text: str) -> str:
    return f"## {section.title}\n\n{section.why}\n\n```console\n$ {section.command}\n{text}\n```\n"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("file", type=Path, nargs="?", default=PAGE)
    file = arguments.parse_args().file
    try:
        text = page()
    except ValueError as wrong:
        print(wrong, file=sys.stderr)
        return 1
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
