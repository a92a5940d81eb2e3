/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/hold/hold_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/loop/blocking_call.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ckpt/durable.h"

enum writer_state {
    WRITER_RUNS,
    WRITER_GIVEN_UP, /* the thread frees the writer */
    WRITER_IS_DONE,  /* it is in the pipe, and the reader of the pipe frees it */
};

struct hold_writer {
    struct hold_writer_job job;
    char name[256];
    int done;         /* the thread's own, once it runs */
    atomic_int state; /* enum writer_state */
    bool is_given_up; /* given up after IS_DONE: the result is not wanted */
    struct hold_writer_result result;
};

static void destroy(struct hold_writer *writer)
{
    close(writer->job.memory);
    close(writer->job.folder);
    free(writer);
}

static bool may_go_on(void *context)
{
    struct hold_writer *writer = context;

    return atomic_load(&writer->state) == WRITER_RUNS &&
           (!writer->job.may_write || writer->job.may_write());
}

static int look(struct hold_writer *writer)
{
    struct stat st;

    if (fstatat(writer->job.folder, writer->name, &st, 0) < 0)
        return -errno;
    writer->result.inode = st.st_ino;
    writer->result.mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000 +
                              (uint64_t)st.st_mtim.tv_nsec;
    return 0;
}

/* Uses the folder's descriptor: the worker's folder, even if its path leads elsewhere in this
 * process. */
static void *run(void *context)
{
    struct hold_writer *writer = context;
    const int done = writer->done;
    const struct ct_durable_source source = {.fd = writer->job.memory,
                                             .length = writer->job.bytes,
                                             .crc = writer->job.crc,
                                             .may_go_on = may_go_on,
                                             .context = writer};
    char path[sizeof writer->name + 40];
    struct ctrun_error err;
    int rc;

    (void)ct_format(path, sizeof path, "/proc/self/fd/%d/%s", writer->job.folder,
                    writer->name);
    rc = ct_durable_copy(path, &source, &err);
    writer->result.code = rc < 0 ? rc : 0;
    if (rc == -EBADMSG)
        (void)ct_copy(writer->result.text, sizeof writer->result.text,
                      "its bytes were changed after the commit");
    else if (rc == -ECANCELED)
        (void)ct_copy(
            writer->result.text, sizeof writer->result.text,
            "this node was cut off from the run, which may continue on other nodes");
    else if (rc < 0)
        (void)ct_format(writer->result.text, sizeof writer->result.text, "%s",
                        strerror(-rc));
    else
        (void)look(writer); /* on failure the file is not recognized later */
    if (atomic_exchange(&writer->state, WRITER_IS_DONE) == WRITER_GIVEN_UP ||
        write(done, &writer, sizeof writer) != sizeof writer)
        destroy(writer); /* no reader is left */
    close(done);
    return NULL;
}

struct hold_writer *hold_writer_start(const struct hold_writer_job *job, int done)
{
    struct hold_writer *writer = ct_zalloc(sizeof *writer);

    if (!writer)
        return NULL;
    writer->job = *job;
    writer->result.entry = job->entry;
    (void)ct_copy(writer->name, sizeof writer->name, job->name); /* same size */
    writer->job.memory = fcntl(job->memory, F_DUPFD_CLOEXEC, 0);
    writer->job.folder = fcntl(job->folder, F_DUPFD_CLOEXEC, 0);
    writer->done = fcntl(done, F_DUPFD_CLOEXEC, 0);
    if (writer->job.memory >= 0 && writer->job.folder >= 0 && writer->done >= 0 &&
        blocking_call_start(run, writer) == 0)
        return writer;
    close(writer->done);
    destroy(writer);
    return NULL;
}

void hold_writer_give_up(struct hold_writer *writer)
{
    int runs = WRITER_RUNS;

    if (!atomic_compare_exchange_strong(&writer->state, &runs, WRITER_GIVEN_UP))
        writer->is_given_up = true; /* already in the pipe, so it is ours to mark */
}

bool hold_writer_read(int done, struct hold_writer_result *out)
{
    struct hold_writer *writer;

    if (read(done, &writer, sizeof writer) != sizeof writer)
        return false;
    (void)atomic_load(
        &writer->state); /* acquire: makes the thread's writes visible here */
    *out = writer->result;
    if (writer->is_given_up)
        out->entry = NULL;
    destroy(writer);
    return true;
}
