"""Reports on the record for people and programs: progress, summary, leaderboard, lineage, kernels as files."""
