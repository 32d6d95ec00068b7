#!/bin/sh
# The optimizer: starts a critic and a grader, hands the text to the one and the critique to the other. It never copies
# what they write: it passes ids.
set -eu

here=$(cd "$(dirname "$0")" && pwd)

# The first reply to a message, as soon as it is there.
reply_to() {
    subagent message list --in-reply-to "$1" --wait | head -n 1 | cut -d ' ' -f 1
}

input=$(subagent message put --text "$(cat)")
critic=$(subagent run "Criticise what you are sent" --type critic --raw -- sh "$here/critic.sh")
grader=$(subagent run "Grade the critiques you are sent" --type grader --raw -- sh "$here/grader.sh")

subagent send "$critic" "$input" > /dev/null
critique=$(reply_to "$input")

# The grader sees what it is sent. That it may also read all else that the critic writes is for us to give.
subagent grant "$critic" "$grader" read_transcript
subagent send "$grader" "$critique" > /dev/null
grade=$(reply_to "$critique")

subagent submit result "$(subagent message show "$grade")"
