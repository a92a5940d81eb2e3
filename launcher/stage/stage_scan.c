/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/stage/stage_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/stage/stage_map.h"
#include "launcher/stage/stage_text.h"
#include "launcher/stage/stage_tree.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/str.h"

enum {
    DEPTH_MAX = 128,
    STEP_MS = 20,
    READ_BYTES = 256 * 1024,
    NAMES_MAX = STAGE_ENTRIES_MAX,
};

/* A folder that is being walked. */
struct level {
    int fd;
    char **names; /* sorted */
    uint32_t count;
    uint32_t capacity;
    uint32_t next;
    size_t length; /* of the folder's path */
};

/* A walk over all sources, which runs on the loop for a few milliseconds at a time. This is its
 * whole state between two steps. */
struct stage_scan {
    struct stage_manifest *manifest;
    uint32_t source; /* the next source */
    int depth;
    struct level levels[DEPTH_MAX];
    char path[STAGE_PATH_MAX + STAGE_NAME_MAX + 2]; /* staged */
    /* The file whose checksums are being computed. */
    int file;
    uint32_t entry;
    uint64_t offset;
    uint64_t bytes;
    struct ct_digest digest;
    uint8_t *data;
};

uint64_t stage_scan_bytes(const struct stage_scan *scan)
{
    return scan->bytes;
}

/* ---- Sources ----------------------------------------------------------------------------- */

static int add_source(struct stage_manifest *manifest, const char *path,
                      const char *cwd, struct ctrun_error *err)
{
    char typed[PATH_MAX];
    char whole[PATH_MAX]; /* with "..": after a link it means another folder */
    char real[PATH_MAX];

    if (stage_map_normalise(typed, sizeof typed, cwd, path) < 0 ||
        ct_format(whole, sizeof whole, "%s/%s", *path == '/' ? "" : cwd, path) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "--stage=%.200s: the path is too long",
                       path);
    if (!realpath(whole, real))
        return ct_fail(err, CTRUN_E_STAGE, "--stage=%.900s: %s", path, strerror(errno));
    if (strcmp(typed, "/") == 0 || strcmp(real, "/") == 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--stage=%.200s: is the root folder; name what the run needs",
                       path);
    if (manifest->source_count >= STAGE_SOURCES_MAX)
        return ct_fail(err, CTRUN_E_USAGE, "--stage: more than %d paths",
                       STAGE_SOURCES_MAX);
    return stage_manifest_add_source(manifest, typed, real) < 0
               ? ct_fail(err, -ENOMEM, "--stage: out of memory")
               : 0;
}

static int compare_sources(const void *a, const void *b)
{
    return strcmp(((const struct stage_source *)a)->name,
                  ((const struct stage_source *)b)->name);
}

/* Makes the key from the paths of the sources and not from their content, so that the next run
 * with the same sources finds the copies of the last run. */
static void make_key(struct stage_manifest *manifest)
{
    uint8_t sum[CT_DIGEST_BYTES];
    struct ct_digest digest;

    ct_digest_init(&digest);
    for (uint32_t i = 0; i < manifest->source_count; i++) {
        const struct stage_source *source = &manifest->sources[i];

        ct_digest_add(&digest, source->name, strlen(source->name) + 1);
        ct_digest_add(&digest, source->real, strlen(source->real) + 1);
    }
    ct_digest_end(&digest, sum);
    memcpy(manifest->key, sum, sizeof manifest->key);
}

static int read_list(struct stage_manifest *manifest, const char *list, const char *cwd,
                     struct ctrun_error *err)
{
    const char *rest = list;
    size_t length;
    int rc = 0;

    for (const char *item; rc == 0 && (item = ct_next_field(&rest, ',', &length));) {
        char path[PATH_MAX];

        if (length == 0)
            return ct_fail(err, CTRUN_E_USAGE, "--stage=%.200s: an empty path", list);
        if (ct_format(path, sizeof path, "%.*s", (int)length, item) < 0)
            return ct_fail(err, CTRUN_E_USAGE, "--stage: a path is too long");
        rc = add_source(manifest, path, cwd, err);
    }
    if (rc < 0)
        return rc;
    qsort(manifest->sources, manifest->source_count, sizeof *manifest->sources,
          compare_sources);
    for (uint32_t i = 1; i < manifest->source_count; i++)
        if (strcmp(manifest->sources[i - 1].name, manifest->sources[i].name) == 0)
            return ct_fail(err, CTRUN_E_USAGE,
                           "--stage: %.400s and %.400s would both become '%.100s'",
                           manifest->sources[i - 1].typed, manifest->sources[i].typed,
                           manifest->sources[i].name);
    make_key(manifest);
    return 0;
}

/* ---- Files ------------------------------------------------------------------------------- */

static int64_t time_of(const struct stat *info)
{
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

static int fail(const struct stage_scan *scan, const char *why, struct ctrun_error *err)
{
    return ct_fail(err, CTRUN_E_STAGE, "--stage: %.800s: %s", scan->path, why);
}

static void end_file(struct stage_scan *scan)
{
    close(scan->file);
    scan->file = -1;
}

static int read_file(struct stage_scan *scan, struct ctrun_error *err)
{
    const struct stage_entry *entry = &scan->manifest->entries[scan->entry];
    const uint64_t in_chunk = scan->offset % STAGE_CHUNK_BYTES;
    const uint32_t chunk = entry->first_chunk +
                           (uint32_t)(scan->offset / STAGE_CHUNK_BYTES);
    uint64_t wanted = stage_chunk_size(entry, chunk) - in_chunk;
    ssize_t n;

    if (wanted > READ_BYTES)
        wanted = READ_BYTES;
    do
        n = read(scan->file, scan->data, (size_t)wanted);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return fail(scan, strerror(errno), err);
    if (n == 0)
        return fail(scan, "became shorter while it was read", err);
    if (in_chunk == 0)
        ct_digest_init(&scan->digest);
    ct_digest_add(&scan->digest, scan->data, (size_t)n);
    scan->offset += (uint64_t)n;
    scan->bytes += (uint64_t)n;
    if (scan->offset % STAGE_CHUNK_BYTES == 0 || scan->offset == entry->size)
        ct_digest_end(&scan->digest, scan->manifest->sums[chunk]);
    if (scan->offset == entry->size)
        end_file(scan);
    return 1;
}

static int explain_add(const struct stage_scan *scan, int rc, struct ctrun_error *err)
{
    if (rc == -E2BIG)
        return ct_fail(
            err, CTRUN_E_STAGE,
            "--stage: more than %d files and folders, or more than 16 TB; stage an "
            "archive of them, or fewer files",
            STAGE_ENTRIES_MAX);
    if (rc == -ENAMETOOLONG || rc == -EINVAL)
        return fail(scan, "the path is too long", err);
    return rc < 0 ? ct_fail(err, CTRUN_E_STAGE, "--stage: out of memory") : 1;
}

/* ---- Folders ----------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_name(void *context, int folder, const char *name)
{
    struct level *level = context;
    char copies[STAGE_TEXT_NAME_MAX];

    (void)folder;
    stage_text_folder(copies, getuid());
    /* leaves out our own copies, if they are in a source */
    if (strcmp(name, copies) == 0)
        return 0;
    if (level->count == NAMES_MAX)
        return -E2BIG;
    if (level->count == level->capacity) {
        const uint32_t more = level->capacity ? 2 * level->capacity : 64;
        char **larger = ct_realloc_array(level->names, more, sizeof *larger);

        if (!larger)
            return -ENOMEM;
        level->names = larger;
        level->capacity = more;
    }
    if (!(level->names[level->count] = ct_strdup(name)))
        return -ENOMEM;
    level->count++;
    return 0;
}

static void close_level(struct level *level)
{
    for (uint32_t i = 0; i < level->count; i++)
        free(level->names[i]);
    free(level->names);
    ct_close(&level->fd);
    *level = (struct level){.fd = -1};
}

static int list_names(struct level *level)
{
    const int rc = stage_tree_list(level->fd, add_name, level);

    if (level->count > 1)
        qsort(level->names, level->count, sizeof *level->names, compare_names);
    return rc;
}

/* Enters the folder scan->path; takes ownership of its descriptor `fd`. */
static int enter(struct stage_scan *scan, int fd, struct ctrun_error *err)
{
    struct level *level = &scan->levels[scan->depth];
    int rc;

    if (scan->depth >= DEPTH_MAX) {
        close(fd);
        return fail(scan, "more than 128 folders are inside one another", err);
    }
    *level = (struct level){.fd = fd, .length = strlen(scan->path)};
    scan->depth++;
    rc = list_names(level);
    if (rc == -E2BIG || rc == -ENOMEM)
        return explain_add(scan, rc, err);
    return rc < 0 ? fail(scan, strerror(-rc), err) : 1;
}

/* ---- Entries ----------------------------------------------------------------------------- */

static int add_link(struct stage_scan *scan, int dir, const char *name,
                    struct stage_entry *entry, struct ctrun_error *err)
{
    char target[PATH_MAX];
    const ssize_t n = readlinkat(dir, name, target, sizeof target - 1);

    if (n < 0)
        return fail(scan, strerror(errno), err);
    target[n] = '\0';
    entry->kind = STAGE_LINK;
    entry->mode = 0;
    entry->target = target;
    return explain_add(scan, stage_manifest_add(scan->manifest, entry), err);
}

/* Adds the file or folder scan->path, which is `name` in `dir`. */
static int add_opened(struct stage_scan *scan, int dir, const char *name,
                      struct stage_entry *entry, struct ctrun_error *err)
{
    const bool is_file = entry->kind == STAGE_FILE;
    struct stat info;
    int fd;
    int rc;

    /* Opened before fstat(), so that fstat() is of the file that is read. O_NONBLOCK: a FIFO may
     * have replaced the file. */
    fd = openat(dir, name,
                O_RDONLY | O_CLOEXEC | O_NOFOLLOW |
                    (is_file ? O_NONBLOCK : O_DIRECTORY));
    if (fd < 0 || fstat(fd, &info) < 0) {
        rc = fail(scan, strerror(errno), err);
        ct_close(&fd);
        return rc;
    }
    if (is_file && !S_ISREG(info.st_mode)) {
        close(fd);
        return fail(scan, "changed while it was read", err);
    }
    entry->mode = info.st_mode & 0777;
    entry->mtime_ns = time_of(&info);
    entry->size = is_file ? (uint64_t)info.st_size : 0;
    rc = explain_add(scan, stage_manifest_add(scan->manifest, entry), err);
    if (rc < 0 || (is_file && entry->size == 0)) {
        close(fd);
        return rc;
    }
    if (!is_file)
        return enter(scan, fd, err);
    scan->file = fd;
    scan->entry = scan->manifest->count - 1;
    scan->offset = 0;
    return 1;
}

static int add_entry(struct stage_scan *scan, int dir, const char *name,
                     struct ctrun_error *err)
{
    struct stage_entry entry = {.path = scan->path};
    struct stat info;

    if (fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(scan, strerror(errno), err);
    entry.mtime_ns = time_of(&info);
    if (S_ISLNK(info.st_mode))
        return add_link(scan, dir, name, &entry, err);
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return fail(scan, "is neither a file nor a folder nor a symbolic link", err);
    entry.kind = S_ISREG(info.st_mode) ? STAGE_FILE : STAGE_FOLDER;
    return add_opened(scan, dir, name, &entry, err);
}

static int next_entry(struct stage_scan *scan, struct ctrun_error *err)
{
    struct level *level = &scan->levels[scan->depth - 1];
    const char *name;

    scan->path[level->length] = '\0';
    if (level->next == level->count) {
        close_level(level);
        scan->depth--;
        return 1;
    }
    name = level->names[level->next++];
    if (ct_format(scan->path + level->length, sizeof scan->path - level->length, "/%s",
                  name) < 0)
        return fail(scan, "the path is too long", err);
    return add_entry(scan, level->fd, name, err);
}

static int step(struct stage_scan *scan, struct ctrun_error *err)
{
    const struct stage_source *source;

    if (scan->file >= 0)
        return read_file(scan, err);
    if (scan->depth > 0)
        return next_entry(scan, err);
    if (scan->source == scan->manifest->source_count)
        return 0;
    source = &scan->manifest->sources[scan->source++];
    (void)ct_copy(scan->path, sizeof scan->path, source->name);
    return add_entry(scan, AT_FDCWD, source->real, err);
}

int stage_scan_step(struct stage_scan *scan, struct ctrun_error *err)
{
    const uint64_t until_ms = ct_deadline_ms(STEP_MS);
    int rc;

    do
        rc = step(scan, err);
    while (rc == 1 && ct_left_ms(until_ms) > 0);
    return rc;
}

/* ---- Life -------------------------------------------------------------------------------- */

int stage_scan_open(struct stage_scan **out, struct stage_manifest *manifest,
                    const char *list, const char *cwd, struct ctrun_error *err)
{
    struct stage_scan *scan;
    int rc = read_list(manifest, list, cwd, err);

    if (rc < 0)
        return rc;
    scan = ct_zalloc(sizeof *scan);
    if (!scan || !(scan->data = ct_zalloc(READ_BYTES))) {
        free(scan);
        return ct_fail(err, -ENOMEM, "--stage: out of memory");
    }
    scan->manifest = manifest;
    scan->file = -1;
    *out = scan;
    return 0;
}

void stage_scan_close(struct stage_scan *scan)
{
    if (!scan)
        return;
    while (scan->depth > 0)
        close_level(&scan->levels[--scan->depth]);
    ct_close(&scan->file);
    free(scan->data);
    free(scan);
}

int stage_scan_open_file(const struct stage_manifest *manifest,
                         const struct stage_entry *file, struct ctrun_error *err)
{
    const size_t length = strcspn(file->path, "/");
    char path[PATH_MAX] = "";
    struct stat info;
    int fd;

    for (uint32_t i = 0; i < manifest->source_count; i++) {
        const struct stage_source *source = &manifest->sources[i];

        if (strlen(source->name) == length &&
            strncmp(source->name, file->path, length) == 0)
            (void)ct_format(path, sizeof path, "%s%s", source->real,
                            file->path + length);
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return ct_fail(err, CTRUN_E_STAGE, "--stage: %.800s: %s", path,
                       strerror(errno));
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
        (uint64_t)info.st_size == file->size && time_of(&info) == file->mtime_ns)
        return fd;
    close(fd);
    return ct_fail(err, CTRUN_E_STAGE,
                   "--stage: %.800s: changed while it was being staged; start again "
                   "when no process writes to it",
                   path);
}
