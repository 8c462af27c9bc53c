"""Questions asked of a kernel's syntax tree: shapes, data flow, tiles, accumulators, masks."""
