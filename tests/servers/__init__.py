"""Real servers on loopback for the contract suite: each a direct child, killed and reaped by id."""

from tests.servers.azure import AzureServer, azurite, azurite_missing
from tests.servers.gcs import GcsServer, gcs, gcs_missing
from tests.servers.kafka import KafkaServer, kafka, kafka_missing
from tests.servers.postgres import PostgresServer, postgres, postgres_missing
from tests.servers.s3 import BOUNDED, S3Server, deny, ministack, rclone, seaweedfs, table_bucket

__all__ = [
    "BOUNDED",
    "AzureServer",
    "GcsServer",
    "KafkaServer",
    "PostgresServer",
    "S3Server",
    "azurite",
    "azurite_missing",
    "deny",
    "gcs",
    "gcs_missing",
    "kafka",
    "kafka_missing",
    "ministack",
    "postgres",
    "postgres_missing",
    "rclone",
    "seaweedfs",
    "table_bucket",
]
