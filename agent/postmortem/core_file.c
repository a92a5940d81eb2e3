/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/core_file.h"

#include <limits.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/loop/blocking_call.h"
#include "agent/loop/limits.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

/* Expands one specifier; false for values that only the kernel knew (%t: when, %g: group, ...). */
static bool expand(char *dst, size_t size, char letter, const struct core_file *core)
{
    switch (letter) {
    case '%': return ct_copy(dst, size, "%") == 0;
    case 'p':
    case 'P':
    case 'i':
    case 'I': return ct_format(dst, size, "%d", (int)core->pid) >= 0;
    case 's': return ct_format(dst, size, "%d", core->signal) >= 0;
    case 'u': return ct_format(dst, size, "%u", (unsigned)getuid()) >= 0;
    case 'g': return ct_format(dst, size, "%u", (unsigned)getgid()) >= 0;
    case 'h': return ct_copy(dst, size, core->host) == 0;
    case 'e': /* 15 bytes of the name, as prctl(PR_SET_NAME) has them */
        return ct_format(dst, size, "%.15s", ct_base_name(core->program)) >= 0;
    default: return false;
    }
}

/* The path that the kernel made from the pattern; false when it cannot be known. */
static bool make_path(char *dst, size_t size, const struct core_file *core)
{
    const bool is_absolute = core->pattern[0] == '/';
    bool has_pid = false;

    if (ct_format(dst, size, "%s%s", is_absolute ? "" : core->directory,
                  is_absolute ? "" : "/") < 0)
        return false;
    for (const char *at = core->pattern; *at; at++) {
        const size_t used = strlen(dst);

        if (*at == '%' && at[1]) {
            has_pid |= at[1] == 'p';
            if (!expand(dst + used, size - used, *++at, core))
                return false;
        } else if (ct_append(dst, size, "%c", *at) < 0) {
            return false;
        }
    }
    return !core->has_pid || has_pid ||
           ct_append(dst, size, ".%d", (int)core->pid) >= 0;
}

static void explain_none(char *dst, size_t size, const struct core_file *core)
{
    if (core->soft == 0 && core->hard == 0)
        (void)ct_copy(dst, size, "none (ulimit -Hc 0: this system forbids core files)");
    else if (core->soft == 0)
        (void)ct_copy(dst, size, "none (ulimit -c 0; --core turns it on)");
    else
        (void)ct_format(dst, size,
                        "none, although the limit allows one (core_pattern: %.100s)",
                        core->pattern);
}

/* Our own folder may be on a file system that hangs, though that of the worker answered. */
static bool is_there(const char *path)
{
    struct blocking_file file = {.path = path};

    blocking_call_find_files(&file, 1, WORKER_LOOK_MS);
    return file.is_there;
}

void core_file_describe(char *dst, size_t size, const struct core_file *core)
{
    char path[PATH_MAX];

    if (!core->is_dumped) {
        explain_none(dst, size, core);
    } else if (core->pattern[0] == '|') {
        const char *name = core->pattern + 1 + strspn(core->pattern + 1, " ");
        const int length = (int)strcspn(name, " ");

        if (strstr(core->pattern, "systemd-coredump"))
            (void)ct_format(dst, size, "with systemd: coredumpctl info %d",
                            (int)core->pid);
        else
            (void)ct_format(dst, size, "handed to %.*s, process %d", length, name,
                            (int)core->pid);
    } else if (make_path(path, sizeof path, core) && is_there(path)) {
        (void)ct_format(dst, size, "%s", path);
    } else {
        (void)ct_format(
            dst, size, "written%s, named by core_pattern %.100s",
            core->pattern[0] == '/' ? "" : " to the program's last working directory",
            core->pattern);
    }
}

static uint64_t limit_value(rlim_t value)
{
    return value == RLIM_INFINITY ? UINT64_MAX : (uint64_t)value;
}

/* The pattern is read after the death, and may have been changed since: so the path is shown
 * only if a file exists there. */
void core_file_find(char *dst, size_t size, pid_t pid, int signal, bool is_dumped,
                    bool is_raised, const char *program)
{
    char pattern[256];
    char uses_pid[8];
    char host[256] = "";
    char directory[PATH_MAX] = "";
    struct rlimit limit = {0};
    struct core_file core = {
        .pattern = pattern,
        .is_dumped = is_dumped,
        .pid = pid,
        .signal = signal,
        .program = program,
        .host = host,
        .directory = directory,
    };

    (void)ct_small_file_line(pattern, sizeof pattern, "/proc/sys/kernel/core_pattern");
    (void)ct_small_file_line(uses_pid, sizeof uses_pid,
                             "/proc/sys/kernel/core_uses_pid");
    core.has_pid = uses_pid[0] == '1';
    (void)gethostname(host, sizeof host - 1);
    if (!getcwd(directory, sizeof directory))
        directory[0] = '\0';
    (void)getrlimit(RLIMIT_CORE, &limit);
    core.hard = limit_value(limit.rlim_max);
    /* our own limits: a worker inherits them; --core raises them for the worker only */
    core.soft = is_raised ? core.hard : limit_value(limit.rlim_cur);
    core_file_describe(dst, size, &core);
}
