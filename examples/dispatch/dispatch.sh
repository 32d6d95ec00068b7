#!/bin/sh
# A child does a task in a throwaway copy of a folder: what it delivers comes back, what it does there does not.
# Needs `subagent` on PATH; works in a folder of its own and removes it.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
printf 'one\ntwo\n' > notes.txt

echo "- one task, with what it delivers brought here:"
subagent dispatch --mode ad_hoc --instructions "Count the lines of notes.txt" --artifact report.md \
    --into delivered -- sh "$here/child.sh"
echo "delivered/report.md says: $(cat delivered/report.md)"
echo "notes.txt still has $(wc -l < notes.txt | tr -d ' ') lines, although the child deleted its copy"

echo "- two tasks at once, the second of which cannot be done:"
code=0
subagent dispatch --requests "$here/requests.json" -- sh "$here/child.sh" || code=$?
echo "exit code $code: some of them failed"
