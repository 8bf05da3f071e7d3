"""docs/monitoring: the rules are sound and alert when they should, and the dashboard asks for what attnfix exposes.

promtool and prometheus are in Debian's package `prometheus`. What needs them is skipped where they are not on the path.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml

from attnfix.compat.status import fix_state, metrics
from tests.support.metrics_pages import FIX, OTHER, process
from tests.support.pages import Page
from tests.support.required import lacking

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
RULES, TESTS = FOLDER / "attnfix.rules.yml", FOLDER / "attnfix.rules.test.yml"
RULE_LIST = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
ALERTS = [rule["alert"] for rule in RULE_LIST if "alert" in rule]
RECORDED = {rule["record"] for rule in RULE_LIST if "record" in rule}
DASHBOARD = json.loads((FOLDER / "attnfix.dashboard.json").read_text())
QUERIES = {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in DASHBOARD["panels"]}
EXPRESSIONS = [rule["expr"] for rule in RULE_LIST] + [query for queries in QUERIES.values() for query in queries]
#: What Prometheus adds to each sample, and knows of each target
ADDED, OWN = {"job", "instance"}, {"up": {"job", "instance"}}


def filled_in(query: str) -> str:
    """As Grafana fills the dashboard's variables in."""
    return query.replace("$job", ".*").replace("$__rate_interval", "1m")


def promtool(*arguments, cwd=FOLDER) -> subprocess.CompletedProcess:
    if not shutil.which("promtool"):
        lacking("prometheus", "no promtool here: Debian has it in the package prometheus")
    return subprocess.run(["promtool", *map(str, arguments)], cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_only_metrics_labels_and_states_that_attnfix_exposes_are_named(expression):
    names = set(re.findall(r"\b(?:attnfix[\w:]*|up)\b(?!\")", re.sub(r'"[^"]*"|by \([^)]*\)|on \([^)]*\)', "", expression)))
    assert names <= metrics.METRICS.keys() | RECORDED | OWN.keys() and names
    labels = set().union(*(metrics.METRICS.get(name, set()) for name in metrics.METRICS)) | ADDED
    grouped = {word for words in re.findall(r"(?:by|on) \(([^)]*)\)", expression) for word in words.split(", ")}
    matched = {found for inner in re.findall(r"\{([^}]*)\}", expression) for found in re.findall(r"(\w+)[=!]", inner)}
    assert grouped | matched <= labels
    states = {word for words in re.findall(r'state=~?"([^"]*)"', expression) for word in words.split("|")}
    assert states <= {value for name, value in vars(fix_state).items() if name.isupper() and isinstance(value, str)}


def test_the_states_that_alert_are_those_that_status_calls_missing():
    (rule,) = (rule for rule in RULE_LIST if rule.get("alert") == "AttnfixFixMissing")
    (states,) = re.findall(r'state=~"([^"]*)"', rule["expr"])
    assert set(states.split("|")) == fix_state.MISSING


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_leads_to_its_part_of_the_runbook(alert):
    (rule,) = (rule for rule in RULE_LIST if rule.get("alert") == alert)
    page, _, anchor = rule["annotations"]["runbook_url"].removeprefix("DOCS/").partition("#")
    assert anchor == alert.lower() and anchor in Page(FOLDER.parent / page.replace(".html", ".md")).anchors


def test_the_rules_are_sound_and_their_tests_pass():
    assert promtool("check", "rules", RULES.name).returncode == 0
    done = promtool("test", "rules", TESTS.name)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_that_never_fires_or_always_does_is_seen(alert, tmp_path):
    for broken in ("vector(0) > 1", "vector(1)"):
        rules = yaml.safe_load(RULES.read_text())
        for rule in rules["groups"][0]["rules"]:
            if rule.get("alert") == alert:
                rule["expr"] = broken
        (tmp_path / RULES.name).write_text(yaml.safe_dump(rules))
        shutil.copy(TESTS, tmp_path)
        assert promtool("test", "rules", TESTS.name, cwd=tmp_path).returncode != 0


def test_the_dashboards_queries_are_promql(tmp_path):
    rules = [{"record": "x", "expr": filled_in(query)} for queries in QUERIES.values() for query in queries]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "x", "rules": rules}]}))
    done = promtool("check", "rules", "--lint=none", "queries.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_each_panel_has_its_own_place_and_the_variables_of_the_dashboard():
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [(p["x"] + x, p["y"] + y) for p in places for x in range(p["w"]) for y in range(p["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD)))
    assert used - {"__rate_interval"} == names


@pytest.fixture
def prometheus(tmp_path):
    """`prometheus(*targets)`: a query function over a real Prometheus that scrapes them, with our rules."""
    if not shutil.which("prometheus"):
        lacking("prometheus", "no prometheus here: Debian has it in the package of that name")
    running = []

    def start(*targets):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        settings = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "llm", "static_configs": [{"targets": [*targets]}]}],
        }
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(settings))
        command = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address={address}", "--storage.tsdb.path=data"]
        running.append(subprocess.Popen(command, cwd=tmp_path, stderr=(tmp_path / "log").open("w")))

        def ask(query):
            url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
            try:
                with urllib.request.urlopen(url, timeout=10) as response:
                    return json.load(response)["data"]["result"]
            except OSError:  # it is starting
                return []

        return ask

    yield start
    for each in running:
        each.kill()
        each.wait()


def until(condition):
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.2)
    return condition()


def test_a_real_prometheus_answers_every_query_of_the_dashboard(prometheus, replica):
    looks = process({FIX: "observed"}) | {"observes": True}
    looks["fixes"][0]["observed"] = {"calls": 5, "needed": 2}
    good = replica(process({FIX: "effective", OTHER: "installed"}, corrections=3), looks)
    bad, without = replica(process({FIX: "effective"}), process({FIX: "failed"})), replica()
    ask = prometheus(good, bad, without)
    assert until(lambda: ask(filled_in(QUERIES["Corrected rows per second, by fix"][0])))
    empty = [title for title, queries in QUERIES.items() if not all(until(lambda q=q: ask(filled_in(q))) for q in queries)]
    assert empty == []
    for title, value in (("Replicas with attnfix", "2"), ("Replicas without attnfix", "1"), ("Fixes that are missing", "1")):
        query = filled_in(QUERIES[title][0])  # the replicas are scraped one after another
        assert until(lambda q=query, v=value: [sample["value"][1] for sample in ask(q)] == [v]), (title, ask(query))
    assert until(lambda: {row["metric"]["instance"] for row in ask("attnfix:standing")} == {good})
    assert until(lambda: ask('ALERTS{alertname="AttnfixFixMissing"}'))[0]["metric"]["instance"] == bad
    assert until(lambda: ask('ALERTS{alertname="AttnfixNotActive"}'))[0]["metric"]["instance"] == without
