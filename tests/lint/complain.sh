# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034
# For the scripts beside it: `complain TITLE < LINES` prints the lines, if there are any, and sets `bad`.
complain() {
    lines=$(cat)
    if [ -n "$lines" ]; then
        printf '%s:\n%s\n' "$1" "$lines"
        bad=1
    fi
}
