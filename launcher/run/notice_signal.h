/* SPDX-License-Identifier: Apache-2.0 */
/* What people hear when ctrun is sent a signal: one line, and how long the workers have to save.
 * Of a batch system that signals every node the first node speaks for all. */
#pragma once

#include <sys/types.h>

#include "launcher/config/config.h"

/* text: who sent it, and what follows (launcher/report/signal_sender.h). is_first: it ends the run, and none
 * has before. */
void notice_signal(const struct config *config, const char *text, int signal,
                   pid_t sender, bool is_first);
/* While they save. */
void notice_signal_left(const struct config *config, uint64_t left_ms);
