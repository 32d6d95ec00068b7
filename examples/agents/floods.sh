#!/bin/sh
# Puts out FLOOD_MB megabytes (100 unless told otherwise) as fast as it can. The log has a limit: its beginning and its
# end are kept, and between them stands how much was cut.
set -eu

: "${FLOOD_MB:=100}"
yes "All work and no play makes Jack a dull boy." | head -c "${FLOOD_MB}000000"

# Without this, the end of the flood would be the result.
subagent submit result "Put out $FLOOD_MB MB"
