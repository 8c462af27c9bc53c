"""The gradient of cross_entropy.py."""

GRADIENT_OF = "cross_entropy.py"
