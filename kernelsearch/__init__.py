"""kernelsearch finds the fastest Triton kernel that it can prove right."""

__version__ = "0.1.0"
