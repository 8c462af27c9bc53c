"""Writes confirmed kernels as things that others install: a pip package, a Hugging Face kernel, a table of configs.

`choose` reads the record, `examine` and `ship` look at the task file, `launches` turns a launch spec into Python,
`package` puts the files together, `wheel` and `huggingface` give them their outer form, `write` puts them on disk.
What the package runs at its user's place is in `templates`: it needs torch and triton, and nothing of this project.
"""
