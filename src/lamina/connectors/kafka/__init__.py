"""Apache Kafka: a source, read by Spark's own connector over exact offsets; and a sink."""
