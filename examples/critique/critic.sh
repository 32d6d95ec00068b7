#!/bin/sh
# A critic: answers each message that has come for it with a structured critique, and ends. It is started again when
# the next one comes. In its place an agent that thinks: `subagent run claude "Criticise what you are sent" …`.
set -eu

subagent inbox --unreplied | sed -n 's/^\([0-9a-f]*\) from .*/\1/p' | while read -r message; do
    words=$(subagent message show "$message" | wc -w | tr -d ' ')
    subagent message put --in-reply-to "$message" --schema structured_critique --content - << END
{"issues": [{"what": "reads the whole file into memory", "severity": "high"}],
 "notes_md": "Read **$words** words; one issue."}
END
done
