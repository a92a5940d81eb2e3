#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# symbols.sh - names that reach programs of other projects begin with ours
#
# usage: symbols.sh FILE...
#
#   *.a    every external definition is ct_* or ctrun_*
#   *.so   every exported definition is ctrun_*
#
# Code that every program links does not run CPUID before main(): it traps in a virtual machine.
set -eu
bad=0
for file; do
    case $file in
    *.a) options=-g allowed='^(ct_|ctrun_)' ;;
    *) options=-D allowed='^ctrun_' ;;
    esac
    # Names with a dot or two underscores in front are the compiler's.
    wrong=$(nm "$options" --defined-only "$file" 2>/dev/null |
        awk 'NF == 3 && $2 ~ /[A-TV-Z]/ { print $3 }' | grep -Ev "$allowed|\.|^__|^_(init|fini)$" |
        sort -u || true)
    if [ -n "$wrong" ]; then
        echo "$file: external names that do not begin with ct_ or ctrun_:"
        echo "$wrong" | sed 's/^/    /'
        bad=1
    fi
    case $file in
    *floor.a)
        if nm -u "$file" | grep -q __cpu_model; then
            echo "$file: __builtin_cpu_supports() brings a constructor with it: see crc32c.c"
            bad=1
        fi
        ;;
    esac
done
exit $bad
