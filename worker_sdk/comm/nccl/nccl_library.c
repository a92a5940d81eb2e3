/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>

#include "worker_sdk/base/str.h"
#include "worker_sdk/base/symbol.h"
#include "worker_sdk/comm/nccl/nccl_private.h"

enum {
    OLDEST_NCCL = 21800 /* first version whose non-blocking communicators we can use */
};

struct ct_nccl_functions ct_nccl_api;

static int open_library(void **out, const char *const *names, struct ctrun_error *err)
{
    for (int i = 0; names[i]; i++)
        if ((*out = dlopen(names[i], RTLD_NOW | RTLD_LOCAL)))
            return 0;
    return ct_fail(err, CTRUN_E_UNSUPPORTED, "nccl: %s", dlerror());
}

static int find_all(struct ct_nccl_functions *out, struct ctrun_error *err)
{
    const char *chosen = getenv("CTRUN_NCCL_LIBRARY");
    const char *const nccl_names[] = {chosen ? chosen : "libnccl.so.2", NULL};
    static const char *const cuda_names[] = {"libcudart.so.13", "libcudart.so.12",
                                             "libcudart.so", NULL};
    void *nccl, *cuda;
    int version = 0;
    int rc;

    if ((rc = open_library(&nccl, nccl_names, err)) < 0 ||
        (rc = open_library(&cuda, cuda_names, err)) < 0)
        return rc;
#define FIND(name, library)                                                            \
    if (!ct_find_symbol(library, #name, &out->name)) /* dlerror() names both */        \
        return ct_fail(err, CTRUN_E_UNSUPPORTED, "nccl: %s", dlerror());
#define FIND_NCCL(name) FIND(name, nccl)
#define FIND_CUDA(name) FIND(name, cuda)
    CT_NCCL_FUNCTIONS(FIND_NCCL)
    CT_CUDA_FUNCTIONS(FIND_CUDA)
    if (out->ncclGetVersion(&version) != ncclSuccess || version < OLDEST_NCCL)
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "nccl: the library has version %d; ctrun needs %d or newer",
                       version, OLDEST_NCCL);
#define FIND_NEWER(name, since)                                                        \
    if (version >= (since))                                                            \
        (void)ct_find_symbol(nccl, #name, &out->name);
    CT_NEWER_FUNCTIONS(FIND_NEWER)
    return 0; /* the libraries stay open until the process ends */
}

/* Written once, because threads of other groups read it. (Tests change the library while there is
 * no group.) */
int ct_nccl_load(struct ctrun_error *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct ct_nccl_functions found = {0};
    int rc = find_all(&found, err);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&lock);
    if (memcmp(&ct_nccl_api, &found, sizeof found) != 0)
        ct_nccl_api = found;
    pthread_mutex_unlock(&lock);
    return 0;
}

int ct_nccl_cuda_fail(struct ctrun_error *err, const char *what, cudaError_t code)
{
    return ct_fail(err, code == cudaErrorMemoryAllocation ? -ENOMEM : -EIO,
                   "cuda: %s: %s", what, ct_nccl_api.cudaGetErrorString(code));
}

int ct_nccl_fail(struct ctrun_error *err, const char *what, ncclResult_t code)
{
    int rc = code == ncclRemoteError ? CTRUN_E_PEER_LOST
             : code == ncclInvalidArgument || code == ncclInvalidUsage ? -EINVAL
                                                                       : -EIO;

    return ct_fail(err, rc, "nccl: %s: %s", what, ct_nccl_api.ncclGetErrorString(code));
}
