#!/bin/sh
# A grader: answers each critique that has come for it with a structured grade.
set -eu

subagent inbox --unreplied | sed -n 's/^\([0-9a-f]*\) from .*/\1/p' | while read -r message; do
    found=$(subagent message show "$message" | grep -c '"what"')
    subagent message put --in-reply-to "$message" --schema structured_grade --content - << END
{"recall": 0.5, "precision": 1, "found": $found}
END
done
