/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/stage/stage_slot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "launcher/stage/stage_tree.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/str.h"

#define PARTS_SUFFIX  ".parts"
#define UNIQUE_SUFFIX "XXXXXX" /* of mkdtemp() */

static int fail(const struct stage_slot *slot, const char *what,
                struct ctrun_error *err)
{
    return ct_fail(err, CTRUN_E_STAGE, "%.600s/%s: %s", slot->folder, what,
                   strerror(errno));
}

static bool is_unique_name(const char *found, const char *name)
{
    const size_t length = strlen(name);

    return ct_starts_with(found, name) && found[length] == '-' &&
           strlen(found + length + 1) == strlen(UNIQUE_SUFFIX);
}

/* Another user has the name: opens a folder of ours with a suffix, else makes a new one. Another
 * user may make such names, too, so each folder gets the same checks as the first. -1: none. */
static int open_unique(struct stage_slot *slot, const char *base, const char *name)
{
    DIR *list = opendir(base);
    int fd = -1;

    for (struct dirent *it; list && fd < 0 && (it = readdir(list));)
        if (is_unique_name(it->d_name, name) &&
            ct_format(slot->folder, sizeof slot->folder, "%s/%s", base, it->d_name) >=
                0)
            fd = ctl_dir_open(slot->folder, true, NULL);
    if (list)
        closedir(list);
    if (fd < 0 &&
        ct_format(slot->folder, sizeof slot->folder, "%s/%s-" UNIQUE_SUFFIX, base,
                  name) >= 0 &&
        mkdtemp(slot->folder))
        fd = ctl_dir_open(slot->folder, true, NULL);
    return fd;
}

int stage_slot_open(struct stage_slot *slot, const char *base, struct ctrun_error *err)
{
    char name[STAGE_TEXT_NAME_MAX];

    *slot = (struct stage_slot){.base = -1, .top = -1, .parts = -1};
    stage_text_folder(name, getuid());
    if (*base != '/' ||
        ct_format(slot->folder, sizeof slot->folder, "%s/%s", base, name) < 0)
        return ct_fail(err, CTRUN_E_STAGE,
                       *base == '/' ? "%.600s: the path is too long; --stage-dir=DIR "
                                      "chooses another folder"
                                    : "%.600s: is not an absolute path; set TMPDIR or "
                                      "--stage-dir to a folder on a local disk",
                       base);
    slot->base = ctl_dir_open(slot->folder, true, err);
    if (slot->base < 0 && (slot->base = open_unique(slot, base, name)) < 0) {
        if (err) /* keeps the text, changes the code */
            err->code = CTRUN_E_STAGE;
        return CTRUN_E_STAGE;
    }
    return 0;
}

/* ---- Slots ------------------------------------------------------------------------------- */

static void leave(struct stage_slot *slot)
{
    if (slot->top >= 0)
        close(slot->top); /* releases the lock, too */
    ct_close(&slot->parts);
    slot->top = slot->parts = -1;
}

static int open_folder(struct stage_slot *slot, const char *name)
{
    if (mkdirat(slot->base, name, 0700) < 0 && errno != EEXIST)
        return -1;
    return openat(slot->base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* False when the slot was removed between open and lock: then the name means another folder or
 * none. */
static bool is_there(const struct stage_slot *slot)
{
    struct stat mine;
    struct stat named;

    return fstat(slot->top, &mine) == 0 &&
           fstatat(slot->base, slot->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

/* 1: locked, to write (parts >= 0) or shared; 0: another run writes to it or has removed it. */
static int try_slot(struct stage_slot *slot, struct ctrun_error *err)
{
    char parts[80];

    if ((slot->top = open_folder(slot, slot->name)) < 0)
        return fail(slot, slot->name, err);
    if (flock(slot->top, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return fail(slot, slot->name, err);
        return flock(slot->top, LOCK_SH | LOCK_NB) == 0 && is_there(slot);
    }
    if (!is_there(slot))
        return 0;
    (void)ct_format(parts, sizeof parts, "%s" PARTS_SUFFIX, slot->name);
    if ((slot->parts = open_folder(slot, parts)) < 0)
        return fail(slot, parts, err);
    return 1;
}

int stage_slot_next(struct stage_slot *slot, const uint8_t key[16],
                    struct ctrun_error *err)
{
    while (slot->number < STAGE_SLOTS_MAX) {
        int rc;

        leave(slot);
        stage_text_key(slot->name, key, slot->number++);
        if (ct_format(slot->path, sizeof slot->path, "%s/%s", slot->folder,
                      slot->name) < 0)
            return ct_fail(err, CTRUN_E_STAGE, "%.600s: the path is too long",
                           slot->folder);
        rc = try_slot(slot, err);
        if (rc != 0)
            return rc < 0 ? rc : 0;
    }
    return ct_fail(err, CTRUN_E_STAGE,
                   "%.600s: other runs or hosts use all %d copies of these paths, and "
                   "no copy has the same content; --stage-dir=DIR chooses a folder on "
                   "another disk",
                   slot->folder, STAGE_SLOTS_MAX);
}

int stage_slot_settle(struct stage_slot *slot, struct ctrun_error *err)
{
    char parts[80];

    if (slot->parts < 0)
        return 0; /* has the shared lock already */
    (void)ct_format(parts, sizeof parts, "%s" PARTS_SUFFIX, slot->name);
    close(slot->parts);
    slot->parts = -1;
    (void)stage_tree_remove(slot->base, parts); /* a failure only costs disk space */
    if (flock(slot->top, LOCK_SH | LOCK_NB) < 0)
        return fail(slot, slot->name, err);
    return 0;
}

void stage_slot_remove(struct stage_slot *slot)
{
    char parts[80];

    if (slot->top < 0 || flock(slot->top, LOCK_EX | LOCK_NB) < 0)
        return;
    (void)ct_format(parts, sizeof parts, "%s" PARTS_SUFFIX, slot->name);
    (void)stage_tree_remove(slot->base, parts);
    (void)stage_tree_remove(slot->base, slot->name);
}

void stage_slot_close(struct stage_slot *slot)
{
    leave(slot);
    ct_close(&slot->base);
}

/* ---- The disk ---------------------------------------------------------------------------- */

int stage_slot_check_room(const struct stage_slot *slot, uint64_t bytes,
                          struct ctrun_error *err)
{
    struct statvfs info;
    char needed[STAGE_TEXT_MAX];
    char there[STAGE_TEXT_MAX];
    uint64_t room;

    if (fstatvfs(slot->base, &info) < 0)
        return fail(slot, "", err);
    room = (uint64_t)info.f_bavail * info.f_frsize;
    if (bytes <= room)
        return 0;
    stage_text_bytes(needed, bytes);
    stage_text_bytes(there, room);
    return ct_fail(
        err, CTRUN_E_STAGE,
        "%.600s: %s must be copied, but only %s are free; --stage-dir=DIR chooses a "
        "folder on another disk",
        slot->folder, needed, there);
}

int stage_slot_check_exec(const struct stage_slot *slot, struct ctrun_error *err)
{
    struct statvfs info;

    if (fstatvfs(slot->base, &info) < 0 || !(info.f_flag & ST_NOEXEC))
        return 0;
    return ct_fail(err, CTRUN_E_STAGE,
                   "%.600s: is mounted noexec, so that no program can run there; "
                   "--stage-dir=DIR chooses a folder on another disk",
                   slot->folder);
}
