"""Studies: tasks x arms x seeds at equal budget, in one database."""
