/* SPDX-License-Identifier: Apache-2.0 */
/* A back end does the calls of a group: struct ct_call, and a table of functions.
 *
 * work.c checks the arguments, numbers the calls and hands them to a back end one after the other;
 * only abort(), nudge() and rest() are called by other threads meanwhile. A host back end runs one
 * call at a time; a device back end (enqueue is not NULL) has any number of calls in flight. A back
 * end that cannot finish a call ends the whole group: all members get the same code and text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "worker_sdk/comm/backend/device_kernel.h"
#include "worker_sdk/comm/backend/place.h"

enum ct_call_kind {
    CT_CALL_ALL_REDUCE = 1,
    CT_CALL_REDUCE,
    CT_CALL_BROADCAST,
    CT_CALL_ALL_GATHER,
    CT_CALL_REDUCE_SCATTER,
    CT_CALL_BARRIER,
    CT_CALL_SPLIT, /* an ALL_GATHER; its name tells its use */
    /* Collectives made of messages, which start once all members have agreed. */
    CT_CALL_ALL_TO_ALL,
    CT_CALL_ALL_TO_ALL_V,
    CT_CALL_ALL_GATHER_V,
    CT_CALL_GATHER,
    CT_CALL_SCATTER,
    /* Messages that only sender and receiver know of. */
    CT_CALL_SEND,
    CT_CALL_RECV,
    CT_CALL_BATCH,
    /* Calls of this rank alone, in order with the calls of its group; device back ends only. */
    CT_CALL_COPY,
    CT_CALL_CLEAR,
    CT_CALL_COMPUTE,
    CT_CALL_ALLOC, /* an ALL_GATHER, of the host back end's own use; count: bytes of the memory */
};

/* One message and its progress. A member that sends to itself has two messages, the send first. */
enum {
    CT_HEADER_BYTES = 32
};
struct ct_comm_message {
    int peer; /* index in the group */
    bool is_send;
    const void *from; /* of a send; borrowed */
    void *to;         /* of a receive */
    size_t bytes;
    enum ctrun_dtype dtype;
    size_t done; /* bytes moved, of header and data */
    unsigned char header[CT_HEADER_BYTES];
};

struct ct_call {
    enum ct_call_kind kind;
    const void *in; /* this rank's input: count elements; borrowed */
    void *out;      /* the result; equal to `in` if the call works in place */
    size_t count;   /* REDUCE_SCATTER: elements of one member's part */
    size_t bytes;   /* count elements of dtype */
    enum ctrun_dtype dtype;
    enum ctrun_op op;
    int divisor;          /* AVG: the size of the group; else 1 */
    int peer;             /* root, receiver or sender, as index in the group */
    uint64_t flight;      /* its number in the record of calls; 0: not recorded */
    uint64_t number;      /* counts the group's collectives from 1; for messages */
    uint8_t pass;         /* DDP backwards that began before it, modulo 256 */
    uint64_t deadline_ms; /* monotonic */
    struct ct_comm_message *messages; /* in their order; owned by the call's owner */
    size_t message_count;
    /* ALL_GATHER_V: a hash of the counts, equal on all ranks; ALL_TO_ALL_V: of this rank's counts, such
     * that their sum over all ranks is 0 unless they differ, and after the agreement that sum; else 0 */
    uint64_t parts;
    enum ct_device_kernel kernel; /* COMPUTE */
    struct ct_device_args args;   /* of the kernel */
    bool is_awaited;              /* the host waits for the call at once */
    bool has_moved;               /* its messages have been tried: the group lived */
    bool is_complete;             /* all messages have been moved */
    struct ct_call *next;         /* runs at the same time; see move() */
};

static inline bool ct_call_has_messages(const struct ct_call *call)
{
    return call->kind >= CT_CALL_ALL_TO_ALL && call->kind <= CT_CALL_BATCH;
}

static inline bool ct_call_is_reduction(const struct ct_call *call)
{
    return call->kind == CT_CALL_ALL_REDUCE || call->kind == CT_CALL_REDUCE ||
           call->kind == CT_CALL_REDUCE_SCATTER;
}

static inline bool ct_call_is_all_gather(const struct ct_call *call)
{
    return call->kind == CT_CALL_ALL_GATHER || call->kind == CT_CALL_SPLIT ||
           call->kind == CT_CALL_ALLOC;
}

static inline bool ct_call_is_p2p(const struct ct_call *call)
{
    return call->kind >= CT_CALL_SEND && call->kind <= CT_CALL_BATCH;
}

/* Whether the agreement has found that two members differ about a length. */
static inline bool ct_call_is_unbalanced(const struct ct_call *call)
{
    return call->kind == CT_CALL_ALL_TO_ALL_V && call->parts != 0;
}

/* Bytes of `in` on a rank that has input. */
static inline size_t ct_call_in_bytes(const struct ct_call *call, int size)
{
    return call->kind == CT_CALL_REDUCE_SCATTER ? call->bytes * (size_t)size
                                                : call->bytes;
}

/* "all_reduce". Static. */
const char *ct_call_name(enum ct_call_kind kind);
/* "all_reduce of 10 f32, SUM": dst has CT_CALL_TEXT_MAX bytes. */
enum {
    CT_CALL_TEXT_MAX = 96
};
void ct_call_format(char *dst, const struct ct_call *call);
/* In front of the reason, with the name of a call that came after it. */
#define CT_FAILED_BEFORE "%s: this group has failed before"
/* How two calls differ where their texts do not say so; appended to the text of a mismatch. Static; may be empty. */
const char *ct_call_difference(const struct ct_call *a, const struct ct_call *b);
/* Says which calls the ranks `me` and `peer` make. Negative. */
int ct_call_fail_mismatch(const struct ct_call *call, int me,
                          const struct ct_call *other, int peer,
                          struct ctrun_error *err);

/* What a back end is opened with; all borrowed for the call. */
struct ct_backend_setup {
    const struct ct_group_place *place;
    const struct ctrun_group_options *options;
    const int *ranks; /* world rank of each member, ascending */
    int size;         /* members */
    int me;           /* our index among them */
    const char *key;  /* prefix of this group's keys in the store */
    uint64_t deadline_ms;
    struct ct_loss_watch
        losses; /* kept; asked during waits; check NULL: no rank can be lost */
    /* Only of ct_group_shrink(): the previous group, if it had the same back end; else NULL. The
     * new group may take resources from it; calls of the old group fail. All its members know it by
     * old_key. */
    void *old;
    const char *old_key;
    const int *old_ranks;
    int old_size;
    /* Only of ct_group_split(), where all members of the parent can split it: the parent, and the color
     * of the members of this group. */
    void *parent;
    int color;
};

struct ct_backend_ops {
    uint32_t version; /* CT_BACKEND_VERSION; first, to recognize other plug-ins */
    const char *name;
    int (*open)(void **self, const struct ct_backend_setup *setup,
                struct ctrun_error *err);
    /* Does a collective; blocks until this rank's part is done, at most until its deadline. */
    int (*run)(void *self, const struct ct_call *call, struct ctrun_error *err);
    /* If is_inline(), any thread may continue background calls: begin() starts the call (a copy is
     * kept) and never blocks; advance() continues it and waits only if `wait`: 1 done, 0 not yet.
     * Otherwise queue.c runs background calls on a thread. */
    bool (*is_inline)(const void *self);
    int (*begin)(void *self, const struct ct_call *call, struct ctrun_error *err);
    int (*advance)(void *self, bool wait, struct ctrun_error *err);
    /* For a thread that tries: arm() comes before the last try, and after it rest() sleeps, if
     * `sleeps`, until something may have changed since arm(), or a slice. rest() always follows
     * arm(), and runs beside all other functions but close(). */
    uint32_t (*arm)(void *self);
    void (*rest)(void *self, uint32_t bell, bool sleeps);
    /* Continues the messages of `first` and of the calls linked behind it, all at the same time. 1:
     * one more of these calls is complete; 0: none (with `wait` only after a nudge). Host back ends
     * only. */
    int (*move)(void *self, struct ct_call *first, bool wait, struct ctrun_error *err);
    /* Makes a thread that waits in move() return, so that it can call move() again with more
     * messages. Any thread. */
    void (*nudge)(void *self);
    /* Device back ends have these three instead of begin and advance, and run is NULL. A call is
     * enqueued behind the work that is on `stream` now and behind earlier calls; nothing waits. in
     * and out are memory of the device or of the host. If `stream` is being captured into a graph,
     * the group's stream joins the capture: then the call is recorded, and only a stream can wait
     * for it. A call that cannot be recorded fails, and the group stays usable. */
    int (*enqueue)(void *self, const struct ct_call *call, void *stream, void **ticket,
                   struct ctrun_error *err);
    /* 1 done, and results for the host have been copied; 0 not yet; with `wait` until the call's
     * deadline. After success and after failure the ticket is spent. */
    int (*poll)(void *self, void *ticket, bool wait, struct ctrun_error *err);
    /* Called when nobody will poll the call any more: the back end itself then makes sure that the
     * call ends by its deadline. Work put on *stream from now on, if stream is not NULL, runs
     * after the call. The ticket is spent, also on failure. */
    int (*release)(void *self, void *ticket, void *const *stream,
                   struct ctrun_error *err);
    /* On a device waits for the calls before; at the deadline the group has failed. */
    int (*alloc)(void *self, size_t bytes, uint64_t deadline_ms, void **out,
                 struct ctrun_error *err);
    /* Frees memory of alloc(). Local; also possible when the group has failed. 0, or -ENOENT. */
    int (*free)(void *self, void *at);
    /* A back end may have these three: then the parts of a group are made out of it, not by way of the
     * store. can_split: this member can, now. set_splitting: true before this member does its
     * share, false once it has succeeded. split_none: the share of a member of no part, while the
     * others open() theirs. Where one member fails, the parent must end, because the others wait
     * for that member. */
    bool (*can_split)(void *self);
    void (*set_splitting)(void *self, bool is_splitting);
    int (*split_none)(void *self, uint64_t deadline_ms, struct ctrun_error *err);
    /* Of a device back end: what this member's device has; and the number of the device that has
     * this memory, -1 where it is memory of the host. */
    void (*describe_device)(void *self, struct ct_device_facts *out);
    int (*find_device)(void *self, const void *data);
    /* Ends the group everywhere with this code and text. Any thread; may be called again. */
    void (*abort)(void *self, int code, const char *text);
    void (*close)(void *self);
};
enum {
    CT_BACKEND_VERSION = 12
};

/* A member with the back end nccl stores this where a member with the back end host stores its
 * hello, so that member 0, which reads all hellos, finds the difference. Member 0 tells both kinds:
 * host members in the table, nccl members in place of the id. */
#define CT_NCCL_HELLO "nccl"

/* plugin.c: finds libctrun-nccl.so. Fails with CTRUN_E_UNSUPPORTED, saying what is missing. */
int ct_plugin_load(const struct ct_backend_ops **out, const char *name,
                   struct ctrun_error *err);
/* The function that a plug-in exports as CT_PLUGIN_SYMBOL. */
typedef const struct ct_backend_ops *ct_plugin_fn(void);
#define CT_PLUGIN_SYMBOL "ctrun_backend_plugin"
