/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "worker_sdk/base/hash.h"
#include "worker_sdk/comm/nccl/nccl_private.h"

/* All calls of the group are done here, but a graph may run some of its own. */
bool ct_nccl_can_split(void *self)
{
    struct nccl *nccl = self;
    int device = -1;
    bool can;

    pthread_mutex_lock(&nccl->lock);
    can = nccl->comm && !nccl->is_stopped && !nccl->has_recorded;
    pthread_mutex_unlock(&nccl->lock);
    return can && ct_nccl_api.ncclCommSplit &&
           ct_nccl_api.cudaGetDevice(&device) == cudaSuccess && device == nccl->device;
}

void ct_nccl_set_splitting(void *self, bool is_splitting)
{
    struct nccl *nccl = self;

    nccl->is_splitting = is_splitting;
}

/* NCCL writes *out until this returns 0, or until the parent is aborted. */
static int split(struct nccl *parent, int color, ncclComm_t *out, ncclConfig_t *config,
                 uint64_t deadline_ms, struct ctrun_error *err)
{
    ncclResult_t begun = ncclSuccess;
    int rc = ct_nccl_settle(parent, "split", deadline_ms, err);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&parent->lock);
    if ((rc = ct_nccl_ask_comm(parent, "split", err)) >= 0)
        begun = ct_nccl_api.ncclCommSplit(parent->comm, color, parent->me, out, config);
    pthread_mutex_unlock(&parent->lock);
    if (rc >= 0 && begun != ncclSuccess && begun != ncclInProgress)
        rc = ct_nccl_fail(err, "split", begun);
    return rc < 0 ? rc : ct_nccl_settle(parent, "split", deadline_ms, err);
}

int ct_nccl_split_none(void *self, uint64_t deadline_ms, struct ctrun_error *err)
{
    struct nccl *parent = self;
    struct ctrun_error why;
    const struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    ncclConfig_t config = ct_nccl_config(&options);
    ncclComm_t none = NULL;
    int rc = split(parent, NCCL_SPLIT_NOCOLOR, &none, &config, deadline_ms, &why);

    return rc < 0 ? ct_nccl_fail_group(parent, rc, &why, err) : 0;
}

/* A key of the parent is as good as an id: no other group has it. */
int ct_nccl_split(struct nccl *nccl, const struct ct_backend_setup *setup,
                  struct ctrun_error *err)
{
    struct nccl *parent = setup->parent;
    ncclConfig_t config = ct_nccl_config(setup->options);
    struct ctrun_error why;
    int rc;

    nccl->id_hash = (uint32_t)ct_hash(parent->key, strlen(parent->key));
    ct_nccl_open_board(nccl, setup);
    rc = split(parent, setup->color, &nccl->comm, &config, setup->deadline_ms, &why);
    if (rc < 0)
        return ct_nccl_fail_group(parent, rc, &why, err);
    return ct_nccl_settle(nccl, "split", setup->deadline_ms, err);
}
