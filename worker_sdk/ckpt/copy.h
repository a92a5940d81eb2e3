/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the copy that a save makes. The first use is slow, because the kernel finds and
 * clears each page: so the memory is kept from save to save, and a thread can touch the pages
 * before the first save.
 *
 *     resize: room for a save  ->  touch: a thread has it  ->  settle: data is the caller's again
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_copy {
    uint8_t *data; /* owned */
    size_t bytes;
    bool has_thread;
    pthread_t thread;
    atomic_bool is_over; /* the thread ends at the next page */
};

/* At least `bytes`, undefined; nothing is done where it has as many. After settle. -ENOMEM: then it is empty. */
int ct_copy_resize(struct ct_copy *copy, size_t bytes);
/* Starts a thread that uses each page once, at the lowest priority. Without one the first save does it. */
void ct_copy_touch(struct ct_copy *copy);
/* Ends the thread when it is `through`; or at its next page, which leaves the others to the save and waits for nothing:
 * beside busy processes a thread of the lowest priority does not run for a long time. */
void ct_copy_settle(struct ct_copy *copy, bool through);
/* Zeroed is fine. */
void ct_copy_deinit(struct ct_copy *copy);
