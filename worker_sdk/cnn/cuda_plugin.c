/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the CUDA back end, a module of its own: so the program starts without cuBLAS and cuDNN (a
 * gigabyte of libraries) and runs on machines without these libraries or a driver. */
#include <dlfcn.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/cnn/backends.h"

static const char *const DRIVER = "libcuda.so.1";
static const char *const MODULE = "libctrun-mnist-cuda.so"; /* found by our RUNPATH */

typedef const struct cnn_backend *backend_fn(void);

static const struct cnn_backend *module_backend;

/* NULL: why says what is missing. Loads once; the module stays. */
static const struct cnn_backend *load_module(char *why, size_t size)
{
    backend_fn *get = NULL;
    void *driver, *module, *symbol;

    if (module_backend)
        return module_backend;
    if (!(driver = dlopen(DRIVER, RTLD_LAZY | RTLD_LOCAL))) {
        (void)ct_format(why, size, "no NVIDIA driver: %s", dlerror());
        return NULL;
    }
    dlclose(driver);
    if (!(module = dlopen(MODULE, RTLD_NOW | RTLD_LOCAL))) {
        (void)ct_format(why, size, "%s: %s", MODULE, dlerror());
        return NULL;
    }
    symbol = dlsym(module, "ctrun_mnist_cuda_backend");
    memcpy(&get, &symbol, sizeof get);
    if (!get) {
        (void)ct_format(why, size, "%s is of another version of ctrun", MODULE);
        return NULL;
    }
    return module_backend = get();
}

static bool cuda_is_usable(char *why, size_t size)
{
    const struct cnn_backend *backend = load_module(why, size);

    return backend && backend->is_usable(why, size);
}

/* The returned engine has the module's own table. */
static int cuda_open(struct cnn_engine **out, const struct cnn_engine_options *options,
                     struct ctrun_error *err)
{
    char why[200];
    const struct cnn_backend *backend = load_module(why, sizeof why);

    if (!backend)
        return ct_fail(err, CTRUN_E_UNSUPPORTED, "--backend cuda: %s", why);
    return backend->open(out, options, err);
}

const struct cnn_backend cnn_backend_cuda = {
    .name = "cuda",
    .is_usable = cuda_is_usable,
    .open = cuda_open,
};
