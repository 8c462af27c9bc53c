"""The gradient of rms_norm.py."""

GRADIENT_OF = "rms_norm.py"
