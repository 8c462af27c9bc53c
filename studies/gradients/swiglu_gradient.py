"""The gradient of swiglu.py."""

GRADIENT_OF = "swiglu.py"
