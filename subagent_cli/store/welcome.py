"""The note that a person finds who looks into a runs directory."""

WELCOME = """\
# Runs of sub-agents

`subagent` keeps its runs here. Every folder named by an id is one run:

- `journal.jsonl`: all that happened, one event a line. This is the truth; only `subagent` writes it.
- `.meta.json`: the run as it stands, with its questions and answers. Other programs may read and write it too.
- `run.json`: what was asked (agent, task, folder, parent). Written once.
- `prompt.md`: what the agent was told. Written once.
- `log`: the run's output, a stamped line each.

`.index` holds look-ups that can be rebuilt, `.locks` the lock files. Look at everything; edit nothing but
`.meta.json`, and that only if you know the format. The folder of a finished run may be deleted as a whole.

Start here: `subagent status`, `subagent pending`, `subagent list`.
"""
