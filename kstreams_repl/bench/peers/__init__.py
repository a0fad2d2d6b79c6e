"""Other stream processors on the workloads of `bench.workloads`, over the same topics, in the same run of the command."""
