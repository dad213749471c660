"""Where a run's scalars go besides `metrics.jsonl`: all take them as `writer.Writer` says."""
