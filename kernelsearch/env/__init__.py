"""The referee as a reward: `Environment` judges answers to pages, by itself and for TRL (`trl_reward`)."""

from kernelsearch.env.environment import Environment, Question
from kernelsearch.env.levels import CREDITS, Reward

__all__ = ["CREDITS", "Environment", "Question", "Reward"]
