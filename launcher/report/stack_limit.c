/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/stack_limit.h"

#include <sys/resource.h>

enum {
    STACK_MIN_KIB =
        256, /* KiB: building a report needs about 100, reading cuDNN's version 70 */
};

int stack_limit_check(const char *program, struct ctrun_error *err)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_STACK, &limit) < 0 || limit.rlim_cur / 1024 >= STACK_MIN_KIB)
        return 0;
    return ct_fail(err, CTRUN_E_RESOURCES,
                   "this process may have a stack of %d KiB at most (ulimit -s); %s "
                   "needs %d KiB",
                   (int)(limit.rlim_cur / 1024), program, STACK_MIN_KIB);
}
