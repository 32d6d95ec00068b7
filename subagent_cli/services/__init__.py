"""The user's verbs, one public function each. Every door (command line, MCP, terminal UI) calls these."""
