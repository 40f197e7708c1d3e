"""Reinforcement learning with verifiable rewards on noisy labels, and Online Label Refinement."""

__version__ = "0.1.0"
