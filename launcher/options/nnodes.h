/* SPDX-License-Identifier: Apache-2.0 */
/* The two sizes of a job: --nnodes (N or MIN:MAX) and --nproc-per-node (a number or a
 * word; a list of them is nproc_list.h). */
#pragma once

#include "worker_sdk/base/error.h"

enum { /* more is a typing error */
    NNODES_MAX = 65536,
    NPROC_MAX = 4096,
};

struct nnodes {
    int min;
    int max;
};

/* 0, or -EINVAL with torchrun's message in err. */
int nnodes_parse(const char *text, struct nnodes *out, struct ctrun_error *err);

/* What the machine has; asked only when a word needs it. */
struct nproc_source {
    int (*gpus)(const void *context); /* 0: none */
    int (*cpus)(const void *context);
    const void *context;
};
/* Workers on this node. 0, -EINVAL. */
int nproc_parse(const char *text, const struct nproc_source *source, int *out,
                struct ctrun_error *err);
