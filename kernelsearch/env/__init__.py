"""The referee as a reward: `Environment` judges answers to pages, by itself and for the trainers of `adapters`."""

from kernelsearch.env.environment import Environment, Question
from kernelsearch.env.levels import CREDITS, Reward

__all__ = ["CREDITS", "Environment", "Question", "Reward"]
