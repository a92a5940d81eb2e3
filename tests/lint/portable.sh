#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# portable.sh - the tree compiles with musl, with the headers of glibc 2.28 and Linux 4.18 (RHEL 8), and has nothing
# that is newer than gcc 8
#
# usage: portable.sh [SOURCE_DIRECTORY]
#
# musl: each file of ours, by musl-gcc where there is one (musl-tools), with the libraries' headers of
# this machine. Older systems: by name; only worker_sdk/base/kernel.h may have what they lack. gcc
# 8: what C2x brought is a warning of newer ones; attributes and builtins by name, from lists of
# what gcc 8's manual has.
set -eu
. "$(dirname "$0")/complain.sh"
bad=0
cd "${1:-$(dirname "$0")/../..}"

complain 'newer than glibc 2.28 or Linux 4.18: signal_name.h, kernel.h or strerror() instead' <<EOF
$(grep -rnwE --include='*.[ch]' \
    -e 'sig(abbrev|descr)_np|strerror(desc|name)_np|close_range|closefrom|pidfd_(open|getfd|send_signal)' \
    -e 'sys/(pidfd|single_threaded)\.h|linux/(close_range|sched|stat|openat2|time_types)\.h|SYS_(pidfd_[a-z_]+|clone3|close_range|openat2|faccessat2)' \
    -e 'MADV_(POPULATE|COLD|PAGEOUT)[A-Z_]*|CLONE_(CLEAR_SIGHAND|INTO_CGROUP|PIDFD)|P_PIDFD|statx|gettid|tgkill|strl(cpy|cat)' \
    -e '(getr|setr|pr)limit64|rlim(it)?64(_t)?|__cpu_mask' agent launcher rendezvous worker_sdk |
    grep -vE '^worker_sdk/base/kernel\.h:|^[^:]*:[0-9]+:( \*|/\*|.*"[^"]*pidfd_open)' || true)
EOF

known='always_inline|constructor|fallthrough|format|no_sanitize|noreturn|used|vector_size|visibility'
builtins='(add|sub|mul)_overflow|clz(l|ll)?|cpu_supports|ctz(l|ll)?|expect|ia32_[a-z0-9_]+|popcount(l|ll)?|trap|unreachable'
complain "not in the lists of what gcc 8 is known to have (look into its manual, then add it to portable.sh)" <<EOF
$(grep -rnoE --include='*.[ch]' -e '__attribute__\(\([^()]*(\(|\))' -e '__(builtin|has)_[a-z0-9_]+|asm (goto|inline)' \
    agent launcher rendezvous worker_sdk examples |
    grep -vE "__attribute__\(\((($known)(, )?)+[()]$|__builtin_($builtins)$|__has_include$" || true)
EOF

if ! command -v musl-gcc >/dev/null; then
    echo "portable.sh: no musl-gcc here (musl-tools): by name alone" >&2
    exit $bad
fi
# /usr/include itself has another libc's headers.
headers=$(mktemp -d)
trap 'rm -rf "$headers"' EXIT
for name in uv.h uv cjson zlib.h zconf.h sodium.h sodium munge.h curl linux asm asm-generic; do
    for folder in /usr/include /usr/include/*-linux-gnu; do
        [ ! -e "$folder/$name" ] || ln -sfn "$folder/$name" "$headers/$name"
    done
done
# Left out: the files for oneDNN, and those of static programs, which need glibc or libcurl.
find agent launcher rendezvous worker_sdk examples -name '*.c' ! -name '*dnnl*' ! -name static_dl.c \
    ! -name http_linked.c ! -name cert_host.c -print0 |
    xargs -0 -n 30 -P "$(nproc)" musl-gcc -std=gnu17 -D_GNU_SOURCE -DCNN_SIMD_ISA='"any"' -DSTUB_NAME='"any"' -DCTRUN_HAS_CURL=1 \
        -DCTRUN_HAS_MUNGE=1 -DCTRUN_IS_STATIC=0 -fsyntax-only \
        -Wall -Wextra -Wc11-c2x-compat -Wno-unknown-pragmas -Werror -I. -Iworker_sdk/include -idirafter "$headers" >"$headers/log" 2>&1 || true
# gcc 8 has "Pointers to Arrays with Qualifiers Work as Expected" among its extensions.
complain 'musl or gcc 8 does not take' <<EOF
$(grep -E ' error: ' "$headers/log" | grep -v 'pointers to arrays with different qualifiers' || true)
EOF
exit $bad
