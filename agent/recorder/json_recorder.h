/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the answer of torch's fr_trace_json. It comes from a user's program: every value is checked
 * before use. */
#pragma once

#include <stddef.h>

#include "agent/recorder/recorder_view.h"
#include "agent/watch/straggler.h"

/* `kind` is put in front of the names of groups, because each recorder has its own numbers. 0;
 * -EBADMSG: not such an answer. */
int json_recorder_read(struct recorder_view *out, const char *kind, const char *text,
                       size_t length);
/* The collectives in the answer, without sends and receives, the oldest first, into *out (heap, the
 * caller's; NULL: none). Returns how many, STRAGGLER_CALLS_MAX at most; -EBADMSG or -ENOMEM. */
int json_recorder_read_calls(struct straggler_call **out, const char *kind,
                             const char *text, size_t length);
