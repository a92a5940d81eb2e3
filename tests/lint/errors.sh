#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# errors.sh - each error code that a program can print is in ctrun-errors(7), and no other
#
# usage: errors.sh [SOURCE_DIRECTORY]
set -eu
cd "${1:-$(dirname "$0")/../..}"

known=$({
    grep -ohE 'X\(E_[A-Z_]+' worker_sdk/include/ctrun.h worker_sdk/base/error.h | cut -c3-
    # names that are written out in a message
    find agent launcher rendezvous worker_sdk -name '*.c' -exec grep -ohE '\[E_[A-Z_]+\]' {} + | tr -d '[]'
} | sort -u)
told=$(sed -n 's/^\.It Sy \(E_[A-Z_]*\).*/\1/p' man/ctrun-errors.7 | sort)
bad=0
[ "$(echo "$told" | uniq)" = "$told" ] || { echo "twice in man/ctrun-errors.7: $(echo "$told" | uniq -d)"; bad=1; }
for name in $known; do
    echo "$told" | grep -qx "$name" || { echo "$name is not in man/ctrun-errors.7"; bad=1; }
done
for name in $told; do
    echo "$known" | grep -qx "$name" || { echo "man/ctrun-errors.7: $name is no code of ours"; bad=1; }
done
# an errno's own name would be a code without an entry
if grep -rnE 'strerrorname_np|error\[(%d|E[A-Z]+[]])' agent launcher rendezvous worker_sdk --include='*.c' --include='*.h'; then
    echo "print the code by ct_error_name()"
    bad=1
fi
exit $bad
