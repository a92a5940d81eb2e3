/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl migrate: a script that starts torchrun, as one that starts ctrun. The diff is the
 * answer, on stdout; why each change, on stderr. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/ctl.h"
#include "launcher/json.h"
#include "launcher/migrate.h"
#include "launcher/whole_file.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    OUT_MAX_BYTES = 8 << 20,
    PATH_MAX_BYTES = 4096
};

static const struct ctl_option options[] = {
    {.name = "write", .help = "change FILE; what it was is kept as FILE.orig"},
    CTL_JSON,
    {0}};

struct job {
    const char *path;
    char *text; /* owned */
    size_t length;
    struct stat info;
    struct migrate migrate;
    struct ct_buf diff;
    char backup[PATH_MAX_BYTES]; /* empty: nothing was written */
};

/* ---- Reading ----------------------------------------------------------------------------- */

static int read_file(struct job *job, struct ctrun_error *err)
{
    const int rc = whole_file_read(job->path, MIGRATE_MAX_BYTES, &job->text,
                                   &job->length, &job->info);

    switch (rc) {
    case 0: return 0;
    case -EBADMSG: return ct_fail(err, -EINVAL, "%.300s: no regular file", job->path);
    case -EFBIG:
        return ct_fail(err, rc, "%.300s: longer than %d bytes", job->path,
                       MIGRATE_MAX_BYTES);
    default: return ct_fail(err, rc, "%.300s: %s", job->path, strerror(-rc));
    }
}

/* ---- Writing ----------------------------------------------------------------------------- */

static int write_all(int fd, const void *data, size_t length)
{
    const char *at = data;

    while (length > 0) {
        const ssize_t n = write(fd, at, length);

        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) {
            at += n;
            length -= (size_t)n;
        }
    }
    return fsync(fd) < 0 ? -errno : 0;
}

/* A new file that belongs to whom the old one does; on failure there is none. */
static int write_file(int fd, const char *path, const struct stat *like,
                      const void *data, size_t length)
{
    int rc = fd < 0 ? -errno : write_all(fd, data, length);

    if (rc == 0 && (like->st_uid != geteuid() || like->st_gid != getegid()) &&
        fchown(fd, like->st_uid, like->st_gid) < 0 && geteuid() == 0)
        rc = -errno; /* others can only make files of their own */
    if (rc == 0 && fchmod(fd, like->st_mode & 07777) < 0)
        rc = -errno;
    if (fd >= 0 && close(fd) < 0 && rc == 0)
        rc = -errno;
    if (fd >= 0 && rc < 0)
        (void)unlink(path);
    return rc;
}

/* The backup first, then the change in one step: at every moment FILE is whole. */
static int replace_file(struct job *job, const char *path, const struct ct_buf *fresh,
                        struct ctrun_error *err)
{
    char temporary[PATH_MAX_BYTES];
    int fd;
    int rc;

    if (ct_format(job->backup, sizeof job->backup, "%s.orig", path) < 0 ||
        ct_format(temporary, sizeof temporary, "%s.XXXXXX", path) < 0)
        return ct_fail(err, -ENAMETOOLONG, "%.300s: the path is too long", path);
    fd = open(job->backup, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if ((rc = write_file(fd, job->backup, &job->info, job->text, job->length)) < 0) {
        (void)ct_fail(err, rc, "%.300s: %s%s", job->backup, strerror(-rc),
                      rc == -EEXIST ? "; move it away first" : "");
        job->backup[0] = '\0';
        return rc;
    }
    fd = mkostemp(temporary, O_CLOEXEC);
    rc = write_file(fd, temporary, &job->info, ct_buf_data(fresh),
                    ct_buf_length(fresh));
    if (rc == 0 && rename(temporary, path) < 0) {
        rc = -errno;
        (void)unlink(temporary);
    }
    if (rc == 0)
        return 0;
    (void)unlink(job->backup); /* FILE is what it was */
    job->backup[0] = '\0';
    return ct_fail(err, rc, "%.300s: %s", path, strerror(-rc));
}

static int write_change(struct job *job, struct ctrun_error *err)
{
    char *path = realpath(job->path, NULL); /* a link stays one */
    struct ct_buf fresh;
    int rc;

    ct_buf_init(&fresh, OUT_MAX_BYTES);
    if (!path)
        rc = ct_fail(err, -errno, "%.300s: %s", job->path, strerror(errno));
    else if ((rc = text_edits_apply(&job->migrate.edits, job->text, 0, job->length,
                                    &fresh)) < 0)
        (void)ct_fail(err, rc, "%.300s: %s", job->path, strerror(-rc));
    else
        rc = replace_file(job, path, &fresh, err);
    ct_buf_deinit(&fresh);
    free(path);
    return rc;
}

/* ---- Telling ----------------------------------------------------------------------------- */

static void print_notes(const struct job *job)
{
    static const char *const kinds[] = {"", "left: ", "hint: "};

    for (size_t i = 0; i < job->migrate.note_count; i++) {
        const struct migrate_note *note = &job->migrate.notes[i];

        fprintf(stderr, "%s:%d: %s%s: %s\n", job->path, note->line, kinds[note->kind],
                note->what, note->why);
    }
    if (job->migrate.note_count == 0)
        fprintf(stderr, "%s: nothing in it starts torchrun\n", job->path);
    if (*job->backup)
        fprintf(stderr, "%s: written; what it was is %s\n", job->path, job->backup);
}

static void print_list(const struct job *job, enum migrate_kind kind, const char *name)
{
    bool is_first = true;

    printf(",\"%s\":[", name);
    for (size_t i = 0; i < job->migrate.note_count; i++) {
        const struct migrate_note *note = &job->migrate.notes[i];

        if (note->kind != kind)
            continue;
        printf("%s{\"line\":%d,\"what\":", is_first ? "" : ",", note->line);
        json_print_text(stdout, note->what);
        fputs(",\"why\":", stdout);
        json_print_text(stdout, note->why);
        fputs("}", stdout);
        is_first = false;
    }
    fputs("]", stdout);
}

static int print_json(struct job *job)
{
    int rc = ct_buf_append(&job->diff, "", 1); /* for its end */

    if (rc < 0)
        return rc;
    fputs("{\"file\":", stdout);
    json_print_text(stdout, job->path);
    printf(",\"launches\":%d", job->migrate.launches);
    print_list(job, MIGRATE_CHANGED, "changes");
    print_list(job, MIGRATE_LEFT, "left");
    print_list(job, MIGRATE_HINT, "hints");
    fputs(",\"diff\":", stdout);
    json_print_text(stdout, (const char *)ct_buf_data(&job->diff));
    fputs(",\"backup\":", stdout);
    if (*job->backup)
        json_print_text(stdout, job->backup);
    else
        fputs("null", stdout);
    fputs("}\n", stdout);
    return 0;
}

static int print_all(struct job *job, bool as_json)
{
    if (as_json)
        return print_json(job);
    (void)fwrite(ct_buf_data(&job->diff), 1, ct_buf_length(&job->diff), stdout);
    (void)fflush(stdout); /* before what is said about it */
    print_notes(job);
    return 0;
}

static int do_all(struct job *job, const struct ctl_call *call, struct ctrun_error *err)
{
    int rc = read_file(job, err);

    if (rc < 0)
        return rc;
    if ((rc = migrate_read(&job->migrate, job->text, job->length, err)) < 0)
        return ct_wrap(err, "%.300s", job->path);
    if ((rc = text_edits_diff(&job->migrate.edits, job->path, job->text, job->length,
                              &job->diff)) < 0)
        return ct_fail(err, rc, "%.300s: %s", job->path, strerror(-rc));
    if (ctl_value(call, "write") && job->migrate.edits.count > 0 &&
        (rc = write_change(job, err)) < 0)
        return rc;
    rc = print_all(job, ctl_value(call, "json"));
    return rc < 0 ? ct_fail(err, rc, "%.300s: %s", job->path, strerror(-rc)) : 0;
}

static int run(const struct ctl_call *call)
{
    struct job job = {.path = call->words[0]};
    struct ctrun_error err;
    int code = CT_EXIT_OK;

    ct_buf_init(&job.diff, OUT_MAX_BYTES);
    if (do_all(&job, call, &err) < 0)
        code = ctl_fail(&err);
    else if (migrate_has_left(&job.migrate))
        code = CT_EXIT_FAILURE;
    migrate_deinit(&job.migrate);
    ct_buf_deinit(&job.diff);
    free(job.text);
    return code;
}

const struct ctl_verb ctl_migrate = {
    .name = "migrate",
    .words = "FILE",
    .word_min = 1,
    .word_max = 1,
    .help = "show a script that starts torchrun as one that starts ctrun\n"
            "Prints the change as a unified diff, and for each part of it what and why "
            "on stderr.\n"
            "What it does not understand stays, is named, and makes the exit code 1.",
    .options = options,
    .run = run,
};
