"""The table of sglang's models, read in a small source of the engine's form."""

from __future__ import annotations

import pytest

from scripts.doctor_corpus.sglang_tables import Release

MODELS = {
    "plain.py": (
        "class PlainForCausalLM: ...\nclass OtherForCausalLM(PlainForCausalLM): ...\n"
        "EntryClass = [PlainForCausalLM, OtherForCausalLM]"
    ),
    "window.py": (
        "def window(config):\n    return config.sliding_window - 1\n"
        "class WindowForCausalLM:\n    def get_attention_sliding_window_size(self):\n        return window(self.config)\n"
        "EntryClass = WindowForCausalLM"
    ),
    "heir.py": (
        "from sglang.srt.models.window import WindowForCausalLM\n"
        "class HeirForCausalLM(WindowForCausalLM):\n    def f(self):\n        RadixAttention(logit_cap=self.cap)\n"
        "EntryClass = HeirForCausalLM"
    ),
    "maybe.py": (
        "class MaybeForCausalLM:\n    def get_attention_sliding_window_size(self):\n"
        "        return self.config.window - 1 if self.config.window else None\n"
        "EntryClass = MaybeForCausalLM"
    ),
}
ARGUMENTS = """
FAMILY = ("HeirForCausalLM",)
class ServerArgs:
    def _adjust(self):
        if model_arch in ["PlainForCausalLM", "OtherForCausalLM"]:
            self.page_size = 1
            if model_arch == "OtherForCausalLM":
                self.attention_backend = "triton"
        elif "Window" in model_arch:
            self._handle(sm100_default_attention_backend="triton")
        elif model_arch in FAMILY:
            self.decode_attention_backend = "fa3"
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    site = tmp_path_factory.mktemp("srt")
    for folder in ("models", "configs"):
        (site / folder).mkdir()
    for name, text in MODELS.items():
        (site / "models" / name).write_text(text)
    (site / "server_args.py").write_text(ARGUMENTS)
    (site / "configs" / "model_config.py").write_text(
        'def is_hybrid_swa_model(names):\n    return "WindowForCausalLM" in names\n'
    )
    return dict(Release(site).rows())


@pytest.mark.parametrize(
    "architecture, row",
    [
        ("PlainForCausalLM", ["none", "none", "common", False, "models/plain.py:1"]),
        ("OtherForCausalLM", ["none", "none", None, False, "models/plain.py:2"]),
        ("WindowForCausalLM", ["short", "none", None, True, "models/window.py:4"]),
        ("HeirForCausalLM", ["short", None, None, False, "models/window.py:4"]),
        ("MaybeForCausalLM", [None, "none", "common", False, "models/maybe.py:2"]),
    ],
)
def test_a_row(rows, architecture, row):
    assert rows[architecture] == row
