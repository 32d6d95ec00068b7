#!/bin/sh
# A parent in plain sh: starts a worker, answers its questions while it runs, prints its result.
# Needs `subagent` on PATH. The result is all that goes to standard output; the exit code is that of `subagent result`.
set -eu

here=$(dirname "$0")

# What this parent answers. Put your own judgement here: a person, a policy, another agent.
answer_to() {
    case $1 in
        *"Which database"*) echo 1 ;; # the first option
        *) echo "decide for yourself" ;;
    esac
}

run=$(subagent create helper "Set the project up")

(
    export SUBAGENT_RUN_ID="$run"
    # A parent that is itself somebody's worker must not pass its own identity on.
    unset SUBAGENT_TOKEN
    # Without this, a worker that dies would leave a run that never ends.
    sh "$here/worker.sh" || subagent update error --summary "the worker ended with code $?"
) >/dev/null &

# Wakes when a question comes, and ends when the run has ended.
while waiting=$(subagent pending "$run" --wait 2>/dev/null); do
    question=$(printf '%s\n' "$waiting" | head -n 1)
    printf '%s\n' "$question" >&2
    subagent reply "$run" --oldest "$(answer_to "$question")"
done
wait
subagent result "$run"
