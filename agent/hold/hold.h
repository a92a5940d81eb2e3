/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that workers have put into memory (a memfd), whose descriptor this process has too: they
 * outlive the worker, and a thread writes them to the disk.
 *
 *     begin ──> MAKING ──commit──> QUEUED ──a thread is free──> WRITING ──> WRITTEN
 *                 │ drop, the connection ends      └──── too late, cancelled ────┴──> LOST
 *                 └──> (freed)                                  │ no room, changed bytes ┘
 *
 * A rank has one in the making and one behind it: a begin waits while two that were committed are not on
 * the disk. What was committed stays, also when it is WRITTEN, until the rank commits the next one or the
 * run ends; of workers that are gone it makes room for others.
 *
 * Nothing is believed of a worker but what its memory's sum proves: bytes that differ from it are never
 * named. The loop touches no disk. */
#pragma once

#include "agent/loop/loop.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/wire/message.h"

struct hold;
struct hold_client; /* one connection of a worker */

/* What became of one that was committed. */
struct hold_end {
    int rank;
    const char *path; /* as its worker called it */
    uint64_t bytes;
    uint64_t took_ms;              /* since the commit */
    bool is_left;                  /* its worker had gone before */
    const struct ctrun_error *why; /* NULL: it is on the disk */
};

struct hold_options {
    struct loop *loop;
    uint64_t max_bytes; /* of all that is held; 0: find_max_bytes() is called, once */
    uint64_t (*find_max_bytes)(void);
    /* Any thread: false when nothing may be written any more. NULL: it may. */
    bool (*may_write)(void);
    void *context;
    /* Sends it, with the descriptor, which stays ours; -1: none. */
    void (*reply)(void *context, void *peer, const struct ct_worker_hold_reply *reply,
                  int fd);
    void (*on_end)(void *context, const struct hold_end *end);
    /* What was committed is on the disk or lost. */
    void (*on_idle)(void *context);
};

int hold_create(struct hold **out, const struct hold_options *options);
/* What is not written by now is lost. NULL is fine. */
void hold_destroy(struct hold *hold);
/* NULL: out of memory. `peer` comes back in reply(). */
struct hold_client *hold_join(struct hold *hold, void *peer, int rank);
/* Its worker has gone, or said that it goes. NULL is fine. */
void hold_leave(struct hold_client *client);
/* Takes fd (-1: none came). 0, or CTRUN_E_PROTOCOL: no worker of ours says that. */
int hold_on_request(struct hold_client *client, const struct ct_worker_hold *request,
                    int fd);
/* Something that was committed is not on the disk, and not lost yet. */
bool hold_is_busy(const struct hold *hold);
/* All such is lost now. */
void hold_cancel(struct hold *hold, const char *why);
