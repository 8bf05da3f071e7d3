"""docs/transcripts.md shows every command, as it prints today on a deployment of a real release."""

from __future__ import annotations

import re
import subprocess
import sys

from attnfix.cli import COMMANDS
from scripts.pages import transcripts


def test_every_command_is_shown():
    shown = {word for section in transcripts.SECTIONS for word in re.findall(r"\battnfix (\w+)", section.command)}
    assert shown >= set(COMMANDS)


def test_commands_print_what_the_page_shows():
    done = subprocess.run([sys.executable, transcripts.__file__, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_comparison_sees_a_word_and_a_count_but_no_pid():
    line = " worker TP0  {pid}  effective {calls}/4  {state}   1.2 → 0.0025"
    page = transcripts.comparable(line.format(pid=1348, calls=8, state="installed"))
    assert page == transcripts.comparable(line.format(pid=72611, calls=8, state="installed").replace("1.2", "0.9"))
    assert page == transcripts.comparable(line.format(pid=7, calls=8, state="installed"))
    assert page != transcripts.comparable(line.format(pid=1348, calls=9, state="installed"))
    assert page != transcripts.comparable(line.format(pid=1348, calls=8, state="off"))
