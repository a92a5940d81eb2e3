/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/control/ctl_mark_file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"

enum {
    BOOT_ID_BYTES = 36,
    TEXT_BYTES = BOOT_ID_BYTES + 24,
    KEPT_MS = 3600000, /* longer than any lease */
    LATER_MS = 60000   /* between a look at the clock and one at the mark */
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

static bool get_boot_id(char id[BOOT_ID_BYTES + 1])
{
    return read_all(AT_FDCWD, "/proc/sys/kernel/random/boot_id", id,
                    BOOT_ID_BYTES + 1) == BOOT_ID_BYTES;
}

/* Several processes may write the same mark at once, and with another time: the file gets its name
 * when its text is in it, and is not emptied before. */
void ctl_mark_file_write(int dir, const char *name, uint64_t from_ms)
{
    char hidden[NAME_MAX + 1], id[BOOT_ID_BYTES + 1], text[TEXT_BYTES];
    int fd, length;

    if (!get_boot_id(id))
        return;
    (void)ct_format(hidden, sizeof hidden, ".%s", name);
    length = ct_format(text, sizeof text, "%s %020" PRIu64 "\n", id, from_ms);
    fd = openat(dir, hidden, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (write(fd, text, strlen(text)) != (ssize_t)length ||
        renameat(dir, hidden, dir, name) < 0)
        (void)unlinkat(dir, hidden, 0);
    close(fd);
}

/* Times of another boot cannot be compared. Of this boot now_ms may be a little earlier than the
 * mark: the caller looked at the clock, and then another process wrote it. */
uint64_t ctl_mark_file_read(int dir, const char *name, uint64_t now_ms)
{
    char id[BOOT_ID_BYTES + 1], text[TEXT_BYTES];
    uint64_t from_ms = 0;

    if (!get_boot_id(id))
        return 0;
    (void)read_all(dir, name, text, sizeof text);
    if (strncmp(text, id, BOOT_ID_BYTES) == 0 &&
        sscanf(text + BOOT_ID_BYTES, "%" SCNu64, &from_ms) == 1 &&
        (from_ms > now_ms ? from_ms - now_ms < LATER_MS : now_ms - from_ms < KEPT_MS))
        return from_ms < now_ms ? from_ms : now_ms;
    (void)unlinkat(dir, name, 0);
    return 0;
}
