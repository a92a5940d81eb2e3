/* SPDX-License-Identifier: Apache-2.0 */
/* Names of signals without SIG, as in signal(7). glibc has these since 2.32, musl does not. */
#pragma once

enum {
    CT_SIGNAL_NAME_MAX = 20
};

/* "TERM" for SIGTERM; NULL for a number without a name, as those of real-time signals are. */
const char *ct_signal_name(int signal);
/* "SIGTERM"; "signal 34" for a signal without a name. Returns dst. */
char *ct_signal_format(char dst[CT_SIGNAL_NAME_MAX], int signal);
/* SIGTERM, term, 15; -EINVAL. */
int ct_signal_parse(const char *text);
