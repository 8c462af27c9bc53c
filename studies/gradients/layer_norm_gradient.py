"""The gradient of layer_norm.py."""

GRADIENT_OF = "layer_norm.py"
