/* SPDX-License-Identifier: Apache-2.0 */
/* All three programs in one file (CTRUN_STATIC): three files would each contain libc and the shared
 * code. ctrunctl and ctrund are stubs that start this file under their own name (stub.c). */
#include <string.h>
#include <sys/prctl.h>

#include "launcher/ctl/ctl.h"
#include "launcher/main.h"
#include "rendezvous/main.h"

static const struct {
    const char *name;
    int (*main_fn)(int argc, char **argv);
} others[] = {{"ctrunctl", ctl_main}, {"ctrund", main_ctrund}};

int main(int argc, char **argv)
{
    const char *path = argc > 0 ? argv[0] : "";
    const char *slash = strrchr(path, '/');

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(slash ? slash + 1 : path, others[i].name) == 0) {
            (void)prctl(PR_SET_NAME, others[i].name); /* what ps and pgrep read */
            return others[i].main_fn(argc, argv);
        }
    return main_ctrun(argc, argv);
}
