/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/comm/nccl/nccl_private.h"

enum {
    /* bytes; smaller blocks are CUDA's memory, because NCCL allocates 2 MiB at least */
    NCCL_MEMORY_MIN = 64 << 10
};

/* Registers the block, so that NCCL sends from it and receives into it without a copy. All ranks
 * register equal blocks, because they allocate equal blocks. */
static int register_block(struct nccl *nccl, struct block *block, size_t bytes,
                          uint64_t deadline_ms, struct ctrun_error *err)
{
    ncclResult_t begun = ncclSuccess;
    int rc;

    pthread_mutex_lock(&nccl->lock);
    if ((rc = ct_nccl_ask_comm(nccl, "register", err)) >= 0)
        begun = ct_nccl_api.ncclCommRegister(nccl->comm, block->data, bytes,
                                             &block->handle);
    pthread_mutex_unlock(&nccl->lock);
    if (rc < 0)
        return rc;
    if (begun == ncclInProgress)
        return ct_nccl_settle(nccl, "register", deadline_ms, err);
    return begun == ncclSuccess ? 0 : ct_nccl_fail(err, "register", begun);
}

/* Frees a block that is in no list. One that is registered with a stopped communicator comes back into the list until
 * that communicator is aborted (ct_nccl_end_stopped()). An aborted communicator has no registered memory. */
static void give_back(struct nccl *nccl, struct block *block)
{
    pthread_mutex_lock(&nccl->lock); /* another thread may stop the communicator */
    block->is_given_back = block->handle && nccl->comm && nccl->is_stopped;
    if (block->handle && nccl->comm && !nccl->is_stopped)
        (void)ct_nccl_api.ncclCommDeregister(nccl->comm, block->handle);
    pthread_mutex_unlock(&nccl->lock);
    if (block->is_given_back) {
        block->next = nccl->blocks;
        nccl->blocks = block;
        return;
    }
    if (block->data && block->is_nccls)
        (void)ct_nccl_api.ncclMemFree(block->data);
    else if (block->data)
        (void)ct_nccl_api.cudaFree(block->data);
    free(block);
}

/* Waits for the zeroes, because the caller may use the memory on any stream. On the group's stream: cudaMemset() would
 * put them on the default stream, and return before they are there. After a failure they may still come. */
static int clear(struct nccl *nccl, void *data, size_t bytes, uint64_t deadline_ms,
                 struct ctrun_error *err)
{
    cudaError_t code = ct_nccl_api.cudaMemsetAsync(data, 0, bytes, nccl->stream);
    struct ct_nccl_wait nap = ct_nccl_wait_begin();
    struct ctrun_error why;
    int rc;

    if (code == cudaSuccess)
        code = ct_nccl_api.cudaEventRecord(nccl->joined, nccl->stream);
    while (code == cudaSuccess &&
           (code = ct_nccl_api.cudaEventQuery(nccl->joined)) == cudaErrorNotReady) {
        pthread_mutex_lock(&nccl->lock);
        rc = ct_nccl_ask_comm(nccl, "group alloc", &why);
        pthread_mutex_unlock(&nccl->lock);
        if (rc >= 0 && ct_now_ms() >= deadline_ms)
            rc = ct_fail(&why, CTRUN_E_TIMEOUT,
                         "nccl: group alloc: the calls before it are not done in time");
        if (rc < 0)
            return ct_nccl_fail_group(nccl, rc, &why, err);
        ct_nccl_nap(nccl, &nap);
        code = cudaSuccess;
    }
    return code == cudaSuccess ? 0 : ct_nccl_cuda_fail(err, "group alloc", code);
}

int ct_nccl_alloc(void *self, size_t bytes, uint64_t deadline_ms, void **out,
                  struct ctrun_error *err)
{
    struct nccl *nccl = self;
    ncclResult_t got = ncclSuccess;
    cudaError_t made = cudaSuccess;
    struct block *block;
    int rc;

    if ((rc = ct_verdict_get(&nccl->verdict, err)) < 0)
        return ct_wrap(err, CT_FAILED_BEFORE, ct_call_name(CT_CALL_ALLOC)), rc;
    if (!(block = ct_zalloc(sizeof *block)))
        return ct_fail(err, -ENOMEM, "group alloc: out of memory");
    (void)ct_nccl_api.cudaSetDevice(nccl->device);
    block->is_nccls = ct_nccl_api.ncclMemAlloc && ct_nccl_api.ncclMemFree &&
                      ct_nccl_api.ncclCommRegister && ct_nccl_api.ncclCommDeregister &&
                      bytes >= NCCL_MEMORY_MIN;
    if (block->is_nccls)
        got = ct_nccl_api.ncclMemAlloc(&block->data, bytes);
    else
        made = ct_nccl_api.cudaMalloc(&block->data, bytes);
    if (got != ncclSuccess)
        rc = ct_fail(err, -ENOMEM, "nccl: group alloc: %zu bytes: %s", bytes,
                     ct_nccl_api.ncclGetErrorString(got));
    else if (made != cudaSuccess)
        rc = ct_nccl_cuda_fail(err, "group alloc", made);
    if (rc < 0) {
        give_back(nccl, block);
        return rc;
    }
    block->next = nccl->blocks;
    nccl->blocks = block;
    rc = clear(nccl, block->data, bytes, deadline_ms, err);
    if (rc == 0 && block->is_nccls)
        rc = register_block(nccl, block, bytes, deadline_ms, err);
    *out = rc == 0 ? block->data : NULL; /* else it is freed when the group is closed */
    return rc;
}

/* Waits first until no call and no kernel of the caller uses the block. */
int ct_nccl_free(void *self, void *at)
{
    struct nccl *nccl = self;

    for (struct block **link = &nccl->blocks; *link; link = &(*link)->next) {
        struct block *block = *link;

        if (block->data != at || block->is_given_back)
            continue;
        (void)ct_nccl_api.cudaSetDevice(nccl->device);
        ct_nccl_finish_running(nccl);
        /* A failure belongs to another call, which reports it. */
        (void)ct_nccl_api.cudaDeviceSynchronize();
        *link = block->next;
        give_back(nccl, block);
        return 0;
    }
    return -ENOENT;
}

void ct_nccl_describe_device(void *self, struct ct_device_facts *out)
{
    const struct nccl *nccl = self;
    size_t unused, memory = 0;
    int processors = 0;

    *out = (struct ct_device_facts){.device = nccl->device};
    if (ct_nccl_api.cudaSetDevice(nccl->device) == cudaSuccess &&
        ct_nccl_api.cudaMemGetInfo(&unused, &memory) == cudaSuccess)
        out->sizes[CT_DEVICE_MEMORY] = memory;
    if (ct_nccl_api.cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount,
                                           nccl->device) == cudaSuccess)
        out->sizes[CT_DEVICE_PROCESSORS] = (uint64_t)processors;
}

/* Managed memory is on every device. What CUDA does not tell is taken for right. */
int ct_nccl_find_device(void *self, const void *data)
{
    struct cudaPointerAttributes found = {.type = cudaMemoryTypeUnregistered};
    const struct nccl *nccl = self;

    if (ct_nccl_api.cudaPointerGetAttributes(&found, data) != cudaSuccess ||
        found.type == cudaMemoryTypeManaged)
        return nccl->device;
    return found.type == cudaMemoryTypeDevice ? found.device : -1;
}

void ct_nccl_end_stopped(struct nccl *nccl)
{
    pthread_mutex_lock(&nccl->lock);
    if (nccl->comm && nccl->is_stopped) {
        (void)ct_nccl_api.ncclCommAbort(nccl->comm);
        nccl->comm = NULL;
    }
    pthread_mutex_unlock(&nccl->lock);
    for (struct block **link = &nccl->blocks; *link;) {
        struct block *block = *link;

        if (block->is_given_back) {
            *link = block->next;
            give_back(nccl, block);
        } else {
            link = &block->next;
        }
    }
}
