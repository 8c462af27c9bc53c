"""The gradient of kl_div.py."""

GRADIENT_OF = "kl_div.py"
GRADIENTS = ("student",)
