"""The MCP server: the verbs as tools, for agents that have no shell. A thin door to the services, like the command
line.

Only `server` and `wire` know the SDK; they are loaded when `subagent mcp` serves and never otherwise.
"""
