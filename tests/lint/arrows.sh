#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# arrows.sh - the include lines obey the map of the folders
#
# usage: arrows.sh [SOURCE_DIRECTORY]
#
#       launcher -> {agent, rendezvous} -> worker_sdk -> its own layers, from the bottom up:
#       base <- wire, tcpstore <- client <- session, comm <- ddp <- cnn;  data, ckpt beside them
#       examples see <ctrun.h> only; tests may see everything
#
# Each rule: the files that begin with FOLDER may include only paths that match ALLOWED. The
# first rule that fits decides.
set -eu
cd "${1:-$(dirname "$0")/../..}"

rules='
worker_sdk/base/      worker_sdk/(base|include)/
worker_sdk/wire/      worker_sdk/(base|include|wire)/
worker_sdk/tcpstore/  worker_sdk/(base|include|tcpstore)/
worker_sdk/client/    worker_sdk/(base|include|wire|tcpstore|client)/
worker_sdk/comm/      worker_sdk/(base|include|client|comm|session)
worker_sdk/ddp/       worker_sdk/(base|include|comm|ddp|session)
worker_sdk/data/      worker_sdk/(base|include|data)/
worker_sdk/ckpt/      worker_sdk/(base|include|ckpt)/
worker_sdk/include/   ^$
worker_sdk/cnn/       worker_sdk/(base|include|data|cnn)/
worker_sdk/           worker_sdk/(base|include|wire|client|comm|session|spawn|parallel)
rendezvous/           (rendezvous|worker_sdk/(base|include|wire|tcpstore))/
agent/                (agent|worker_sdk/(base|include|wire))/
launcher/             (launcher|agent|rendezvous|worker_sdk/(base|include|wire|client|data|ckpt))/
examples/             ^$
'

# git knows which files are ours; an exported tree has only ours.
list() { git ls-files -co --exclude-standard -- '*.[ch]' '*.cu' '*.cuh' 2>/dev/null || find . -name '*.[ch]' | sed 's,^\./,,'; }

list | grep -Ev '^(tests|build)/' | xargs grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' |
    sed -E 's/^([^:]*):([0-9]+):[^"]*"([^"]*)".*/\1 \2 \3/' |
    awk -v rules="$rules" '
        BEGIN {
            n = split(rules, line, "\n")
            for (i = 1; i <= n; i++)
                if (split(line[i], word, " ") == 2) { from[++m] = word[1]; to[m] = word[2] }
        }
        {
            for (i = 1; i <= m; i++)
                if (index($1, from[i]) == 1)
                    break
            if (i > m || $3 !~ "^" to[i]) {
                printf "%s:%s: includes %s, against the arrows of the folders\n", $1, $2, $3
                bad = 1
            }
        }
        END { exit bad }'

# The ground floor is libc and pthreads only; each library has its doors.
doors='
uv\.h                  ^(agent|rendezvous)/
curl/                  ^launcher/http\.|^worker_sdk/cnn/
cjson/|cJSON\.h        ^launcher/json|^rendezvous/status\.|^worker_sdk/ckpt/
zlib\.h                ^worker_sdk/(data|ckpt)/
sodium\.h              ^worker_sdk/wire/(auth|digest|seal)\.
munge\.h               ^worker_sdk/wire/munge\.
dnnl                   ^worker_sdk/cnn/
nccl\.h                ^worker_sdk/comm/nccl
cuda|cudnn|cublas      ^worker_sdk/(cnn|comm)/
'
list | grep -Ev '^(tests|build)/' | xargs grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*<' |
    sed -E 's/^([^:]*):([0-9]+):[^<]*<([^>]*)>.*/\1 \2 \3/' |
    awk -v doors="$doors" '
        BEGIN {
            n = split(doors, line, "\n")
            for (i = 1; i <= n; i++)
                if (split(line[i], word, " ") == 2) { name[++m] = word[1]; door[m] = word[2] }
        }
        {
            for (i = 1; i <= m; i++)
                if ($3 ~ "^(" name[i] ")" && $1 !~ door[i]) {
                    printf "%s:%s: includes <%s>; its door is %s\n", $1, $2, $3, door[i]
                    bad = 1
                }
        }
        END { exit bad }'
