/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/signal_name.h"

#include <errno.h>
#include <signal.h>
#include <strings.h>

#include "worker_sdk/base/str.h"

static const char *const names[] = {
#define NAME(name) [SIG##name] = #name
    NAME(HUP),    NAME(INT),  NAME(QUIT),  NAME(ILL),  NAME(TRAP), NAME(ABRT),
    NAME(BUS),    NAME(FPE),  NAME(KILL),  NAME(USR1), NAME(SEGV), NAME(USR2),
    NAME(PIPE),   NAME(ALRM), NAME(TERM),  NAME(CHLD), NAME(CONT), NAME(STOP),
    NAME(TSTP),   NAME(TTIN), NAME(TTOU),  NAME(URG),  NAME(XCPU), NAME(XFSZ),
    NAME(VTALRM), NAME(PROF), NAME(WINCH), NAME(PWR),  NAME(SYS),  [SIGPOLL] = "POLL",
#ifdef SIGSTKFLT /* not on every processor */
    NAME(STKFLT),
#endif
#undef NAME
};

const char *ct_signal_name(int signal)
{
    const int count = (int)(sizeof names / sizeof *names);

    return signal > 0 && signal < count ? names[signal] : NULL;
}

char *ct_signal_format(char dst[CT_SIGNAL_NAME_MAX], int signal)
{
    const char *name = ct_signal_name(signal);

    if (name)
        (void)ct_format(dst, CT_SIGNAL_NAME_MAX, "SIG%.12s", name);
    else
        (void)ct_format(dst, CT_SIGNAL_NAME_MAX, "signal %d", signal);
    return dst;
}

int ct_signal_parse(const char *text)
{
    const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
    uint64_t number;

    if (ct_parse_u64(text, 1, NSIG - 1, &number) == 0)
        return (int)number;
    for (int i = 1; i < NSIG; i++)
        if (ct_signal_name(i) && strcasecmp(ct_signal_name(i), name) == 0)
            return i;
    return -EINVAL;
}
