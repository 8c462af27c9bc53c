"""The grammar's tests use the parents, the facts and the tiny tokenizer of the folder above."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
