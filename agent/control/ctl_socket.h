/* SPDX-License-Identifier: Apache-2.0 */
/* The Unix socket of the agent for ctrunctl: one CTL_REQUEST a connection, CTL_REPLY comes back.
 *
 *     ACCEPTED ──request──────────────────> REPLYING ──last byte taken──> closed
 *        │  └────── WAITING ──answer, time is up ──┘
 *        └── another user, bad message, CTRUN_E_VERSION, time is up ──> closed
 *
 * Only processes of our user or root may connect; the kernel tells the user. Nothing waits for a
 * client, however slowly it reads. */
#pragma once

#include "agent/loop/loop.h"
#include "worker_sdk/wire/message.h"

struct ctl_socket;

struct ctl_socket_options {
    struct loop *loop;
    const char *run_id;
    void *context;
    /* Answers: appends JSON to out and returns 0, or writes the reason to err and returns a
     * code. */
    int (*on_status)(void *context, struct ct_buf *out, struct ctrun_error *err);
    int (*on_signal)(void *context, int signal, int rank, bool is_forced, pid_t sender,
                     struct ct_buf *out, struct ctrun_error *err);
    int (*on_why)(void *context, struct ct_buf *out, struct ctrun_error *err);
    int (*on_resize)(void *context, uint32_t min_nodes, uint32_t max_nodes,
                     struct ct_buf *out, struct ctrun_error *err);
    /* Here, and below, 0 means: the answer will come by ctl_socket_answer() with this ticket. */
    int (*on_stacks)(void *context, int rank, uint32_t ticket, struct ctrun_error *err);
    int (*on_drain)(void *context, const char *words, uint32_t ticket,
                    struct ctrun_error *err);
    int (*on_restart)(void *context, const char *reason, uint32_t ticket, pid_t sender,
                      struct ctrun_error *err);
    int (*on_reload)(void *context, const char *command, uint32_t ticket, pid_t sender,
                     struct ctrun_error *err);
    /* 1: the answer will come with the ticket; 0: done. */
    int (*on_chaos)(void *context, const struct ct_fault *fault, const char *text,
                    uint32_t ticket, pid_t sender, struct ctrun_error *err);
    /* Called after the answer was queued: may stop the loop. */
    void (*on_stop)(void *context, const char *reason, pid_t sender);
};

/* 0, or a code: then ctrunctl cannot reach this run; everything else works. */
int ctl_socket_open(struct ctl_socket **out, const struct ctl_socket_options *options,
                    struct ctrun_error *err);
/* Answers the client that waits with this ticket, if it still does: code 0 and JSON, or a code
 * and the reason. */
void ctl_socket_answer(struct ctl_socket *ctl_socket, uint32_t ticket, int code,
                       const char *text);
/* Removes the socket. NULL is fine. */
void ctl_socket_close(struct ctl_socket *ctl_socket);
