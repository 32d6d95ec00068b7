#!/bin/sh
# A worker in plain sh: asks its parent, waits for the answer, submits. `subagent` knows which run it is.
set -eu

subagent tell "Looking around"

if answer=$(subagent ask "Which database shall I use?" --option sqlite --option postgres --wait --timeout 60); then
    subagent submit result "The project is set up with $answer"
else
    subagent submit error "nobody answered"
fi
