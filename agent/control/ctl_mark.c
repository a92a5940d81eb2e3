/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/control/ctl_mark.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "agent/control/ctl_mark_file.h"

void ctl_mark_leave(const char *run_id, uint64_t from_ms)
{
    char path[PATH_MAX], name[CTL_DIR_NAME_MAX];
    const int dir = ctl_dir_choose(path, PATH_MAX, false, NULL);

    if (dir < 0)
        return;
    ctl_dir_own_name(name, run_id, CTL_MARK_SUFFIX);
    ctl_mark_file_write(dir, name, from_ms);
    close(dir);
}

struct search {
    const char *run_id;
    uint64_t now_ms, from_ms;
};

static void look(void *context, int dir, const char *name)
{
    struct search *search = context;
    const uint64_t from_ms = ctl_mark_file_read(dir, name, search->now_ms);

    if (ctl_dir_is_of_run(name, search->run_id, CTL_MARK_SUFFIX) &&
        from_ms > search->from_ms)
        search->from_ms = from_ms;
}

/* Root may open a folder of another user, who could let it wait. */
static int open_own(const char *path)
{
    const int dir = ctl_dir_open(path, false, NULL);
    struct stat info;

    if (dir < 0 || (fstat(dir, &info) == 0 && info.st_uid == getuid()))
        return dir;
    close(dir);
    return -EPERM;
}

uint64_t ctl_mark_find(const char *run_id, uint64_t now_ms)
{
    char paths[CTL_DIRS_MAX][PATH_MAX];
    const int count = ctl_dir_list(paths, getuid());
    struct search search = {.run_id = run_id, .now_ms = now_ms};

    for (int i = 0; i < count; i++) {
        const int dir = open_own(paths[i]);

        if (dir < 0)
            continue;
        ctl_dir_sweep(dir, CTL_SOCKET_SUFFIX, now_ms);
        ctl_dir_walk(dir, CTL_MARK_SUFFIX, look, &search);
        close(dir);
    }
    return search.from_ms;
}
