/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that workers have put into memory (a memfd), whose descriptor this process has
 * too: they outlive the worker, and a thread writes them to the disk.
 *
 *     begin ──> MAKING ──commit──> QUEUED ──a thread is free──> WRITING ──> WRITTEN
 *                 │ drop, the connection ends      └──── too late, cancelled ────┴──> LOST
 *                 └──> (freed)                                  │ no room, changed bytes ┘
 *
 * A rank may make one while another one is written: a begin waits while two committed ones are
 * not on the disk. A committed one stays in memory, also when it is WRITTEN, until the rank
 * commits the next one or the run ends; if its worker is gone and room is needed, it is freed.
 *
 * A worker is not trusted: bytes that do not match their checksum never get the file's name. The
 * loop touches no disk. */
#pragma once

#include "agent/loop/loop.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/wire/message.h"

struct hold;
struct hold_client; /* one connection of a worker */

/* Result of an entry that was committed. */
struct hold_end {
    int rank;
    const char *path; /* its file, as the worker named it */
    uint64_t bytes;
    uint64_t took_ms;              /* time since the commit */
    bool is_left;                  /* its worker had gone before the end */
    const struct ctrun_error *why; /* NULL: it is on the disk */
};

struct hold_options {
    struct loop *loop;
    /* limit of all that is held; 0: find_max_bytes() is called, once */
    uint64_t max_bytes;
    uint64_t (*find_max_bytes)(void);
    /* Any thread: false when no file may be written any more. NULL: always allowed. */
    bool (*may_write)(void);
    void *context;
    /* Sends the reply, with memory's descriptor, which stays ours; -1: none. */
    void (*reply)(void *context, void *peer, const struct ct_worker_hold_reply *reply,
                  int fd);
    void (*on_end)(void *context, const struct hold_end *end);
    /* All committed entries are on the disk or lost. */
    void (*on_idle)(void *context);
};

int hold_create(struct hold **out, const struct hold_options *options);
/* Entries not written by now are lost. NULL is fine. */
void hold_destroy(struct hold *hold);
/* NULL: out of memory. `peer` comes back in reply(). */
struct hold_client *hold_join(struct hold *hold, void *peer, int rank);
/* Its worker has ended or closes its connection. NULL is fine. */
void hold_leave(struct hold_client *client);
/* Takes fd (-1: none came). 0, or CTRUN_E_PROTOCOL: not a valid request at this point. */
int hold_on_request(struct hold_client *client, const struct ct_worker_hold *request,
                    int fd);
/* True while a committed entry is neither on the disk nor lost. */
bool hold_is_busy(const struct hold *hold);
/* Time after which all such entries are on the disk or lost; 0: there is none. */
uint64_t hold_left_ms(const struct hold *hold);
/* All such entries are lost now. */
void hold_cancel(struct hold *hold, const char *why);
/* 0, or the code with which the last file that the rank committed was lost, unless the rank was told
 * so, or hold_cancel() or hold_forget_lost() gave it up. */
int hold_find_lost(const struct hold *hold, int rank, struct ctrun_error *err);
/* Another world begins, and its ranks make checkpoints of their own. */
void hold_forget_lost(struct hold *hold);
