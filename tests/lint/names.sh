#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# names.sh - what must not stand in a tracked file: banned functions, one machine's paths and hosts
#
# usage: names.sh [SOURCE_DIRECTORY]
set -eu
. "$(dirname "$0")/complain.sh"
bad=0
cd "${1:-$(dirname "$0")/../..}"

list() { git ls-files -co --exclude-standard -- "$@" 2>/dev/null || find . -type f | sed 's,^\./,,'; }

banned='strcpy|strcat|strncpy|strncat|sprintf|vsprintf|strtok|atoi|atol|atof|gets|alloca|system|tmpnam|mktemp'
complain 'functions that cannot be used safely' <<EOF
$(list '*.c' '*.h' '*.cu' '*.cuh' | xargs grep -nE "(^|[^A-Za-z0-9_.>\"])($banned)[[:space:]]*\(" | grep -vE ":[0-9]+:[[:space:]]*(/\*|\*|//|#[[:space:]]*define)" || true)
EOF

# The slashes are bracketed so that this file does not find itself.
places='[/]work[/]|[/]root[/]|[/]farm[/]|[/][/](deb|pypi|files)\.[a-z]+\.(org|com)'
complain 'paths or hosts of one machine' <<EOF
$(list | grep -v '^tests/fuzz/corpus/' | xargs grep -nIE "$places" | cut -c1-160 || true)
EOF

# nccl_api.h has NVIDIA's names.
complain 'typedef of a struct (style: struct x, never typedef)' <<EOF
$(list '*.c' '*.h' | grep -v '^worker_sdk/comm/nccl/nccl_api.h' | xargs grep -nE '^[[:space:]]*typedef[[:space:]]+struct' || true)
EOF

complain 'source files without the SPDX line on top' <<EOF
$(list '*.c' '*.h' '*.cu' '*.cuh' '*.py' '*.sh' CMakeLists.txt '*/CMakeLists.txt' 'scripts/*' | xargs awk '
    FNR == 1 { found = 0 }
    /SPDX-License-Identifier: Apache-2.0/ { found = 1 }
    FNR == 3 { if (!found) print "    " FILENAME; nextfile }')
EOF
exit $bad
