#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The public header and each of its _INIT macros compile in C99, C11, C++11 and C++17, pedantically; the examples in C17.
set -eu
header=worker_sdk/include/ctrun.h
code=$(
    echo '#include <stddef.h>'
    echo '#include "ctrun.h"'
    sed -n 's/^#define CTRUN_\([A-Z_]*\)_INIT\b.*/\1/p' "$header" | while read -r name; do
        struct=ctrun_$(echo "$name" | tr '[:upper:]' '[:lower:]')
        echo "struct $struct a_$struct = CTRUN_${name}_INIT;"
    done
)
[ "$(echo "$code" | grep -c _INIT)" -ge 8 ] || { echo "too few _INIT macros found in $header" && exit 1; }
for language in 'c -std=c99' 'c -std=c11' 'c++ -std=c++11' 'c++ -std=c++17'; do
    # shellcheck disable=SC2086 # two words
    echo "$code" | clang -x $language -pedantic-errors -Wall -Wextra -Werror -fsyntax-only -I"${header%/*}" - || {
        echo "$header does not compile with clang -x $language"
        exit 1
    }
done
clang -std=c17 -pedantic-errors -Wall -Wextra -Werror -Wno-unknown-pragmas -fsyntax-only -I"${header%/*}" \
    examples/*.c examples/llm/*.c || { echo "an example does not compile with clang -std=c17" && exit 1; }
