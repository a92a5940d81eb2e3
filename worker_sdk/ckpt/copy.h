/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the copy that a save makes. What takes long is its first use, when the kernel finds and clears each page:
 * so it is kept from save to save, and a thread can use it ahead of the first one.
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
    uint8_t *data; /* owned; the thread's while has_thread */
    size_t bytes;
    bool has_thread;
    pthread_t thread;
    atomic_bool is_over; /* the thread ends at the next page */
};

/* At least `bytes`, undefined; nothing is done where it has as many. No thread may have it. -ENOMEM: then it
 * is empty. */
int ct_copy_resize(struct ct_copy *copy, size_t bytes);
/* Starts a thread that uses each page once, at the lowest priority. Without one the first save does it. */
void ct_copy_touch(struct ct_copy *copy);
/* Ends the thread: at once, which leaves the other pages to the save, or when it is `through`. */
void ct_copy_settle(struct ct_copy *copy, bool through);
/* Zeroed is fine. */
void ct_copy_deinit(struct ct_copy *copy);
