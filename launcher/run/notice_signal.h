/* SPDX-License-Identifier: Apache-2.0 */
/* Prints one line when ctrun gets a signal: the sender, and how long the workers have to save. When
 * a batch system signals every node, only the first node prints it. */
#pragma once

#include <sys/types.h>

#include "launcher/config/config.h"

/* text: who sent the signal, and what ctrun does (launcher/report/signal_sender.h). is_first:
 * this is the first signal that ends the run. */
void notice_signal(const struct config *config, const char *text, int signal,
                   pid_t sender, bool is_first);
/* Prints the time left while the workers save. */
void notice_signal_left(const struct config *config, uint64_t left_ms);
