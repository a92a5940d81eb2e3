/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc/PID/status says about signals, and what a signal will do. */
#include "tests/lib/test.h"

#include <signal.h>

#include "agent/process/signal_effect.h"

TEST(a_signal_is_fatal_unless_caught_ignored_blocked_or_harmless)
{
    static const struct {
        const char *status;
        int signal;
        bool is_fatal;
    } rows[] = {
        {"Name:\tx\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t0\n", SIGUSR1, true},
        {"Name:\tx\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t0000000000000200\n", SIGUSR1,
         false},
        {"Name:\tx\nSigBlk:\t0\nSigIgn:\t0000000000000200\nSigCgt:\t0\n", SIGUSR1,
         false},
        {"Name:\tx\nSigBlk:\t0000000000000200\nSigIgn:\t0\nSigCgt:\t0\n", SIGUSR1,
         false},
        {"Name:\tx\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t0000000000000200\n", SIGUSR2,
         true},
        {"Name:\tx\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t8000000000000000\n", 64, false},
        {"Name:\tx\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t0\n", SIGTERM, false},
        {"Name:\tx\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t0\n", SIGWINCH, false},
        {"Name:\tx\n", SIGUSR1, false},
        {"", SIGUSR1, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (signal_effect_reads_fatal(rows[i].status, rows[i].signal) !=
            rows[i].is_fatal)
            fail_msg("row %zu", i);
}
