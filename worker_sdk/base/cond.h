/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for condition variables with a deadline of clock.h. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

void ct_cond_init(pthread_cond_t *cond);
/* As pthread_cond_timedwait(). False: the deadline is over. */
bool ct_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t deadline_ms);
