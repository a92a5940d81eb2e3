#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# two_hosts.sh - two nodes, each in a network of its own: started by `unshare --net`, needs root;
# LIMIT: see fault_bodies.py
ip link set lo up
unshare --net sh -c 'ip link set lo up; touch far; while [ ! -e over ]; do sleep 0.05; done' &
far=$!
while [ ! -e far ]; do sleep 0.05; done
ip link add near type veth peer name away netns $far
ip addr add 10.9.8.1/24 dev near
ip link set near up
nsenter -t $far -n sh -c 'ip addr add 10.9.8.2/24 dev away; ip link set away up'
meet="--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=10.9.8.1:29400 --rdzv-id=j --shutdown-timeout=1"
# shellcheck disable=SC2086 # words
nsenter -t $far -n ctrun $meet --rdzv-conf=is_host=0,join_timeout=$((LIMIT + 2)) --no-python true &
node=$!
# shellcheck disable=SC2086
ctrun $meet --rdzv-conf=join_timeout=$((LIMIT + 2)) --no-python true
code=$?
wait $node || code=$?
touch over
wait $far
exit $code
