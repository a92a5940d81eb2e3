/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the answer of torch's fr_trace_json. It comes from a user's program: every value is checked
 * before use. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "agent/recorder/recorder_view.h"
#include "agent/watch/straggler.h"
#include "worker_sdk/base/buf.h"

/* `kind` is put in front of the names of groups, because each recorder has its own numbers. 0;
 * -EBADMSG: not such an answer. */
int json_recorder_read(struct recorder_view *out, const char *kind, const char *text,
                       size_t length);
/* The collectives in the answer, without sends and receives, the oldest first, into *out (heap, the
 * caller's; NULL: none). Returns how many, STRAGGLER_CALLS_MAX at most; -EBADMSG or -ENOMEM. */
int json_recorder_read_calls(struct straggler_call **out, const char *kind,
                             const char *text, size_t length);
/* Appends the last `most` calls in the answer as events for Chrome's trace viewer and Perfetto, a process
 * for the rank and a thread for each group: elements of a JSON array, the first without
 * a comma in front if is_first. A call that is not complete lasts until now_ns (wall clock). 0;
 * -EBADMSG: nothing is appended; or a code of ct_buf. */
int json_recorder_add_trace(struct ct_buf *out, int rank, int most, uint64_t now_ns,
                            const char *text, size_t length, bool is_first);
