"""The page of transcripts shows every command, and each prints on a deployment of a real release what its section promises."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from attnfix.cli import COMMANDS
from scripts.pages import transcripts


def test_every_command_is_shown():
    shown = {word for section in transcripts.SECTIONS for word in re.findall(r"\battnfix (\w+)", section.command)}
    assert shown >= set(COMMANDS)
    assert all(section.shows for section in transcripts.SECTIONS)


def test_commands_print_what_the_page_promises(tmp_path):
    page = tmp_path / "made" / "transcripts.md"
    command = [sys.executable, "-m", "scripts.pages.transcripts", page]
    done = subprocess.run(command, cwd=transcripts.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    text = page.read_text()
    for section in transcripts.SECTIONS:
        _, _, part = text.partition(f"$ {section.command}\n")
        assert all(words in part.partition("```")[0] for words in section.shows), section.title
    assert str(transcripts.ROOT) not in text and str(tmp_path) not in text, "a path of this machine"


@pytest.mark.parametrize("text", ["", "another word", "as promised\nTraceback (most recent call last):"])
def test_a_command_that_prints_something_else_is_seen(text, monkeypatch, tmp_path, capsys):
    section = transcripts.Section("A title", "Why.", "attnfix x", ("as promised",))
    assert transcripts.checked(section, "it is as promised") == "it is as promised"
    monkeypatch.setattr(transcripts, "transcripts", lambda: iter([(section, text)]))
    monkeypatch.setattr(sys, "argv", ["transcripts", str(tmp_path / "page.md")])
    assert transcripts.main() == 1 and not (tmp_path / "page.md").exists()
    assert "attnfix x" in capsys.readouterr().err


def test_without_a_run_the_page_shows_the_commands(monkeypatch, tmp_path):
    monkeypatch.setattr(transcripts, "PAGE", tmp_path / "transcripts.md")
    assert all(f"$ {section.command}\n…" in transcripts.kept() for section in transcripts.SECTIONS)
    transcripts.PAGE.write_text("as it was run")
    assert transcripts.kept() == "as it was run"
