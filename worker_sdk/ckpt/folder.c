/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ckpt/folder.h"

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"

static const char step_prefix[] = "step-";
static const char shard_prefix[] = "shard-";

enum {
    STEP_DIGITS = 16 /* of the largest step, 2^53, too */
};

int ct_folder_path(char *path, const char *directory, uint64_t step, const char *file)
{
    return ct_format(path, PATH_MAX, "%s/%s%0*llu%s%s", directory, step_prefix,
                     STEP_DIGITS, (unsigned long long)step, *file ? "/" : "", file) < 0
               ? -ENAMETOOLONG
               : 0;
}

/* Looks for the manifest's name only: the one who opens the checkpoint checks its contents. A
 * manifest gets its name by a rename when it is complete. */
static bool is_complete(const char *directory, uint64_t step)
{
    char path[PATH_MAX];

    return ct_folder_path(path, directory, step, CT_MANIFEST_FILE) == 0 &&
           access(path, F_OK) == 0;
}

static int compare_newest_first(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x < y) - (x > y);
}

/* Exactly as ct_folder_path() writes it: another folder with the same number, for example a copy
 * called step-7, would count as a second checkpoint of that step. */
static bool read_step(const char *name, uint64_t *step)
{
    return ct_starts_with(name, step_prefix) &&
           strlen(name) == sizeof step_prefix - 1 + STEP_DIGITS &&
           ct_parse_u64(name + sizeof step_prefix - 1, 0, UINT64_MAX, step) == 0;
}

/* All steps there are, complete or not, the newest first. *out is allocated: free() it. */
static int list_steps(const char *directory, uint64_t **out, size_t *count)
{
    DIR *dir = opendir(directory);
    struct dirent *entry;
    size_t room = 0;
    int rc = 0;

    *out = NULL;
    *count = 0;
    if (!dir)
        return -errno;
    while (rc == 0 && (entry = readdir(dir))) {
        uint64_t step;

        if (!read_step(entry->d_name, &step))
            continue;
        if (*count == room) {
            void *more = ct_realloc_array(*out, room = 2 * room + 16, sizeof **out);
            if (!more)
                rc = -ENOMEM;
            else
                *out = more;
        }
        if (rc == 0)
            (*out)[(*count)++] = step;
    }
    closedir(dir);
    if (rc < 0) {
        free(*out);
        *out = NULL;
        *count = 0;
    } else if (*count) {
        qsort(*out, *count, sizeof **out, compare_newest_first);
    }
    return rc;
}

int ct_folder_newest(const char *directory, uint64_t *step, struct ctrun_error *err)
{
    uint64_t *steps;
    size_t count, i = 0;
    int rc = list_steps(directory, &steps, &count);

    if (rc < 0)
        return ct_fail(err, rc, "%s", strerror(-rc));
    while (i < count && !is_complete(directory, steps[i]))
        i++;
    if (i < count)
        *step = steps[i];
    else
        rc = ct_fail(err, -ENOENT, "no complete checkpoint in it");
    free(steps);
    return rc;
}

static bool has_file(const struct ct_manifest *manifest, const char *file)
{
    for (size_t i = 0; i < manifest->shard_count; i++)
        if (strcmp(manifest->shards[i].file, file) == 0)
            return true;
    return strcmp(file, CT_MANIFEST_FILE) == 0;
}

/* Removes the files of a step that a save made; keep, which may be NULL, lists the files that
 * stay. Files of a save that was given up have the tag of that save in their names, so `keep` does
 * not list them. */
static void sweep(const char *directory, uint64_t step, const struct ct_manifest *keep)
{
    char path[PATH_MAX];
    struct dirent *entry;
    DIR *dir;

    if (ct_folder_path(path, directory, step, "") < 0 || !(dir = opendir(path)))
        return;
    while ((entry = readdir(dir)))
        if ((ct_starts_with(entry->d_name, shard_prefix) ||
             ct_starts_with(entry->d_name, CT_MANIFEST_FILE)) &&
            !(keep && has_file(keep, entry->d_name)))
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

/* The manifest first: half a checkpoint never looks complete. */
static void remove_step(const char *directory, uint64_t step)
{
    char path[PATH_MAX];

    if (ct_folder_path(path, directory, step, CT_MANIFEST_FILE) < 0 ||
        (unlink(path) < 0 && errno != ENOENT))
        return;
    sweep(directory, step, NULL);
    if (ct_folder_path(path, directory, step, "") == 0)
        (void)rmdir(path); /* fails and stays when it has other files */
}

void ct_folder_prune(const char *directory, const struct ct_manifest *manifest,
                     uint64_t keep)
{
    uint64_t *steps, complete = 0;
    size_t count;

    if (list_steps(directory, &steps, &count) < 0)
        return;
    for (size_t i = 0; i < count; i++) {
        if (steps[i] == manifest->step)
            sweep(directory, steps[i], manifest);
        /* An incomplete folder cannot be a running save: rank 0 of the only group that writes here
         * is in this call. */
        if (!is_complete(directory, steps[i]) || (keep && complete == keep))
            remove_step(directory, steps[i]);
        else
            complete++;
    }
    free(steps);
}
