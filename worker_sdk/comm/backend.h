/* SPDX-License-Identifier: Apache-2.0 */
/* What carries a group: one call, one table of functions.
 *
 * comm.c checks the arguments, numbers the calls and hands them to a back end one after the
 * other, never two at once; only abort() comes from other threads. A back end that cannot
 * finish a call kills the whole group: all members get the same code and sentence. */
#ifndef CT_COMM_BACKEND_H
#define CT_COMM_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/comm/comm.h"

enum ct_call_kind {
    CT_CALL_ALL_REDUCE = 1,
    CT_CALL_BROADCAST,
    CT_CALL_ALL_GATHER,
    CT_CALL_BARRIER,
    CT_CALL_SEND,
    CT_CALL_RECV,
};

struct ct_call {
    enum ct_call_kind kind;
    const void *in; /* what this rank gives: count elements; borrowed */
    void *out;      /* what it gets; the same pointer where the call works in place */
    size_t count;
    size_t bytes; /* count elements of dtype */
    enum ctrun_dtype dtype;
    enum ctrun_op op;
    int divisor;          /* of an AVG: the size of the group; else 1 */
    int peer;             /* root, receiver or sender, as index in the group */
    uint64_t number;      /* counts the collectives of the group from 1; for people */
    uint64_t deadline_ms; /* monotonic */
};

/* "all_reduce of 10 f32, SUM": dst has CT_CALL_TEXT_MAX bytes. */
enum {
    CT_CALL_TEXT_MAX = 96
};
void ct_call_format(char *dst, const struct ct_call *call);

/* What a back end is opened with; all borrowed for the call. */
struct ct_backend_setup {
    const struct ct_group_place *place;
    const struct ctrun_group_options *options;
    const int *ranks; /* world rank of each member, ascending */
    int size;         /* members */
    int me;           /* our index among them */
    const char *key;  /* prefix of this group's keys in the store */
    uint64_t deadline_ms;
};

struct ct_backend_ops {
    uint32_t version; /* CT_BACKEND_VERSION; first, so that a plug-in can be refused */
    const char *name;
    int (*open)(void **self, const struct ct_backend_setup *setup,
                struct ctrun_error *err);
    /* Does the call; blocks until this rank's part is done, at most until its deadline. */
    int (*run)(void *self, const struct ct_call *call, struct ctrun_error *err);
    /* In the background without a thread, where is_inline() says so: begin() starts the call (a
     * copy is kept) and never blocks; advance() takes it further, waiting if told to: 1 done, 0
     * not yet. Otherwise comm.c runs background calls on a thread. */
    bool (*is_inline)(const void *self);
    int (*begin)(void *self, const struct ct_call *call, struct ctrun_error *err);
    int (*advance)(void *self, bool wait, struct ctrun_error *err);
    int (*alloc)(void *self, size_t bytes, uint64_t deadline_ms, void **out,
                 struct ctrun_error *err);
    /* Ends the group everywhere with this code and text. Any thread; may be called again. */
    void (*abort)(void *self, int code, const char *text);
    void (*close)(void *self);
};
enum {
    CT_BACKEND_VERSION = 1
};

/* host.c: shared memory inside a host, TCP between hosts. */
extern const struct ct_backend_ops ct_host_backend;

/* plugin.c: finds libctrun-nccl.so. Fails with CTRUN_E_UNSUPPORTED, saying what is missing. */
int ct_plugin_load(const struct ct_backend_ops **out, const char *name,
                   struct ctrun_error *err);
/* What a plug-in exports under CT_PLUGIN_SYMBOL. */
typedef const struct ct_backend_ops *ct_plugin_fn(void);
#define CT_PLUGIN_SYMBOL "ctrun_backend_plugin"

#endif
