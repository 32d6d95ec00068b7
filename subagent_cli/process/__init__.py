"""Living processes: how an agent is started, kept, stopped and recognised. Decides nothing about runs."""
