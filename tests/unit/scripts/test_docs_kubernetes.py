"""docs/monitoring/kubernetes: sound by their schemas, and together they make the manifests of the quickstarts."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import ValidationError

from attnfix.cli import run
from scripts.pages import generate
from tests.support.manifests import check, merged, spoilt
from tests.support.pages import Page

DOCS = Path(__file__).resolve().parents[3] / "docs"
FILES = sorted((DOCS / "monitoring" / "kubernetes").glob("*.yaml"))
TEXTS = {path.name: path.read_text() for path in FILES}
MANIFESTS = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
COMPONENT = MANIFESTS["kustomization.yaml"]
POLICY = [*yaml.safe_load_all((DOCS / "monitoring" / "admission-policy.yaml").read_text())]


def for_engine(name: str, engine: str) -> Any:
    """A manifest as the comment in kustomization.yaml turns it to an engine."""
    return yaml.safe_load(TEXTS[name].replace("vllm", engine).replace("8000", {"vllm": "8000", "sglang": "30000"}[engine]))


def quickstart(engine: str) -> dict[str, Any]:
    (found,) = Page(DOCS / f"quickstart-{engine}.md").blocks_in("yaml")
    return yaml.safe_load(found)


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - {"deployment.yaml"}))  # which is part of one
def test_a_manifest_is_sound(name):
    check(MANIFESTS[name])
    for wrong in spoilt(MANIFESTS[name]):
        with pytest.raises(ValidationError):
            check(wrong)


def test_the_component_names_every_file_and_nothing_else():
    named = {*COMPONENT["resources"], *(patch["path"] for patch in COMPONENT["patches"])}
    assert named | {"kustomization.yaml"} == TEXTS.keys()


def test_the_rules_are_those_of_prometheus():
    assert MANIFESTS["prometheusrule.yaml"]["spec"] == yaml.safe_load((DOCS / "monitoring" / "attnfix.rules.yml").read_text())
    assert TEXTS["prometheusrule.yaml"] == generate.prometheus_rule()


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_patch_makes_the_quickstarts_manifest_of_a_stock_one(engine):
    wanted, stock = quickstart(engine), copy.deepcopy(quickstart(engine))
    pod = stock["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    del container["env"], container["startupProbe"], container["ports"][0]["name"]
    container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] != "records"]
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "records"]
    assert sortable(merged(stock, for_engine("deployment.yaml", engine))) == sortable(wanted)
    (patch,) = for_engine("kustomization.yaml", engine)["patches"]
    assert patch["target"] == {"kind": "Deployment", "name": wanted["metadata"]["name"]}


def sortable(deployment: dict[str, Any]) -> dict[str, Any]:
    """The same, whatever order its volumes have: a patch adds its own behind the others."""
    pod = deployment["spec"]["template"]["spec"]
    for part, lists in ((pod, ("volumes",)), (pod["containers"][0], ("volumeMounts",))):
        part.update({name: sorted(part[name], key=lambda each: each["name"]) for name in lists})
    return deployment


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_pod_monitor_finds_the_pods_and_the_port(engine):
    monitor, pod = for_engine("podmonitor.yaml", engine)["spec"], quickstart(engine)["spec"]["template"]
    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert monitor["jobLabel"] in pod["metadata"]["labels"]
    ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]} <= ports


@pytest.mark.parametrize("manifest", POLICY, ids=lambda manifest: manifest["kind"])
def test_the_admission_policy_is_sound(manifest):
    check(manifest)
    for wrong in spoilt(manifest):
        with pytest.raises(kubernetes_validate.ValidationError):
            check(wrong)


def test_the_admission_policy_is_bound():
    policy, binding = POLICY
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]


VOLUME, VALUES = map(yaml.safe_load, Page(DOCS / "deployments.md").blocks_in("yaml"))


def test_the_patch_that_mounts_attnfix_is_sound():
    check(merged(quickstart("vllm"), VOLUME))
    for wrong in spoilt(VOLUME):
        with pytest.raises(kubernetes_validate.ValidationError):
            check(merged(quickstart("vllm"), wrong))


def test_the_charts_values_make_the_same_pod():
    """The fields of production-stack's chart, in their places in the pod: helm/templates/deployment-vllm-multi.yaml there."""
    (model,) = VALUES["servingEngineSpec"]["modelSpec"]
    init = model.pop("initContainer")
    container = {"name": "vllm", "env": model.pop("env"), "volumeMounts": model.pop("extraVolumeMounts")}
    init["volumeMounts"] = init.pop("extraVolumeMounts")
    pod = {"initContainers": [init], "containers": [container], "volumes": model.pop("extraVolumes")}
    assert pod == VOLUME["spec"]["template"]["spec"] and model.keys() == {"name"}


def test_the_volume_is_what_attnfix_run_would_name():
    pod = VOLUME["spec"]["template"]["spec"]
    named = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}["PYTHONPATH"]
    folder = Path(run.environment({})["PYTHONPATH"]).relative_to(Path(run.__file__).parents[2])
    (mounted,) = (each["mountPath"] for each in pod["initContainers"][0]["volumeMounts"])
    assert named == f"{mounted}/{folder}"
