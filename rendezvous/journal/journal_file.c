/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/journal/journal_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/journal/journal_limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/whole_file.h"

static const char magic[] = "ctrun journal 1\n";

enum {
    MAGIC_BYTES = sizeof magic - 1,
    KIND_BYTES = MAGIC_BYTES - 2 /* the header without the version */
};

/* The live batches of one run, with their frames. */
struct kept {
    struct ct_list node;
    char id[CT_RUN_ID_MAX];
    struct ct_buf frames;
};

struct journal_file {
    struct journal_sink sink;
    char path[PATH_MAX];
    int fd;
    uint64_t size_bytes;
    uint64_t live_bytes;
    struct ct_list runs; /* struct kept */
    bool is_broken;      /* the file lacks a live batch */
    bool is_reported;    /* ... and the log says so */
    char why[128];       /* a batch could not be written */
    /* The run of a batch that the memory lacked: a new file lacks it too, until a WHOLE one. Empty:
     * none. */
    char gap[CT_RUN_ID_MAX];
    bool
        has_gaps; /* more runs than one lacked a record at the same time: never called complete again */
};

/* ---- What is live ------------------------------------------------------------------------ */

static struct kept *find(const struct journal_file *file, const char *id)
{
    ct_list_for_each(struct kept, kept, &file->runs, node) {
        if (strcmp(kept->id, id) == 0)
            return kept;
    }
    return NULL;
}

static void drop(struct journal_file *file, struct kept *kept)
{
    file->live_bytes -= ct_buf_length(&kept->frames);
    ct_list_remove(&kept->node);
    ct_buf_deinit(&kept->frames);
    free(kept);
}

/* A WHOLE batch replaces those before it, an END removes all: only what a restart needs is held. */
static int hold(struct journal_file *file, const char *id, unsigned flags,
                const uint8_t *frame, size_t length)
{
    struct kept *kept = find(file, id);
    int rc;

    if (kept && (flags & (JOURNAL_WHOLE | JOURNAL_END))) {
        drop(file, kept);
        kept = NULL;
    }
    if (flags & JOURNAL_END)
        return 0;
    if (!kept) {
        if (!(kept = ct_zalloc(sizeof *kept)))
            return -ENOMEM;
        (void)ct_copy(kept->id, sizeof kept->id, id); /* same size */
        ct_buf_init(&kept->frames, JOURNAL_FILE_MAX_BYTES);
        ct_list_add(&file->runs, &kept->node);
    }
    if ((rc = ct_buf_append(&kept->frames, frame, length)) == 0)
        file->live_bytes += length;
    return rc;
}

/* ---- Writing ----------------------------------------------------------------------------- */

/* The name of a file is on the disk once its folder is. */
static void sync_folder(const char *path)
{
    char folder[PATH_MAX];
    char *slash;
    int fd;

    (void)ct_copy(folder, sizeof folder, path); /* same size */
    slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd); /* best effort: not all file systems can do this */
        close(fd);
    }
}

static int write_live(const struct journal_file *file, int fd)
{
    int rc = ct_write_all(fd, magic, MAGIC_BYTES);

    ct_list_for_each(const struct kept, kept, &file->runs, node) {
        if (rc == 0)
            rc = ct_write_all(fd, ct_buf_data(&kept->frames),
                              ct_buf_length(&kept->frames));
    }
    if (rc == 0 && fsync(fd) < 0)
        rc = -errno;
    return rc;
}

/* Replaces the file by a new one with the live batches. The new file is complete and on the disk
 * before it gets the name, so a power cut leaves either the old or the new file. It is locked
 * before it gets the name. */
static int compact(struct journal_file *file)
{
    char path[PATH_MAX];
    int fd, rc = 0;

    if (ct_format(path, sizeof path, "%s.new", file->path) < 0)
        return -ENAMETOOLONG;
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        rc = -errno;
    if (rc == 0)
        rc = write_live(file, fd);
    if (rc == 0 && rename(path, file->path) < 0)
        rc = -errno;
    if (rc < 0) {
        (void)unlink(path); /* remove the incomplete file */
        close(fd);
        return rc;
    }
    sync_folder(file->path);
    close(file->fd);
    file->fd = fd;
    file->size_bytes = MAGIC_BYTES + file->live_bytes;
    file->is_broken = false;
    return 0;
}

static void explain(struct journal_file *file, int why)
{
    (void)ct_format(file->why, sizeof file->why,
                    "the journal lacks a record: %s; a restart of ctrund may end runs",
                    strerror(-why)); /* cut is fine */
}

/* Cuts a partial write off: a broken frame would hide all frames after it. */
static void give_up_write(struct journal_file *file, int rc)
{
    ct_err("journal: %s: a record could not be written: %s; until it can, a restart of "
           "ctrund may end runs",
           file->path, strerror(-rc));
    file->is_broken = file->is_reported = true;
    explain(file, rc);
    if (ftruncate(file->fd, (off_t)file->size_bytes) < 0)
        ct_err("journal: %s: the incomplete part cannot be cut off: %s", file->path,
               strerror(errno));
}

static int append(struct journal_file *file, const uint8_t *frame, size_t length)
{
    int rc = ct_write_all(file->fd, frame, length);

    if (rc == 0)
        file->size_bytes += length;
    return rc;
}

static void note_gap(struct journal_file *file, const char *run_id, unsigned flags,
                     int rc)
{
    const bool is_same = strcmp(file->gap, run_id) == 0;

    if (rc < 0) {
        file->has_gaps |= file->gap[0] && !is_same;
        (void)ct_copy(file->gap, sizeof file->gap, run_id); /* same size */
    } else if (is_same && flags & (JOURNAL_WHOLE | JOURNAL_END)) {
        file->gap[0] = '\0';
    }
}

static void log_if_complete(struct journal_file *file)
{
    if (!file->is_reported || file->is_broken || file->gap[0] || file->has_gaps)
        return;
    file->is_reported = false;
    ct_info("journal: %s: complete again; a restart of ctrund ends no run", file->path);
}

/* When the disk fails, the batches are kept in memory only: the runs continue. */
static int store(void *context, const char *run_id, unsigned flags,
                 const uint8_t *batch, size_t length)
{
    struct journal_file *file = context;
    uint8_t head[JOURNAL_FRAME_BYTES];
    struct ct_buf frame;
    int rc;

    ct_buf_init(&frame, JOURNAL_FRAME_BYTES + JOURNAL_BATCH_MAX_BYTES);
    journal_frame_encode(head, batch, length);
    if ((rc = ct_buf_append(&frame, head, sizeof head)) == 0 &&
        (rc = ct_buf_append(&frame, batch, length)) == 0)
        rc = hold(file, run_id, flags, ct_buf_data(&frame), ct_buf_length(&frame));
    note_gap(file, run_id, flags, rc);
    if (rc == 0 && !file->is_broken)
        rc = append(file, ct_buf_data(&frame), ct_buf_length(&frame));
    ct_buf_deinit(&frame);
    if (rc < 0)
        give_up_write(file, rc);
    if (file->is_broken ||
        file->size_bytes > 2 * file->live_bytes + JOURNAL_FILE_SLACK_BYTES) {
        const bool was_broken = file->is_broken;

        rc = compact(file);
        if (rc < 0 && !was_broken)
            ct_warn("journal: %s: cannot be compacted, and grows: %s", file->path,
                    strerror(-rc));
    }
    log_if_complete(file);
    return 0;
}

static void retry(void *context)
{
    struct journal_file *file = context;

    if (!file->is_broken)
        return;
    (void)compact(file); /* else it stays broken */
    log_if_complete(file);
}

static const char *why_broken(const void *context)
{
    const struct journal_file *file = context;

    return file->is_reported ? file->why : NULL;
}

/* ---- Reading ----------------------------------------------------------------------------- */

struct reading {
    struct journal_file *file;
    struct journal_book *book;
    size_t lost_bytes; /* between complete frames */
    size_t refused;    /* batches */
};

static void take_batch(struct reading *reading, const uint8_t *frame, size_t taken,
                       const uint8_t *batch, size_t length)
{
    char run_id[CT_RUN_ID_MAX];
    unsigned flags;

    if (journal_look(batch, length, &flags, run_id) == 0 &&
        journal_book_add(reading->book, batch, length) == 0)
        (void)hold(reading->file, run_id, flags, frame,
                   taken); /* -ENOMEM: the run is kept at its next change */
    else
        reading->refused++;
}

/* The number of bytes before the next complete frame; `length` if none follows. The run of a
 * damaged batch need not be known: its next batch has the checksum of the missing one and is
 * refused. */
static size_t skip_damage(const uint8_t *data, size_t length)
{
    const uint8_t *batch;
    size_t batch_length;

    for (size_t at = 1; at + JOURNAL_FRAME_BYTES < length; at++) {
        if (data[at + JOURNAL_FRAME_BYTES] == JOURNAL_VERSION &&
            journal_frame_decode(data + at, length - at, &batch, &batch_length) > 0)
            return at;
    }
    return length;
}

/* Logs what was lost, and decides whether the file must be written anew. */
static void log_losses(struct reading *reading, size_t tail)
{
    struct journal_file *file = reading->file;

    file->is_broken = tail > 0 || reading->lost_bytes > 0;
    if (reading->lost_bytes > 0)
        ct_warn("journal: %s: %zu bytes are damaged: their run ends, or continues from "
                "an earlier state",
                file->path, reading->lost_bytes);
    if (reading->refused > 0)
        ct_warn("journal: %s: %zu records cannot be read: a run that needs one of them "
                "is not restored",
                file->path, reading->refused);
    if (tail > 0)
        ct_warn("journal: %s: the last %zu bytes are not a complete record and are "
                "ignored",
                file->path, tail);
}

static void take(struct journal_file *file, struct journal_book *book,
                 const uint8_t *data, size_t length)
{
    struct reading reading = {.file = file, .book = book};
    const uint8_t *batch;
    size_t batch_length;
    size_t skipped;

    while (length > 0) {
        const int64_t taken = journal_frame_decode(data, length, &batch, &batch_length);

        if (taken > 0)
            take_batch(&reading, data, (size_t)taken, batch, batch_length);
        skipped = taken > 0 ? (size_t)taken : skip_damage(data, length);
        if (skipped == length && taken <= 0)
            break;
        reading.lost_bytes += taken > 0 ? 0 : skipped;
        data += skipped;
        length -= skipped;
    }
    log_losses(&reading, length);
}

static int read_file(struct journal_file *file, struct journal_book *book,
                     struct ctrun_error *err)
{
    const size_t length = (size_t)file->size_bytes;
    uint8_t *data;

    if (file->size_bytes == 0)
        return 0;
    if (file->size_bytes > JOURNAL_FILE_MAX_BYTES)
        return ct_fail(err, -EFBIG,
                       "%s: %llu bytes, and a journal has at most %llu; name another "
                       "file",
                       file->path, (unsigned long long)file->size_bytes,
                       (unsigned long long)JOURNAL_FILE_MAX_BYTES);
    data = mmap(NULL, length, PROT_READ, MAP_PRIVATE, file->fd, 0);
    if (data == MAP_FAILED)
        return ct_fail(err, -errno, "%s: %s", file->path, strerror(errno));
    if (length < MAGIC_BYTES || memcmp(data, magic, KIND_BYTES) != 0) {
        (void)munmap(data, length);
        return ct_fail(err, -EBADMSG,
                       "%s: this is not a journal of ctrund; name another file",
                       file->path);
    }
    if (memcmp(data, magic, MAGIC_BYTES) == 0)
        take(file, book, data + MAGIC_BYTES, length - MAGIC_BYTES);
    else
        ct_warn("journal: %s: another version of ctrund wrote it: its runs are not "
                "restored",
                file->path);
    file->is_broken |= memcmp(data, magic, MAGIC_BYTES) != 0;
    (void)munmap(data, length);
    return 0;
}

/* Only what the book could restore is live. */
static void forget_dropped(struct journal_file *file, const struct journal_book *book)
{
    ct_list_for_each_safe(struct kept, kept, &file->runs, node) {
        bool is_live = false;

        ct_list_for_each(struct journal_entry, entry, &book->entries, node)
            is_live |= strcmp(entry->id, kept->id) == 0;
        if (!is_live)
            drop(file, kept);
    }
}

static int open_locked(struct journal_file *file, const char *path,
                       struct ctrun_error *err)
{
    struct stat st;
    int rc;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        rc = ct_format(file->path, sizeof file->path, "%s/ctrund.journal", path);
    else
        rc = ct_copy(file->path, sizeof file->path, path);
    if (rc < 0)
        return ct_fail(err, -ENAMETOOLONG, "%s: the name is too long", path);
    file->fd = open(file->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file->fd < 0 || fstat(file->fd, &st) < 0)
        return ct_fail(err, -errno, "%s: %s", file->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return ct_fail(err, -EINVAL, "%s: neither a regular file nor a folder",
                       file->path);
    if (flock(file->fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK
                   ? ct_fail(err, -EBUSY,
                             "%s: another ctrund uses this journal; give each its own",
                             file->path)
                   : ct_fail(err, -errno, "%s: lock: %s", file->path, strerror(errno));
    file->size_bytes = (uint64_t)st.st_size;
    return 0;
}

/* Continues when no new file can be written, for example on a full disk. The file that was read is
 * enough to continue its runs; an empty file is no journal yet. */
static int go_on(struct journal_file *file, int why, struct ctrun_error *err)
{
    if (file->size_bytes < MAGIC_BYTES ||
        lseek(file->fd, (off_t)file->size_bytes, SEEK_SET) < 0)
        return ct_fail(err, why, "%s.new: %s", file->path, strerror(-why));
    ct_err("journal: %s.new: %s; continuing with the old journal", file->path,
           strerror(-why));
    explain(file, why);
    file->is_reported = file->is_broken;
    return 0;
}

int journal_file_open(struct journal_file **out, const char *path,
                      struct journal_book *book, uint64_t now_ms,
                      struct ctrun_error *err)
{
    struct journal_file *file = ct_zalloc(sizeof *file);
    size_t dropped;
    int rc;

    if (!file)
        return ct_fail(err, -ENOMEM, "journal: out of memory");
    file->fd = -1;
    ct_list_init(&file->runs);
    file->sink = (struct journal_sink){
        .context = file, .store = store, .retry = retry, .why_broken = why_broken};
    if ((rc = open_locked(file, path, err)) < 0 ||
        (rc = read_file(file, book, err)) < 0)
        goto fail;
    book->has_past = file->size_bytes > MAGIC_BYTES;
    if ((dropped = journal_book_restore(book, now_ms, now_ms)) > 0)
        ct_warn("journal: %s: %zu runs cannot be restored", file->path, dropped);
    forget_dropped(file, book);
    if ((rc = compact(file)) < 0 && (rc = go_on(file, rc, err)) < 0)
        goto fail;
    *out = file;
    return 0;

fail:
    journal_file_close(file);
    return rc;
}

const struct journal_sink *journal_file_sink(const struct journal_file *file)
{
    return &file->sink;
}

void journal_file_close(struct journal_file *file)
{
    if (!file)
        return;
    ct_list_for_each_safe(struct kept, kept, &file->runs, node)
        drop(file, kept);
    if (file->fd >= 0)
        close(file->fd);
    free(file);
}
