"""The epoch loop: plan, run, decide, publish. No Spark here: streams run through a protocol."""
