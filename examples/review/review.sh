#!/bin/sh
# One review from several perspectives: starts a reviewer for each, answers their questions, prints what they came to.
#   review.sh [PERSPECTIVE...]     (security, maintainability and performance, if none is named)
#   review.sh COUNT                so many, to see how it goes with many
# Needs `subagent` on PATH. The report is all that goes to standard output; the exit code is that of `subagent wait`.
set -eu

here=$(cd "$(dirname "$0")" && pwd)

# What this parent answers. Put your own judgement here: a person, a policy, another agent.
answer_to() {
    case $1 in
        *security*) echo "passwords and tokens" ;;
        *maintainability*) echo "names and tests" ;;
        *weather*) echo "nothing" ;;
        *) echo "what a user would notice" ;;
    esac
}

# A reviewer for each perspective, all or none; prints the group's id.
spawn_for() {
    for perspective; do
        set -- "$@" --task "Review src/auth from the perspective of $perspective"
        shift
    done
    subagent spawn "$@" --deadline 10m -- sh "$here/reviewer.sh"
}

# Answers each question that a wait has printed. Only a line that begins one is not indented: WHO RUN asks (WHEN): WHAT
answer_all() {
    while IFS= read -r line; do
        case $line in
            " "*) continue ;;
            *" asks ("*) ;;
            *) continue ;;
        esac
        run=${line%% asks (*}
        # A reviewer that has ended in the meantime needs no answer any more.
        subagent reply "${run##* }" --oldest "$(answer_to "${line#*ago): }")" || :
    done
}

case ${1-} in
    "") set -- security maintainability performance ;;
    *[!0-9]*) ;;
    *)
        count=$1
        set --
        while [ $# -lt "$count" ]; do set -- "$@" "reader $(($# + 1))"; done
        ;;
esac

group=$(spawn_for "$@")

# Sleeps until one asks (exit code 12) or all have ended. The cursor says which questions are known already.
cursor=-
while
    code=0
    woke=$(subagent wait "$group" --after "$cursor" 2>&1) || code=$?
    [ "$code" -eq 12 ]
do
    printf '%s\n' "$woke" >&2
    cursor=${woke##*--after }
    printf '%s\n' "$woke" | answer_all
done

case $code in
    0 | 10 | 11 | 20) ;; # how the reviews ended; anything else is an error of the wait
    *)
        printf '%s\n' "$woke" >&2
        exit "$code"
        ;;
esac

# One line for each reviewer, in the order in which they were asked for: RUN STATE TEXT
printf '%s\n' "$woke" | while read -r run state _; do
    echo "$1 ($state)"
    subagent result "$run" | sed 's/^/    /'
    shift
done
exit "$code"
