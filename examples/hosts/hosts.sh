#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The same without a loop: nodes, ranks, a free port and a secret are ctrun's business, all output
# comes here, Ctrl-C ends everything everywhere, and a failure is told once with its cause.
#
#     hosts.sh FILE PROGRAM [ARGUMENT...]        FILE: one host a line, or node[01-16]
file=$1
shift
exec ctrun --hosts-file="$file" --nproc-per-node=2 "$@"
