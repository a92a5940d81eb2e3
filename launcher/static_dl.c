/* SPDX-License-Identifier: Apache-2.0 */
/* dlopen() of a program without shared libraries (CTRUN_STATIC): nothing is ever found. What it
 * would load brings a libc of its own along, and only the one that this program was built with fits. */
#include <dlfcn.h>
#include <nss.h>
#include <stddef.h>

/* glibc would load a module for what /etc/nsswitch.conf names besides files and DNS. */
static void __attribute__((constructor)) look_up_names_without_modules(void)
{
    (void)__nss_configure_lookup("passwd", "files");
    (void)__nss_configure_lookup("group", "files");
    (void)__nss_configure_lookup("hosts", "files dns");
}

void *dlopen(const char *file, int mode)
{
    (void)file;
    (void)mode;
    return NULL;
}

void *dlsym(void *handle, const char *name)
{
    (void)handle;
    (void)name;
    return NULL;
}

int dlclose(void *handle)
{
    (void)handle;
    return 0;
}

char *dlerror(void)
{
    static char text[] = "this program has no shared libraries";

    return text;
}
