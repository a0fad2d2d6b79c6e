"""Other stream processors on the workloads of `workshop.bench.rig.workloads`, over the same topics, in the same run of the command."""
