#!/bin/sh
# A reviewer in plain sh: reads its task, asks its parent one question, submits. Put a real agent in its place.
set -eu

task=$(sed '1,/^---$/d') # what stands above is how to ask and submit
perspective=${task##*from the perspective of }

focus=$(subagent ask "What matters most to you about $perspective?" --wait) || {
    subagent submit error "nobody told me what to look at"
    exit
}
case $focus in
    nothing) subagent submit error "there is nothing to review about $perspective" ;;
    *) subagent submit result "Looked at $focus: nothing to object to" ;;
esac
