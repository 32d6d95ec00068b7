#!/bin/sh
# Does its task and ends. Its prompt comes on standard input: how to speak with its parent, then the task.
set -eu

task=$(tail -n 1)

# What an agent that ends well without a submit has put out is its result.
echo "Done: $task"
