/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side of PMI-1, by which programs of MPICH and its kin find each other: who is
 * which of how many, a key-value space, a barrier. Pure: lines in, lines out.
 *
 *     cmd=put kvsname=kvs key=P0-businesscard value=...     cmd=put_result rc=0 msg=success
 *     cmd=barrier_in                                        cmd=barrier_out rc=0, once all are in
 *
 * Words are KEY=VALUE between blanks; a line ends with a newline. Each request has one answer, but
 * an abort: who sends it waits for its end. Names, spawning and everything newer than PMI 1.1 are
 * refused. */
#ifndef AGENT_PMI_JOB_H
#define AGENT_PMI_JOB_H

#include <stddef.h>

enum {
    PMI_KEY_MAX = 64, /* what get_maxes tells, NUL included */
    PMI_VALUE_MAX = 1024,
    PMI_KVS_MAX = 64,
    PMI_LINE_MAX = 2048,    /* of a request, newline included */
    PMI_ENTRIES_EACH = 256, /* keys that a process may put, on average */
};

struct pmi_job;

enum pmi_act {
    PMI_ANSWER,     /* to who asked */
    PMI_ANSWER_ALL, /* the barrier opens */
    PMI_WAIT,       /* nothing now */
    PMI_GOODBYE,    /* answer, and no more is to be expected */
    PMI_ABORT, /* no answer: this process has failed with exit_code, and is to end */
};

struct pmi_reply {
    enum pmi_act act;
    int exit_code; /* with PMI_ABORT: 1 to 255 */
    size_t length;
    char text[PMI_LINE_MAX]; /* terminated */
};

/* `size` processes, all on one node. NULL: out of memory. */
struct pmi_job *pmi_job_create(int size);
void pmi_job_destroy(struct pmi_job *job); /* NULL is fine */
/* One line of process `rank`, without its newline; it is cut into words. 0, or -EPROTO: that is no
 * PMI-1 and cannot be answered; -ENOMEM. */
int pmi_job_serve(struct pmi_job *job, int rank, char *line, struct pmi_reply *out);

#endif
