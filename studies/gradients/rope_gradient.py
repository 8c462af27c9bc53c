"""The gradient of rope.py."""

GRADIENT_OF = "rope.py"
GRADIENTS = ("q", "k")
