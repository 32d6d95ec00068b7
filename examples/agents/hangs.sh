#!/bin/sh
# Never ends, as an agent does that waits for something which does not come: --timeout or `subagent cancel` ends it.

echo "This may take a while"
exec sleep 1000000
