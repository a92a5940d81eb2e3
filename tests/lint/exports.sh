#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exports.sh - libctrun.so exports the functions of ctrun.h, each with the version in libctrun.map
#
# usage: exports.sh SOURCE LIBRARY
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tr '\n' ' ' <"$1/worker_sdk/include/ctrun.h" | grep -oE 'CTRUN_API [^;(]*\(' | sed 's/ *($//; s/.*[ *]//' |
    grep -v __attribute__ | sort -u >"$folder/header"
awk '/^CTRUN_[0-9.]+ \{/ { version = $1 } / ctrun_[a-z0-9_]+;/ { sub(";", "", $1); print $1 "@@" version }' \
    "$1/worker_sdk/libctrun.map" | sort >"$folder/map"
nm -D --defined-only "$2" | awk '$2 == "T" { print $3 }' | sort >"$folder/library"
[ "$(wc -l <"$folder/header")" -ge 50 ] || { echo "too few functions found in ctrun.h" && exit 1; }
sed 's/@@.*//' "$folder/map" >"$folder/mapped"
diff -u "$folder/header" "$folder/mapped" && diff -u "$folder/map" "$folder/library"
