/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library, beside those of the program. */
#pragma once

#include <pthread.h>

/* Runs fn(context) on a new thread that takes no signals: these are for the threads of the program.
 * 0, or a negative errno. */
int ct_thread_start(pthread_t *thread, void *(*fn)(void *context), void *context);
