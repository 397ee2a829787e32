"""The manifests and the image of deploy/: valid to the letter, and of one mind with each other."""

from __future__ import annotations

import copy
import re
import subprocess
import tomllib
from pathlib import Path

import kubernetes_validate
import pytest
from click.testing import CliRunner

from lamina.cli.main import cli
from lamina.store.address import Address, home_address
from tests.support.manifests import (
    DEPLOY,
    ROOT,
    Shape,
    executor_template,
    manifests,
    settings,
    the,
)

VERSION = "1.34"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
CLUSTERS = (ROOT / "docs" / "clusters.md").read_text()
ALL = [pytest.param(each, id=f"{each['kind']} {each['metadata']['name']}") for each in manifests()]


def validate(manifest: Shape) -> None:
    kubernetes_validate.validate(manifest, VERSION, strict=True)


def driver() -> Shape:
    spec: Shape = the("Deployment")["spec"]["template"]["spec"]
    return spec


def container() -> Shape:
    [one] = driver()["containers"]
    found: Shape = one
    return found


def arguments() -> list[str]:
    found: list[str] = container()["args"]
    return found


@pytest.mark.parametrize("manifest", ALL)
def test_a_manifest_is_valid_to_the_letter(manifest: Shape) -> None:
    validate(manifest)
    assert manifest["metadata"].get("namespace") == settings()["spark.kubernetes.namespace"]


def test_the_probes_ask_the_port_that_the_pipeline_serves() -> None:
    ports = {each["name"]: each["containerPort"] for each in container()["ports"]}
    words = arguments()
    assert words[words.index("--metrics-port") + 1] == str(ports["metrics"])
    assert words[words.index("--metrics-host") + 1] == "0.0.0.0"
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container()[probe]["httpGet"] == {"path": path, "port": "metrics"}
    scraped = the("Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert scraped["prometheus.io/port"] == str(ports["metrics"])
    assert "metrics" in re.findall(r"^ARG EXTRAS=(.*)$", DOCKERFILE, re.MULTILINE)[0].split(",")


def test_a_misspelt_field_would_be_found() -> None:
    for path in (("spec", "strategi"), ("spec", "template", "spec", "serviceAcountName")):
        broken = copy.deepcopy(the("Deployment"))
        at = broken
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = "x"
        with pytest.raises(kubernetes_validate.ValidationError):
            validate(broken)


def test_the_template_of_executors_is_a_valid_pod() -> None:
    """Spark adds image and name; a name is required."""
    pod = executor_template()
    [executor] = pod["spec"]["containers"]
    executor["image"] = settings()["spark.kubernetes.container.image"]
    validate(pod)


def test_one_driver_and_the_old_one_ends_before_the_new_one_starts() -> None:
    spec = the("Deployment")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    assert driver()["terminationGracePeriodSeconds"] >= 60


def test_accounts_and_rights_belong_together() -> None:
    binding = the("RoleBinding")
    assert binding["roleRef"]["name"] == the("Role")["metadata"]["name"]
    assert [each["name"] for each in binding["subjects"]] == [driver()["serviceAccountName"]]
    executor = settings()["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert executor != driver()["serviceAccountName"]
    assert the("ServiceAccount", driver()["serviceAccountName"])
    assert the("ServiceAccount", executor)["automountServiceAccountToken"] is False
    assert executor_template()["spec"]["automountServiceAccountToken"] is False


def test_executors_find_the_driver() -> None:
    service, name = the("Service"), the("Service")["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    labels = the("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert settings()["spark.driver.host"] == f"{name}.{service['metadata']['namespace']}.svc"
    ports = {each["name"]: each["port"] for each in service["spec"]["ports"]}
    assert ports.items() <= {e["name"]: e["containerPort"] for e in container()["ports"]}.items()
    assert ports == {
        "driver": int(settings()["spark.driver.port"]),
        "blocks": int(settings()["spark.driver.blockManager.port"]),
    }


def test_the_home_is_in_a_bucket_and_a_new_pod_takes_it_over() -> None:
    """No pod needs the disk of another one."""
    home = arguments()[arguments().index("--home") + 1]
    assert home_address(home) == home
    assert "--take-over" in arguments()
    assert "PersistentVolumeClaim" not in {each["kind"] for each in manifests()}
    assert not [name for name in settings() if ".volumes." in name]
    assert {each["name"] for each in driver()["volumes"]} == set(folders())
    places = re.findall(r"path '(\S+)'", the("ConfigMap")["data"]["trades.sql"])
    assert {Address.parse(place).bucket for place in places} == {Address.parse(home).bucket}


def folders() -> dict[str, str]:
    """Where volumes are mounted as a whole."""
    mounts = container()["volumeMounts"]
    return {each["name"]: each["mountPath"] for each in mounts if "subPath" not in each}


def test_the_files_of_the_driver_are_where_it_looks_for_them() -> None:
    config = the("ConfigMap")
    [volume] = [each for each in driver()["volumes"] if "configMap" in each]
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    variables = {each["name"]: each.get("value") for each in container()["env"]}
    assert variables["SPARK_CONF_DIR"] == folders()[volume["name"]]
    template = Path(settings()["spark.kubernetes.executor.podTemplateFile"])
    assert str(template.parent) == folders()[volume["name"]]
    assert template.name in config["data"]


def test_the_pipeline_is_in_a_folder_in_which_lamina_may_write() -> None:
    """A folder of a ConfigMap is read-only, and a run has its scratch beside the file."""
    [scratch] = [each["name"] for each in driver()["volumes"] if "emptyDir" in each]
    [file] = [each for each in container()["volumeMounts"] if "subPath" in each]
    assert file["mountPath"] == arguments()[2]
    assert file["subPath"] in the("ConfigMap")["data"]
    assert str(Path(file["mountPath"]).parent) == folders()[scratch]
    variables = {each["name"]: each.get("value") for each in container()["env"]}
    assert variables["SPARK_LOCAL_DIRS"] == folders()[scratch]


def test_credentials_come_from_one_secret() -> None:
    for where in (container(), executor_template()["spec"]["containers"][0]):
        assert where["envFrom"] == [{"secretRef": {"name": the("Secret")["metadata"]["name"]}}]
    assert not [name for name in the("Secret")["stringData"] if "KEY" in name or "TOKEN" in name]


def test_nothing_runs_as_root_or_may_become_it() -> None:
    [numbers] = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    for spec in (driver(), executor_template()["spec"]):
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True
        assert (str(context["runAsUser"]), str(context["runAsGroup"])) == numbers
        for each in spec["containers"]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }


def test_the_command_is_one_that_lamina_has(tmp_path: Path) -> None:
    command, verb, _, *rest = arguments()
    assert (command, verb) == ("lamina", "run")
    options = {each for each in rest if each.startswith("--")}
    said = CliRunner().invoke(cli, ["run", "--help"]).output
    assert not {each for each in options if f"{each} " not in said}
    file = tmp_path / "pipeline.sql"
    file.write_text(the("ConfigMap")["data"]["trades.sql"])
    checked = CliRunner().invoke(cli, ["check", str(file), "--no-spark"])
    assert checked.exit_code == 0, checked.output


def test_the_image_is_pinned_and_everybody_means_the_same_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    image = f"lamina:{project['version']}"
    assert container()["image"] == settings()["spark.kubernetes.container.image"] == image
    assert f"docker build -f deploy/Dockerfile -t {image} ." in DOCKERFILE
    assert f"docker build -f deploy/Dockerfile -t {image} ." in CLUSTERS
    assert re.search(r"^FROM python:\d+\.\d+\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
    [extras] = re.findall(r"^ARG EXTRAS=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    for copied in re.findall(r"^COPY (?:--\S+ )?(.+) \S+$", DOCKERFILE, re.MULTILINE):
        for path in copied.split():
            assert (ROOT / path).exists(), path


def test_the_python_of_the_image_is_named_once() -> None:
    [base] = re.findall(r"^FROM python:(\d+\.\d+)\.", DOCKERFILE, re.MULTILINE)
    assert set(re.findall(r"/python(\d+\.\d+)/", DOCKERFILE)) == {base}


def test_the_entry_point_runs_commands_as_they_are() -> None:
    script = DEPLOY / "entrypoint.sh"
    done = subprocess.run(
        ["sh", script, "printf", "%s|", "a b", "$HOME"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "a b|$HOME|"


def test_the_page_names_what_there_is() -> None:
    for name in re.findall(r"`(deploy/[\w/.-]+)`", CLUSTERS):
        assert (ROOT / name).exists(), name
    for file in (DEPLOY / "kubernetes").glob("*.yaml"):
        assert f"`deploy/kubernetes/{file.name}`" in CLUSTERS
