"""A JVM that is killed: the run ended with "the output cannot be written: Connection refused"."""

from __future__ import annotations

import pytest

from lamina.errors import SparkLost

failures = pytest.importorskip("lamina.spark.failures")
session = pytest.importorskip("lamina.spark.session")
protocol = pytest.importorskip("py4j.protocol")

GONE = [ConnectionRefusedError(111, "Connection refused"), protocol.Py4JNetworkError("no answer")]


@pytest.mark.parametrize("error", GONE)
def test_a_jvm_that_has_gone_was_taken_for_an_output_that_cannot_be_written(
    error: Exception,
) -> None:
    with pytest.raises(SparkLost, match="lost the connection"), failures.spark_errors():
        raise error


@pytest.mark.parametrize("error", GONE)
def test_stopping_a_spark_that_has_gone_hid_why_the_run_ended(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(_: object) -> None:
        raise error

    monkeypatch.setattr(session, "class_path", unreachable)

    class Gone:
        asked = False

        def stop(self) -> None:
            self.asked = True
            raise error

    spark = Gone()
    session.stop_session(spark)
    assert spark.asked
