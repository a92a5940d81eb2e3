/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/cnn/dnnl_api.h"

#include <dlfcn.h>

#include "worker_sdk/base/str.h"
#include "worker_sdk/base/symbol.h"

static const char *const SONAME = "libdnnl.so.2"; /* the 2.x ABI; 3.x is another API */

static struct cnn_dnnl_api api;
static bool is_loaded;

static void limit_spinning(void)
{
    if (!getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT"))
        setenv("GOMP_SPINCOUNT", "2000", 0);
}

const struct cnn_dnnl_api *cnn_dnnl_load(char *why, size_t size)
{
    void *library, *gomp;

    if (is_loaded)
        return &api;
    limit_spinning();
    if (!(library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL))) {
        (void)ct_format(why, size, "%s: %s", SONAME, dlerror());
        return NULL;
    }
#define CNN_DNNL_FIND(name)                                                            \
    if (!ct_find_symbol(library, "dnnl_" #name, &api.name)) {                          \
        (void)ct_format(why, size, "%s has no dnnl_" #name, SONAME);                   \
        return NULL;                                                                   \
    }
    CNN_DNNL_FUNCTIONS(CNN_DNNL_FIND)
#undef CNN_DNNL_FIND
    if ((gomp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD)))
        (void)ct_find_symbol(gomp, "omp_set_num_threads", &api.set_threads);
    is_loaded = true;
    return &api;
}
