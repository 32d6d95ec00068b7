#!/bin/sh
# A parent in plain sh: starts a worker, answers its questions while it runs, prints its result.
# Needs `subagent` on PATH. The result is all that goes to standard output; the exit code is that of `subagent result`.
set -eu

here=$(cd "$(dirname "$0")" && pwd)

# What this parent answers. Put your own judgement here: a person, a policy, another agent.
answer_to() {
    case $1 in
        *"Which database"*) echo 1 ;; # the first option
        *) echo "decide for yourself" ;;
    esac
}

run=$(subagent run "Set the project up" -- sh "$here/worker.sh")

# Sleeps until there is a question (exit code 12) or the run is over, and also wakes when the worker dies.
while
    code=0
    waiting=$(subagent wait "$run") || code=$?
    [ "$code" -eq 12 ]
do
    question=$(printf '%s\n' "$waiting" | head -n 1)
    printf '%s\n' "$question" >&2
    subagent reply "$run" --oldest "$(answer_to "$question")"
done

# Where the worker died without a word, this says how.
subagent result "$run"
