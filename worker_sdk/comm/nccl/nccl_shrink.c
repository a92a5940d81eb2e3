/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/nccl/nccl_private.h"

enum {
    REVOKE_MS =
        5000 /* for running calls to end; if too late, a new communicator is made */
};

/* Whether the old communicator can be shrunk. Waits until its running calls have ended. Holds the
 * old group's lock only during each check, because another thread may be aborting the group. */
static bool may_shrink(struct nccl *nccl, const struct ct_backend_setup *setup)
{
    struct nccl *old = setup->old;
    const uint64_t until_ms = ct_deadline_ms(REVOKE_MS);
    struct ct_nccl_wait nap = ct_nccl_wait_begin();

    if (old->device != nccl->device || setup->size >= setup->old_size)
        return false;
    for (;;) {
        ncclResult_t state = ncclSystemError;

        pthread_mutex_lock(&old->lock);
        if (old->comm && old->is_stopped &&
            ct_nccl_api.ncclCommGetAsyncError(old->comm, &state) != ncclSuccess)
            state = ncclSystemError;
        pthread_mutex_unlock(&old->lock);
        if (state != ncclInProgress)
            return state == ncclSuccess;
        if (ct_now_ms() >= until_ms)
            return false;
        ct_nccl_nap(nccl, &nap);
    }
}

/* Reads the value that member i has stored under the key `what`. */
static int get_word(const struct ct_backend_setup *setup, const char *what, int i,
                    char text[CT_BOOTSTRAP_KEY_MAX], struct ctrun_error *err)
{
    char key[CT_BOOTSTRAP_KEY_MAX];
    size_t length;
    void *value;
    int rc;

    (void)ct_format(key, sizeof key, "%s/%s/%d", setup->key, what, i);
    if ((rc = ct_nccl_get_value(setup, key, &value, &length, err)) < 0)
        return ct_wrap(err, "nccl: wait for rank %d", setup->ranks[i]), rc;
    if (length < CT_BOOTSTRAP_KEY_MAX)
        memcpy(text, value, length);
    text[length < CT_BOOTSTRAP_KEY_MAX ? length : 0] = '\0';
    free(value);
    return 0;
}

static int put_word(const struct ct_backend_setup *setup, const char *what,
                    const char *text, struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    char key[CT_BOOTSTRAP_KEY_MAX];

    (void)ct_format(key, sizeof key, "%s/%s/%d", setup->key, what, setup->me);
    return store->set(store->context, key, text, strlen(text), setup->deadline_ms, err);
}

/* The old communicator is shrunk if all members still have it and it is the same; otherwise all
 * make a new one. */
static int agree(bool *shrinks, const struct ct_backend_setup *setup, bool is_able,
                 struct ctrun_error *err)
{
    const char *own = is_able ? setup->old_key : "none";
    char text[CT_BOOTSTRAP_KEY_MAX];
    int rc = 0;

    *shrinks = is_able;
    if (setup->size == 1)
        return 0;
    if (setup->me > 0) {
        if ((rc = put_word(setup, "old", own, err)) == 0 &&
            (rc = get_word(setup, "way", 0, text, err)) == 0)
            *shrinks = strcmp(text, "shrink") == 0;
        return rc;
    }
    for (int i = 1; rc == 0 && i < setup->size; i++) {
        rc = get_word(setup, "old", i, text, err);
        *shrinks = *shrinks && rc == 0 && strcmp(text, own) == 0;
    }
    return rc < 0 ? rc : put_word(setup, "way", *shrinks ? "shrink" : "new", err);
}

/* Lists the members of the old group that are not in ours, by their numbers in the old group. */
static int list_excluded(int *excluded, const struct ct_backend_setup *setup)
{
    int count = 0;

    for (int i = 0, at = 0; i < setup->old_size; i++)
        if (at < setup->size && setup->ranks[at] == setup->old_ranks[i])
            at++;
        else
            excluded[count++] = i;
    return count;
}

/* Asks whether the new communicator is ready. 1: ready; 0: not yet. */
static int ask_shrunk(struct nccl *nccl, struct nccl *old, struct ctrun_error *err)
{
    ncclResult_t state = ncclSystemError;
    int rc;

    if ((rc = ct_loss_check(&nccl->losses, err)) < 0)
        return rc;
    pthread_mutex_lock(&old->lock);
    if (ct_nccl_api.ncclCommGetAsyncError(old->comm, &state) != ncclSuccess)
        state = ncclSystemError;
    pthread_mutex_unlock(&old->lock);
    if (state == ncclInProgress)
        return 0;
    return state == ncclSuccess && nccl->comm ? 1 : ct_nccl_fail(err, "shrink", state);
}

/* NCCL writes nccl->comm until ask_shrunk() returns 1. No lock is needed: no other thread knows
 * this group yet. */
static int shrink_comm(struct nccl *nccl, const struct ct_backend_setup *setup,
                       struct ctrun_error *err)
{
    ncclConfig_t config = ct_nccl_config(setup->options);
    struct nccl *old = setup->old;
    int *excluded = ct_zalloc_array((size_t)setup->old_size, sizeof *excluded);
    struct ct_nccl_wait nap = ct_nccl_wait_begin();
    ncclResult_t begun;
    int rc = 0;

    if (!excluded)
        return ct_fail(err, -ENOMEM, "nccl: out of memory");
    pthread_mutex_lock(&old->lock);
    begun = ct_nccl_api.ncclCommShrink(old->comm, excluded,
                                       list_excluded(excluded, setup), &nccl->comm,
                                       &config, NCCL_SHRINK_ABORT);
    pthread_mutex_unlock(&old->lock);
    if (begun != ncclSuccess && begun != ncclInProgress)
        rc = ct_nccl_fail(err, "shrink", begun);
    while (rc == 0 && (rc = ask_shrunk(nccl, old, err)) == 0) {
        if (ct_now_ms() >= setup->deadline_ms)
            rc = ct_fail(err, CTRUN_E_TIMEOUT,
                         "nccl: shrink: NCCL did not finish in time; a rank may be "
                         "missing or stuck");
        ct_nccl_nap(nccl, &nap);
    }
    free(excluded);
    ct_nccl_open_board(nccl, setup);
    return rc < 0 ? rc : ct_nccl_settle(nccl, "shrink", setup->deadline_ms, err);
}

/* What calls of the old group still do, also those that failed, comes before what the new group does with the same
 * memory. */
static int come_behind(struct nccl *nccl, const struct nccl *old,
                       struct ctrun_error *err)
{
    cudaError_t code = cudaSuccess;

    if (old->device == nccl->device &&
        ((code = ct_nccl_api.cudaEventRecord(nccl->joined, old->stream)) !=
             cudaSuccess ||
         (code = ct_nccl_api.cudaStreamWaitEvent(nccl->stream, nccl->joined, 0)) !=
             cudaSuccess))
        return ct_nccl_cuda_fail(err, "open", code);
    return 0;
}

int ct_nccl_init_comm(struct nccl *nccl, const struct ct_backend_setup *setup,
                      struct ctrun_error *err)
{
    bool shrinks = false;
    int rc = setup->old ? come_behind(nccl, setup->old, err) : 0;

    if (rc < 0 || (setup->old && ct_nccl_api.ncclCommShrink &&
                   (rc = agree(&shrinks, setup, may_shrink(nccl, setup), err)) < 0))
        return rc;
    rc = shrinks ? shrink_comm(nccl, setup, err) : 0;
    if (setup->old)
        ct_nccl_end_stopped(setup->old);
    return shrinks ? rc : ct_nccl_make_comm(nccl, setup, err);
}
