"""Times taken on a GPU: protocols, baselines, statistics, and the state of the device."""
