#!/bin/sh
# Spark on Kubernetes starts every executor with the argument "executor" and what it should do in
# variables. Anything else is a command: lamina run, spark-submit, sh.
set -eu

if [ "${1:-}" != executor ]; then
  exec "$@"
fi

set --
while IFS= read -r option; do
  set -- "$@" "$option"
done <<OPTIONS
$(env | sed -n 's/^SPARK_JAVA_OPT_[0-9]*=//p')
OPTIONS

exec java "$@" \
  "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CONF_DIR:-/opt/spark/conf}:$SPARK_HOME/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
