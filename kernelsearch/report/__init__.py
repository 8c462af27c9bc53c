"""What a person or a program sees of the record: progress, summary, leaderboard, lineage, kernels as files."""
