"""What serves benchmarks: env servers by the hundred, bare stepping."""
