/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/cnn/zero.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/cnn/optimizer.h"

enum {
    STATES = 2 /* square_avg, acc_delta */
};

struct cnn_zero {
    struct ctrun_zero *shares;
    struct cnn_model *model; /* kept */
    bool is_root;
    float *mine[STATES]; /* owned; of our share */
};

static struct cnn_tensors *state_of(const struct cnn_zero *zero, int s)
{
    return s == 0 ? &zero->model->square_avg : &zero->model->acc_delta;
}

/* Copies the elements of all parameters, one after the other, from the model or to it. */
static void copy_flat(struct cnn_tensors *tensors, float *flat, bool is_back)
{
    for (enum cnn_param p = 0; p < CNN_PARAMS; flat += cnn_params[p++].count)
        memcpy(is_back ? tensors->of[p] : flat, is_back ? flat : tensors->of[p],
               cnn_params[p].count * sizeof *flat);
}

static int take_shares(struct cnn_zero *zero, float *flat, struct ctrun_error *err)
{
    int rc = 0;

    for (int s = 0; s < STATES && rc == 0; s++) {
        zero->mine[s] = ct_zalloc_array(ctrun_zero_length(zero->shares) + 1,
                                        sizeof(float));
        if (!zero->mine[s])
            return ct_fail(err, -ENOMEM, "--zero: out of memory");
        copy_flat(state_of(zero, s), flat, false);
        rc = ctrun_zero_pick_state(zero->shares, flat, zero->mine[s], CTRUN_F32, err);
    }
    return rc;
}

int cnn_zero_open(struct cnn_zero **out, struct ctrun_group *group,
                  struct cnn_model *model, const struct ctrun_param *params,
                  struct ctrun_error *err)
{
    struct cnn_zero *zero = *out = ct_zalloc(sizeof *zero);
    float *flat;
    int rc;

    if (!zero)
        return ct_fail(err, -ENOMEM, "--zero: out of memory");
    zero->model = model;
    zero->is_root = ctrun_group_rank(group) == 0;
    if ((rc = ctrun_zero_create(&zero->shares, group, params, CNN_PARAMS, NULL, err)) <
        0)
        return rc;
    flat = ct_zalloc_array(ctrun_zero_total(zero->shares), sizeof *flat);
    rc = flat ? take_shares(zero, flat, err)
              : ct_fail(err, -ENOMEM, "--zero: out of memory");
    free(flat);
    cnn_zero_drop(zero);
    return rc;
}

void cnn_zero_close(struct cnn_zero *zero)
{
    if (!zero)
        return;
    ctrun_zero_destroy(zero->shares);
    for (int s = 0; s < STATES; s++)
        free(zero->mine[s]);
    free(zero);
}

struct update {
    const struct cnn_zero *zero;
    float *const *grads;
    float lr;
};

/* Each thread takes its part of each piece. */
static void update_part(void *context, int index, int count)
{
    const struct update *update = context;
    const struct cnn_zero *zero = update->zero;
    struct ctrun_zero_piece piece = CTRUN_ZERO_PIECE_INIT;

    for (size_t i = 0; ctrun_zero_piece(zero->shares, i, &piece, NULL) > 0; i++) {
        size_t first, end;

        cnn_team_split(piece.length, index, count, &first, &end);
        cnn_adadelta_step(
            &(struct cnn_adadelta){
                .value = zero->model->values.of[piece.param] + piece.offset + first,
                .grad = update->grads[piece.param] + piece.offset + first,
                .square_avg = zero->mine[0] + piece.state + first,
                .acc_delta = zero->mine[1] + piece.state + first,
            },
            end - first, update->lr);
    }
}

int cnn_zero_update(struct cnn_zero *zero, struct cnn_engine *engine,
                    float *const grads[CNN_PARAMS], float lr, struct ctrun_error *err)
{
    struct update update = {.zero = zero, .grads = grads, .lr = lr};

    cnn_team_run(engine->team, update_part, &update);
    return ctrun_zero_share(zero->shares, NULL, err);
}

int cnn_zero_gather(struct cnn_zero *zero, struct ctrun_error *err)
{
    float *flat = NULL;
    int rc = 0;

    if (zero->is_root &&
        (!(flat = ct_zalloc_array(ctrun_zero_total(zero->shares), sizeof *flat)) ||
         cnn_tensors_init(state_of(zero, 0)) < 0 ||
         cnn_tensors_init(state_of(zero, 1)) < 0))
        rc = ct_fail(
            err, -ENOMEM,
            "--zero: out of memory to save"); /* the others are told when we end */
    for (int s = 0; s < STATES && rc == 0; s++) {
        rc = ctrun_zero_gather_state(zero->shares, zero->mine[s], flat, CTRUN_F32, 0,
                                     err);
        if (rc == 0 && zero->is_root)
            copy_flat(state_of(zero, s), flat, true);
    }
    free(flat);
    return rc;
}

void cnn_zero_drop(struct cnn_zero *zero)
{
    for (int s = 0; s < STATES; s++)
        cnn_tensors_deinit(state_of(zero, s));
}
