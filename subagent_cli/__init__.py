"""subagent: start child agents, answer their questions while they run, collect their results, lose nothing."""

__version__ = "0.1.0"
