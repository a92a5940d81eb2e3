/* SPDX-License-Identifier: Apache-2.0 */
/* Back ends that are loaded at run time, so that a machine without their libraries does not need
 * them: libctrun-NAME.so beside this library, or where the dynamic linker searches. */
#include <dlfcn.h>
#include <limits.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/backend/backend.h"

/* The folder of the program or library that this code is in; empty when unknown. */
static void own_folder(char *dst, size_t size)
{
    static const char here;
    Dl_info info;
    char *slash;

    dst[0] = '\0';
    if (!dladdr(&here, &info) || !info.dli_fname ||
        ct_copy(dst, size, info.dli_fname) < 0) {
        dst[0] = '\0';
        return;
    }
    slash = strrchr(dst, '/');
    dst[slash ? slash - dst + 1 : 0] = '\0';
}

/* With CTRUN_PLUGIN_DIR no other folder is searched. The dynamic linker loads a library once, so
 * each group may call this, on any thread. */
int ct_plugin_load(const struct ct_backend_ops **out, const char *name,
                   struct ctrun_error *err)
{
    const char *folder_option = getenv("CTRUN_PLUGIN_DIR");
    const struct ct_backend_ops *ops;
    char folder[PATH_MAX];
    char path[PATH_MAX];
    ct_plugin_fn *plugin;
    void *library = NULL;
    void *symbol;
    int length = 0;

    own_folder(folder, sizeof folder);
    if (folder_option)
        length = ct_format(path, sizeof path, "%s/libctrun-%s.so", folder_option, name);
    else if (*folder)
        length = ct_format(path, sizeof path, "%slibctrun-%s.so", folder, name);
    if (length < 0 && folder_option)
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "back end '%s': the path in CTRUN_PLUGIN_DIR is too long", name);
    if (length > 0)
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library && !folder_option) {
        (void)ct_format(path, sizeof path, "libctrun-%s.so", name);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (!library)
        return ct_fail(err, CTRUN_E_UNSUPPORTED, "back end '%s': %s", name, dlerror());
    symbol = dlsym(library, CT_PLUGIN_SYMBOL);
    memcpy(&plugin, &symbol,
           sizeof plugin); /* ISO C has no cast from object to function */
    ops = plugin ? plugin() : NULL;
    if (!ops || ops->version != CT_BACKEND_VERSION) {
        dlclose(library);
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "back end '%s': %s is not a back end of this version of ctrun",
                       name, path);
    }
    /* the library stays loaded: a group may use it until the process ends */
    *out = ops;
    return 0;
}
