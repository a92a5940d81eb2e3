#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One node after the other by hand, as written for torch.distributed.launch: only the program's
# name differs. hosts.sh does the same in one command.
#
#     for_loop.sh HOST... -- PROGRAM [ARGUMENT...]
#
# before:  python -m torch.distributed.launch --nproc_per_node=2 ...
# now:     ctrun-launch --nproc_per_node=2 ...
set -u
hosts=
while [ "$1" != -- ]; do
    hosts="$hosts $1"
    shift
done
shift

count=$(echo $hosts | wc -w)
first=${MASTER_ADDR:-$(echo $hosts | cut -d ' ' -f 1)}
pids=
rank=0
for host in $hosts; do
    ${SSH:-ssh} "$host" "cd '$PWD' && exec ctrun-launch --use_env --nproc_per_node=2 \
        --nnodes=$count --node_rank=$rank --master_addr=$first \
        --master_port=${MASTER_PORT:-29500} $*" &
    pids="$pids $!"
    rank=$((rank + 1))
done
code=0
for pid in $pids; do
    wait "$pid" || code=$?
done
exit $code
