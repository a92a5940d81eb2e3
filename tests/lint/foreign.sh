#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# foreign.sh - text of a peer is made plain: it is read by ct_read_str() or ct_read_text()
#
# usage: foreign.sh [SOURCE_DIRECTORY]
#
# ct_read_name() and fields of any bytes are allowed only here:
#   launcher/stage/stage_manifest.c   names of the user's own files, which are opened as they are
#   worker_sdk/wire/message.c   FIELD_NAME, of CTL_REPLY: JSON in pieces, which ctl_ask.c makes plain when all are there; of
#                               WORKER_HOLD: the name of a worker's file, which is opened as it is
set -eu
. "$(dirname "$0")/complain.sh"
bad=0
cd "${1:-$(dirname "$0")/../..}"

complain 'text of a peer that is not made plain (ct_read_str, ct_read_text)' <<EOF
$(grep -rnE --include='*.c' 'ct_read_name\(' agent launcher rendezvous worker_sdk |
    grep -vE '^(worker_sdk/base/bytes\.c|launcher/stage/stage_manifest\.c|worker_sdk/wire/message\.c):' || true)
EOF

complain 'a field of any bytes (FIELD_NAME) other than CTL_REPLY text and WORKER_HOLD name' <<EOF
$(grep -nE '^[^#]*\bNAME\(ct_' worker_sdk/wire/message.c | grep -vE 'NAME\(ct_(ctl_reply, text|worker_hold, name)\)' || true)
EOF
exit $bad
