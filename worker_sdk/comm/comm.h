/* SPDX-License-Identifier: Apache-2.0 */
/* Process groups: how a set of ranks meets and what it does together.
 *
 * The public half is in ctrun.h ("Process groups and collectives"); this header is for the
 * session, which opens groups, and for tests. A group meets through a `struct ct_bootstrap`,
 * a table of the three things it asks of a store, so that this folder knows neither sessions
 * nor stores.
 *
 *     ct_group_open ── host/discover.c: who is where ──> a back end (backend.h): host.c or nccl.c
 *     ctrun_all_reduce ... ── checks ──> struct ct_call ──> the back end
 *
 * Thread: a group belongs to one thread at a time, except ctrun_group_abort(). */
#pragma once

#include <stdbool.h>

#include "worker_sdk/comm/backend/device_kernel.h"
#include "worker_sdk/comm/backend/place.h"

/* ---- For DDP: what a group of a device asks of those who use its memory ----------------- */

/* Whether ctrun_group_alloc() gives memory that the host must not touch. */
bool ct_group_is_device(const struct ctrun_group *group);
/* A stream is a cudaStream_t. Below, what is put on the group's own stream comes behind what `stream`
 * has by then, and behind the works that were started before; a group of the host ignores it. */
/* That of the group's options. */
void *ct_group_stream(const struct ctrun_group *group);
/* Copies between memories of any kind, and waits. */
int ct_group_copy(struct ctrun_group *group, void *to, const void *from, size_t bytes,
                  void *stream, struct ctrun_error *err);
/* Zeroes memory of the group; nobody waits. 0 bytes are a join of the two streams. */
int ct_group_clear(struct ctrun_group *group, void *at, size_t bytes, void *stream,
                   struct ctrun_error *err);
/* What `stream` gets from now on comes behind all that the group's own stream has. */
int ct_group_hold_back(struct ctrun_group *group, void *stream,
                       struct ctrun_error *err);
/* From memory of the device to memory of the host in the background. Device groups only. */
int ct_group_fetch_start(struct ctrun_group *group, void *to, const void *from,
                         size_t bytes, struct ctrun_work **out,
                         struct ctrun_error *err);
/* Frees a work of a device group that nobody will wait for. */
int ct_work_let_go(struct ctrun_work *work, struct ctrun_error *err);
/* Runs a kernel; nobody waits. Device groups only. */
int ct_group_compute(struct ctrun_group *group, enum ct_device_kernel kernel,
                     const struct ct_device_args *args, void *stream,
                     struct ctrun_error *err);
/* Memory of a device to memory of it; nobody waits. Device groups only. */
int ct_group_copy_behind(struct ctrun_group *group, void *to, const void *from,
                         size_t bytes, void *stream, struct ctrun_error *err);
/* `stream` waits for a work, the host only where it is one of a group of the host. Frees it. */
int ct_work_wait_behind(struct ctrun_work *work, void *stream, struct ctrun_error *err);
/* All-reduce in the background of what the kernels that are on stream by now make. */
int ct_group_all_reduce_start(struct ctrun_group *group, const void *in, void *out_data,
                              size_t count, enum ctrun_dtype dtype, enum ctrun_op op,
                              void *stream, struct ctrun_work **out,
                              struct ctrun_error *err);

/* ctrun_group_open() with a place instead of a session. A rank that is no member gets *out =
 * NULL and 0 at once. options may be NULL. */
int ct_group_open(struct ctrun_group **out, const struct ct_group_place *place,
                  const struct ctrun_group_options *options, struct ctrun_error *err);
/* ctrun_group_split() with the place of this process, of which sequence is not used. */
int ct_group_split(struct ctrun_group **out, const struct ct_group_place *place,
                   struct ctrun_group *parent, int color,
                   const struct ctrun_group_options *options, struct ctrun_error *err);

/* ---- For a session that has lost ranks -------------------------------------------------- */

/* Of the place that it was opened with. */
uint32_t ct_group_epoch(const struct ctrun_group *group);
uint64_t ct_group_timeout_ms(const struct ctrun_group *group);
/* Every running and later call of it fails so, here and on the other ranks, unless it has failed before. */
void ct_group_end(struct ctrun_group *group, int code, const char *text);
/* Its name before anything was lost, and whether it had all ranks of its epoch. */
const char *ct_group_root(const struct ctrun_group *group);
bool ct_group_is_whole(const struct ctrun_group *group);
/* Opens the group of those members of `old` that are in place->ranks, by place->epoch, or of all in
 * place->ranks where the place takes_all. options NULL: as old's. */
int ct_group_shrink(struct ctrun_group **out, const struct ct_group_place *place,
                    const struct ctrun_group *old,
                    const struct ctrun_group_options *options, struct ctrun_error *err);
/* The same group for a rank that is new to it: `root` is the name that the others have for it. */
int ct_group_join(struct ctrun_group **out, const struct ct_group_place *place,
                  const char *root, const struct ctrun_group_options *options,
                  struct ctrun_error *err);
