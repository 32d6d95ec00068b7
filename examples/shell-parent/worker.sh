#!/bin/sh
# A worker in plain sh: asks its parent, waits for the answer, reports. SUBAGENT_RUN_ID says which run it is.
set -eu

subagent tell "Looking around"

if answer=$(subagent ask "Which database shall I use?" --option sqlite --option postgres --wait --timeout 60); then
    subagent update success --summary "The project is set up with $answer"
else
    subagent update error --summary "nobody answered"
fi
