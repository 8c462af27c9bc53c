"""The gradient of geglu.py."""

GRADIENT_OF = "geglu.py"
