/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/control/ctl_mark.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "worker_sdk/base/str.h"

enum {
    BOOT_ID_BYTES = 36,
    TEXT_BYTES = BOOT_ID_BYTES + 24,
    KEPT_MS = 3600000, /* longer than any lease */
};

static ssize_t read_all(int dir, const char *path, char *text, size_t size)
{
    const int fd = openat(dir, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n;
}

/* Times of another boot cannot be compared. */
static bool get_boot_id(char id[BOOT_ID_BYTES + 1])
{
    return read_all(AT_FDCWD, "/proc/sys/kernel/random/boot_id", id,
                    BOOT_ID_BYTES + 1) == BOOT_ID_BYTES;
}

void ctl_mark_leave(const char *run_id, uint64_t from_ms)
{
    char path[PATH_MAX], name[CTL_DIR_NAME_MAX], id[BOOT_ID_BYTES + 1];
    char text[TEXT_BYTES];
    int dir, fd, length;

    if (!get_boot_id(id) || (dir = ctl_dir_choose(path, PATH_MAX, false, NULL)) < 0)
        return;
    ctl_dir_own_name(name, run_id, CTL_MARK_SUFFIX);
    length = ct_format(text, sizeof text, "%s %" PRIu64 "\n", id, from_ms);
    fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        if (write(fd, text, strlen(text)) != (ssize_t)length)
            (void)unlinkat(dir, name, 0);
        close(fd);
    }
    close(dir);
}

struct search {
    const char *run_id;
    char boot_id[BOOT_ID_BYTES + 1];
    uint64_t now_ms, from_ms;
};

static void look(void *context, int dir, const char *name)
{
    struct search *search = context;
    const bool is_of_run = ctl_dir_is_of_run(name, search->run_id, CTL_MARK_SUFFIX);
    char text[TEXT_BYTES];
    uint64_t from_ms = 0;
    bool is_ours;

    (void)read_all(dir, name, text, sizeof text);
    is_ours = strncmp(text, search->boot_id, BOOT_ID_BYTES) == 0 &&
              sscanf(text + BOOT_ID_BYTES, "%" SCNu64, &from_ms) == 1 &&
              from_ms <= search->now_ms && search->now_ms - from_ms < KEPT_MS;
    if (!is_ours)
        (void)unlinkat(dir, name, 0);
    if (is_of_run && is_ours && from_ms > search->from_ms)
        search->from_ms = from_ms;
}

uint64_t ctl_mark_find(const char *run_id, uint64_t now_ms)
{
    char paths[CTL_DIRS_MAX][PATH_MAX];
    const int count = ctl_dir_list(paths, getuid());
    struct search search = {.run_id = run_id, .now_ms = now_ms};

    if (!get_boot_id(search.boot_id))
        return ctl_dir_find_killed(run_id) ? now_ms : 0;
    for (int i = 0; i < count; i++) {
        const int dir = ctl_dir_open(paths[i], false, NULL);

        if (dir < 0)
            continue;
        ctl_dir_walk(dir, CTL_MARK_SUFFIX, look, &search);
        close(dir);
    }
    return ctl_dir_find_killed(run_id) ? now_ms : search.from_ms;
}
