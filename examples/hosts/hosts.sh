#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The same without a loop: ctrun chooses node numbers, ranks, a free port and a secret. All output
# comes here, Ctrl-C ends all processes on all nodes, and a failure is reported once with its cause.
#
#     hosts.sh FILE PROGRAM [ARGUMENT...]        FILE: one host a line, or node[01-16]
file=$1
shift
exec ctrun --hosts-file="$file" --nproc-per-node=2 "$@"
