#!/bin/sh
# Asks its parent, since the decision is not its own, and goes on with the answer. Nobody who answers is an exit code
# of 124 here, which ends the run as an error.
set -eu

colour=$(subagent ask "Which colour?" --option red --option blue --wait --timeout 10m)

# The outcome is decided from here on: whatever happens to this process now does not change it.
subagent submit result "Painted it $colour"
