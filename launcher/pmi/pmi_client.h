/* SPDX-License-Identifier: Apache-2.0 */
/* A client of the PMI-2 server that started this process, at the socket PMI_FD. Blocks, and every
 * call has a deadline.
 *
 *     open ── put ── fence_begin ── fence_wait ── get ── close
 *                               └─ publish, look_up
 *
 * All processes of the job must enter a fence; keys put before the fence can be read after it. A
 * server accepts one client for each process, once: after close() it cannot be opened again. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "launcher/pmi/pmi2.h"
#include "worker_sdk/base/error.h"

enum {
    /* The server is on this machine: it answers at once, or never. */
    PMI_CLIENT_ANSWER_MS = 5000,
};

struct pmi_client {
    int fd;
    int rank;
    int size;
    bool is_in_fence, is_refused; /* is_refused: the fence was */
    struct pmi2_answer answer;
    char body[PMI2_BODY_MAX + 1];
};

/* Registers with the server, which tells rank and size. `job` and `rank` are PMI_JOBID and
 * PMI_RANK. 0, CTRUN_E_TIMEOUT, CTRUN_E_PROTOCOL (another protocol), or an errno. After a failure
 * the socket cannot be used again. */
int pmi_client_open(struct pmi_client *out, int fd, const char *job, int rank,
                    struct ctrun_error *err);
int pmi_client_put(struct pmi_client *client, const char *key, const char *value,
                   struct ctrun_error *err);
/* Enters the fence. The caller need not read the answer. */
int pmi_client_fence_begin(struct pmi_client *client, struct ctrun_error *err);
/* CTRUN_E_TIMEOUT: not all processes have entered yet; it can be called again. */
int pmi_client_fence_wait(struct pmi_client *client, uint64_t deadline_ms,
                          struct ctrun_error *err);
/* Publishes `name` with the whole job, at once; between begin and end of a fence, too. 0 or a code, and
 * then srun may not know names: ask for no other. */
int pmi_client_publish(struct pmi_client *client, const char *name, const char *value,
                       struct ctrun_error *err);
/* 1: a process of the job has published `name`. 0: none has, or srun did not answer the PMI server.
 * Or a code, as above. */
int pmi_client_look_up(struct pmi_client *client, const char *name,
                       struct ctrun_error *err);
/* *value is borrowed until the next call. -ENOENT: no task has put it. */
int pmi_client_get(struct pmi_client *client, const char *key, const char **value,
                   struct ctrun_error *err);
/* Tells the server, waits for its answer, closes the socket. */
void pmi_client_close(struct pmi_client *client);
