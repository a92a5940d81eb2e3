/* SPDX-License-Identifier: Apache-2.0 */
/* The training run: epochs of steps, a test after each, checkpoints, one rank or many.
 *
 * Every rank takes every W-th sample of each global batch, so that for a seed and a global batch
 * size the samples, the dropout masks and, up to rounding, the losses are the same whatever the
 * number of ranks. With virtual workers each virtual worker, not each rank, has its samples and
 * its gradients, and the model's bits are the same, too. Ranks agree in every step on whether to
 * stop, so no rank waits for a rank that has ended. */
#pragma once

#include <signal.h>

#include "worker_sdk/include/ctrun.h"

struct cnn_train_options {
    const char *data; /* directory of the IDX files */
    const char *backend;
    const char *exchange; /* of gradients: the back end of the group, host or nccl */
    const char *save;     /* checkpoint file, or NULL */
    bool
        save_sharded; /* it is a folder, into which all ranks write in the background */
    uint64_t keep;    /* so many checkpoints stay there; 0: all */
    bool resume;      /* continue from `save` when it is there */
    const char *init; /* file of the first values, or NULL */
    const char *dump_gradients; /* file for those of the last step, or NULL */
    bool no_dropout;
    bool no_shuffle;
    bool json;
    uint64_t epochs;
    uint64_t batch_size; /* samples of a step, each rank */
    uint64_t
        global_batch; /* of all ranks together; 0: batch_size * world size, or virtual_workers */
    uint64_t virtual_workers; /* whose gradients are added along one tree; 0: of DDP */
    bool zero;                /* each rank keeps a share of the optimizer's state */
    uint64_t test_batch_size; /* how many are tested at once; no effect on the result */
    uint64_t log_interval;    /* steps between lines; 0: none */
    uint64_t save_steps;      /* steps between checkpoints inside an epoch; 0: none */
    uint64_t limit_steps;     /* end after so many steps in all; 0: no limit */
    uint64_t threads;         /* 0: usable cores / ranks on this host */
    uint64_t seed;
    double lr;
    double gamma;
};

enum cnn_outcome {
    CNN_DONE,       /* all epochs, or the step limit */
    CNN_ASKED,      /* the agent asked us to end; saved */
    CNN_TERMINATED, /* *terminated was set, here or on another rank; saved */
};

/* Runs the whole training. on_set_up is called once, before the first step, when group, data and
 * model are ready. terminated: set by a signal handler, read between steps. Returns an outcome, or
 * a negative code. */
int cnn_train(const struct cnn_train_options *options,
              const volatile sig_atomic_t *terminated, void (*on_set_up)(void),
              struct ctrun_error *err);
