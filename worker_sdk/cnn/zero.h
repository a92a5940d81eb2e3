/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer's state in equal shares, one per rank (ZeRO-1). Each rank updates the parameters
 * of its share and receives the rest: the bits are the same as with the whole state on each rank.
 * For engines that compute on the host's model. */
#pragma once

#include "worker_sdk/cnn/backend.h"
#include "worker_sdk/cnn/net.h"
#include "worker_sdk/include/ctrun.h"

struct cnn_zero; /* opaque */

/* Collective. Takes this rank's share out of the model's state and frees that; group and model are kept. params:
 * the model's, in order. */
int cnn_zero_open(struct cnn_zero **out, struct ctrun_group *group,
                  struct cnn_model *model, const struct ctrun_param *params,
                  struct ctrun_error *err);
/* Accepts NULL. */
void cnn_zero_close(struct cnn_zero *zero);
/* Adadelta. Collective. */
int cnn_zero_update(struct cnn_zero *zero, struct cnn_engine *engine,
                    float *const grads[CNN_PARAMS], float lr, struct ctrun_error *err);
/* For a checkpoint: on rank 0 the model has all of its state until cnn_zero_drop(). Collective. */
int cnn_zero_gather(struct cnn_zero *zero, struct ctrun_error *err);
void cnn_zero_drop(struct cnn_zero *zero);
