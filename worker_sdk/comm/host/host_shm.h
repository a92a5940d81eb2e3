/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives in shared memory, between the members on one host. For a collective made of messages
 * only the agreement is here: exchange.h has the rest.
 *
 * Every call begins with a post that says what the member wants to do; each member compares all
 * posts. The plan then depends on size and place of the data:
 *
 *     tiny     (<= CT_POST_BYTES) the data came with the post: nothing more to wait for
 *     direct   data in memory of ct_host_shm_alloc() at the same offset everywhere: each member
 *              reduces its slice over all buffers and writes the result to all of them
 *     staged   other memory: chunk k is staged while k-1 is reduced, each member its slice, and
 *              k-2 is copied out; one barrier a step, everything stays in L2
 *
 * A call runs step by step between barriers, so that ct_host_shm_advance() can continue it whenever
 * the program calls. One call at a time. */
#pragma once

#include "worker_sdk/comm/host/segment.h"

struct ct_host_shm;

/* Takes ownership of an open segment, also on failure. Functions below name members by local
 * index. */
int ct_host_shm_create(struct ct_host_shm **out, struct ct_segment *segment,
                       struct ctrun_error *err);
/* For messages; borrowed. */
struct ct_segment *ct_host_shm_segment(struct ct_host_shm *shm);
void ct_host_shm_destroy(struct ct_host_shm *shm);
/* The call that a member has posted; without what only that member knows of it. */
struct ct_call ct_host_shm_read_post(const struct ct_post *post);

int ct_host_shm_begin(struct ct_host_shm *shm, const struct ct_call *call,
                      struct ctrun_error *err);
/* 1 done, 0 not yet (never if `wait`), or the error. */
int ct_host_shm_advance(struct ct_host_shm *shm, bool wait, struct ctrun_error *err);
/* begin and advance in one. */
int ct_host_shm_run(struct ct_host_shm *shm, const struct ct_call *call,
                    struct ctrun_error *err);
/* Collective; every member gets its own zeroed `bytes`, at most CT_REGION_MAX_BYTES. -EINVAL, on all
 * members alike: the group has too many blocks. */
int ct_host_shm_alloc(struct ct_host_shm *shm, size_t bytes, uint64_t deadline_ms,
                      void **out, struct ctrun_error *err);
/* Local; the others keep theirs. 0, or -ENOENT. */
int ct_host_shm_free(struct ct_host_shm *shm, const void *data);
/* Ends the waits of all members. Any thread. */
void ct_host_shm_abort(struct ct_host_shm *shm, int code, const char *text);
int ct_host_shm_get_verdict(const struct ct_host_shm *shm, struct ctrun_error *err);
