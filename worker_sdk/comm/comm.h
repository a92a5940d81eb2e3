/* SPDX-License-Identifier: Apache-2.0 */
/* Process groups: how a set of ranks meets, and its collectives.
 *
 * The public half is in ctrun.h ("Process groups and collectives"); this header is for the session,
 * which opens groups, and for tests. A group meets through a `struct ct_bootstrap`, a table of the
 * three store functions that it needs, so that this folder depends neither on sessions nor on
 * stores.
 *
 *     ct_group_open ── the members' addresses (host/discover.c) ──> a back end: host.c or nccl.c
 *     ctrun_all_reduce ... ── checks ──> struct ct_call ──> the back end
 *
 * Thread: a group belongs to one thread at a time, except ctrun_group_abort(). */
#pragma once

#include <errno.h>
#include <stdbool.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/comm/backend/device_kernel.h"
#include "worker_sdk/comm/backend/place.h"

/* ---- For DDP: operations on the memory and streams of a device group --------------------- */

/* Whether ctrun_group_alloc() gives memory that the host must not touch. */
bool ct_group_is_device(const struct ctrun_group *group);
/* -EINVAL for NULL, which is what a rank gets that is no member. `name`: of the call. */
static inline int ct_group_check(const struct ctrun_group *group, const char *name,
                                 struct ctrun_error *err)
{
    return group
               ? 0
               : ct_fail(err, -EINVAL,
                         "%s: the group is NULL, as on a rank that is no member of it",
                         name);
}
/* As ct_backend_ops.describe_device and .find_device; device groups only. */
void ct_group_describe_device(const struct ctrun_group *group,
                              struct ct_device_facts *out);
int ct_group_find_device(const struct ctrun_group *group, const void *data);
/* A stream is a cudaStream_t. In the calls below, work that is put on the group's own stream runs
 * after the work that is on `stream` by then and after the works that were started before; a host
 * group ignores `stream`. */
/* The stream of the group's options. */
void *ct_group_stream(const struct ctrun_group *group);
/* Copies between host and device memory in any combination, and waits. */
int ct_group_copy(struct ctrun_group *group, void *to, const void *from, size_t bytes,
                  void *stream, struct ctrun_error *err);
/* Zeroes memory of the group; does not wait. With 0 bytes only makes the group's stream wait for
 * `stream`. */
int ct_group_clear(struct ctrun_group *group, void *at, size_t bytes, void *stream,
                   struct ctrun_error *err);
/* Work put on `stream` from now on runs after all work that is on the group's own stream. */
int ct_group_hold_back(struct ctrun_group *group, void *stream,
                       struct ctrun_error *err);
/* Copies from device memory to host memory in the background, behind what `stream` has. Device
 * groups only. */
int ct_group_fetch_start(struct ctrun_group *group, void *to, const void *from,
                         size_t bytes, void *stream, struct ctrun_work **out,
                         struct ctrun_error *err);
/* Frees a work of a device group that nobody will wait for. */
int ct_work_let_go(struct ctrun_work *work, struct ctrun_error *err);
/* Runs a kernel; does not wait. Device groups only. */
int ct_group_compute(struct ctrun_group *group, enum ct_device_kernel kernel,
                     const struct ct_device_args *args, void *stream,
                     struct ctrun_error *err);
/* Copies between memory of the device; does not wait. Device groups only. */
int ct_group_copy_behind(struct ctrun_group *group, void *to, const void *from,
                         size_t bytes, void *stream, struct ctrun_error *err);
/* Makes `stream` wait for a work; the host waits only if the work is of a host group. Frees the
 * work. */
int ct_work_wait_behind(struct ctrun_work *work, void *stream, struct ctrun_error *err);
/* All-reduce in the background, after the kernels that are on stream now. */
int ct_group_all_reduce_start(struct ctrun_group *group, const void *in, void *out_data,
                              size_t count, enum ctrun_dtype dtype, enum ctrun_op op,
                              void *stream, struct ctrun_work **out,
                              struct ctrun_error *err);
/* The same for a reduce-scatter; count: of one rank's part. */
int ct_group_reduce_scatter_start(struct ctrun_group *group, const void *in,
                                  void *out_data, size_t count, enum ctrun_dtype dtype,
                                  enum ctrun_op op, void *stream,
                                  struct ctrun_work **out, struct ctrun_error *err);

/* ctrun_group_open() with a place instead of a session. A rank that is no member gets *out =
 * NULL and 0 at once. options may be NULL. */
int ct_group_open(struct ctrun_group **out, const struct ct_group_place *place,
                  const struct ctrun_group_options *options, struct ctrun_error *err);
/* ctrun_group_split() with the place of this process; sequence is not used. */
int ct_group_split(struct ctrun_group **out, const struct ct_group_place *place,
                   struct ctrun_group *parent, int color,
                   const struct ctrun_group_options *options, struct ctrun_error *err);

/* Counts a backward that DDP begins on the group: if members come to a collective after different
 * numbers of backwards, it fails with CTRUN_E_MISMATCH (host). */
void ct_group_count_pass(struct ctrun_group *group);

/* ---- For a session that has lost ranks -------------------------------------------------- */

/* The epoch of the place that the group was opened with. */
uint32_t ct_group_epoch(const struct ctrun_group *group);
uint64_t ct_group_timeout_ms(const struct ctrun_group *group);
/* Makes every running and later call of the group fail with this code and text, here and on the
 * other ranks, unless the group has failed before. */
void ct_group_end(struct ctrun_group *group, int code, const char *text);
/* The group's name before any loss, and whether the group had all ranks of its epoch. */
const char *ct_group_root(const struct ctrun_group *group);
bool ct_group_is_whole(const struct ctrun_group *group);
/* Opens the group of the members of `old` that are in place->ranks, in place->epoch, or of all of
 * place->ranks if place->takes_all. options NULL: those of old. */
int ct_group_shrink(struct ctrun_group **out, const struct ct_group_place *place,
                    const struct ctrun_group *old,
                    const struct ctrun_group_options *options, struct ctrun_error *err);
/* Opens the same group on a new rank: `root` is the other members' name for it. */
int ct_group_join(struct ctrun_group **out, const struct ct_group_place *place,
                  const char *root, const struct ctrun_group_options *options,
                  struct ctrun_error *err);
