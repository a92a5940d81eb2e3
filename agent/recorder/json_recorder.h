/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of torch's fr_trace_json. It comes from a program of somebody: nothing in it is believed
 * that is not checked. */
#pragma once

#include <stddef.h>

#include "agent/recorder/recorder_view.h"
#include "agent/watch/straggler.h"

/* `kind` is put in front of the names of groups: each recorder counts by itself. 0; -EBADMSG: that is
 * none. */
int json_recorder_read(struct recorder_view *out, const char *kind, const char *text,
                       size_t length);
/* The collectives in it, the oldest first, into *out (heap, the caller's; NULL: there are none): no sends and receives.
 * How many, STRAGGLER_CALLS_MAX at most; -EBADMSG or -ENOMEM. */
int json_recorder_read_calls(struct straggler_call **out, const char *kind,
                             const char *text, size_t length);
