#!/bin/sh
# Three agents that talk by message ids alone: an optimizer has a text criticised, and the critique graded.
#   critique.sh [TEXT]
# Needs `subagent` on PATH. The grade is all that goes to standard output.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
text=${1-"The parser reads the whole file into memory and splits it at every line feed."}

# The optimizer starts agents itself, so its tree may be two deep.
optimizer=$(subagent run "$text" --type optimizer --max-depth 2 --raw -- sh "$here/optimizer.sh")
subagent wait "$optimizer" >&2
subagent result "$optimizer"
echo "who said what to whom: subagent message list" >&2
