"""The judge's worker: what is judged, on which inputs, against which answers."""
