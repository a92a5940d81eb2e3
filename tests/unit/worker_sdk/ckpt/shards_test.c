/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded checkpoints. What one world saved any other can load. If a rank dies, stops or gets an error
 * at any system call, in the call or in its thread, the newest complete checkpoint is whole, and the other
 * ranks get an error that names the rank.
 *
 * With CTRUN_TEST_STRIKES=1 the fault is tried at every call of the thread and of a load, not only at some. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/ranks.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ckpt/shards.h"
#include "worker_sdk/comm/group_private.h"
#include "worker_sdk/include/ctrun.h"

/* ---- The system calls that change a disk, each of which may be the last ------------------- */

static struct {
    unsigned at;  /* the fault comes at the n-th call from now; 0: never */
    int error;    /* the call fails with this; 0: a signal before the call */
    int signal;   /* 0: SIGKILL */
    bool reads;   /* count the calls that read a file, not those that change one */
    bool removes; /* another process removes a shard once it is named */
    unsigned count;
    char trace[8192]; /* "write fsync ..."; NAME is the rename of the manifest */
} fault;

static bool is_struck(const char *name)
{
    size_t used = strlen(fault.trace);

    (void)ct_format(fault.trace + used, sizeof fault.trace - used, "%s ", name);
    if (++fault.count != fault.at)
        return false;
    if (!fault.error)
        (void)kill(getpid(), fault.signal ? fault.signal : SIGKILL);
    errno = fault.error;
    return fault.error != 0; /* after a stop the call is made */
}

static bool is_file(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

ssize_t __real_write(int fd, const void *data, size_t length);
ssize_t __wrap_write(int fd, const void *data, size_t length);
ssize_t __wrap_write(int fd, const void *data, size_t length)
{
    if (fault.reads || !is_file(fd))
        return __real_write(fd, data, length);
    if (length > 1 && fault.at == fault.count + 1 && !fault.error && !fault.signal)
        (void)__real_write(fd, data, length / 2); /* dies in the middle of a write */
    return is_struck("write") ? -1 : __real_write(fd, data, length);
}

#define WRAP(name, parameters, arguments)                                              \
    int __real_##name parameters;                                                      \
    int __wrap_##name parameters;                                                      \
    int __wrap_##name parameters                                                       \
    {                                                                                  \
        return !fault.reads && is_struck(#name) ? -1 : __real_##name arguments;        \
    }
WRAP(fsync, (int fd), (fd))
WRAP(mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(linkat, (int from, const char *path, int to, const char *name, int flags),
     (from, path, to, name, flags))
WRAP(unlink, (const char *path), (path))
WRAP(unlinkat, (int fd, const char *path, int flags), (fd, path, flags))

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    if (is_struck(strstr(to, "manifest") ? "NAME" : "rename"))
        return -1;
    return fault.removes ? __real_unlink(from) : __real_rename(from, to);
}

ssize_t __real_read(int fd, void *to, size_t length);
ssize_t __wrap_read(int fd, void *to, size_t length);
ssize_t __wrap_read(int fd, void *to, size_t length)
{
    return fault.reads && is_file(fd) && is_struck("read")
               ? -1
               : __real_read(fd, to, length);
}

ssize_t __real_pread(int fd, void *to, size_t length, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t length, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t length, off_t at)
{
    return fault.reads && is_file(fd) && is_struck("pread")
               ? -1
               : __real_pread(fd, to, length, at);
}

/* ---- A model in pieces -------------------------------------------------------------------- */

enum {
    TENSORS = 4,
    DATA_MAX = 64
};
struct part {
    struct ctrun_tensor tensors[TENSORS];
    union {
        float f32[DATA_MAX];
        int64_t i64[DATA_MAX];
    } data[TENSORS];
};

/* The tensors: one that every rank has, one cut by rows, one cut by columns, and a long list. */
static const struct {
    const char *name;
    enum ctrun_dtype dtype;
    int dims, split; /* the dimension that is cut; -1: not cut */
    int64_t whole[2];
} model[TENSORS] = {{"bias", CTRUN_F32, 1, -1, {5}},
                    {"rows", CTRUN_F32, 2, 0, {7, 4}},
                    {"columns", CTRUN_F32, 2, 1, {3, 8}},
                    {"adam.flat", CTRUN_I64, 1, 0, {37}}};

static int64_t value_of(uint64_t step, int tensor, int64_t element)
{
    return (int64_t)step * 1000 + tensor * 100 + element;
}

static void cut(struct part *part, int rank, int size)
{
    struct ctrun_tensor init = CTRUN_TENSOR_INIT;

    memset(part->data, 0, sizeof part->data);
    for (int t = 0; t < TENSORS; t++) {
        struct ctrun_tensor *tensor = &part->tensors[t];
        *tensor = init;
        tensor->name = model[t].name;
        tensor->dtype = model[t].dtype;
        tensor->dims = model[t].dims;
        tensor->data = &part->data[t];
        for (int d = 0; d < tensor->dims; d++)
            tensor->sizes[d] = tensor->whole[d] = model[t].whole[d];
        if (model[t].split >= 0) {
            const int64_t whole = model[t].whole[model[t].split];
            const int64_t first = whole * rank / size, end = whole * (rank + 1) / size;
            tensor->starts[model[t].split] = first;
            tensor->sizes[model[t].split] = end - first;
        }
    }
}

/* For each element of the part: writes or checks the value that belongs to its number in the
 * tensor. */
static bool visit(struct part *part, uint64_t step, bool write)
{
    bool is_right = true;

    for (int t = 0; t < TENSORS; t++) {
        const struct ctrun_tensor *tensor = &part->tensors[t];
        const int64_t columns = tensor->dims == 2 ? tensor->sizes[1] : 1;
        for (int64_t i = 0; i < tensor->sizes[0] * columns; i++) {
            const int64_t row = tensor->starts[0] + i / columns;
            const int64_t element = tensor->dims == 2
                                        ? row * tensor->whole[1] + tensor->starts[1] +
                                              i % columns
                                        : row;
            const int64_t value = value_of(step, t, element);
            if (write && tensor->dtype == CTRUN_F32)
                part->data[t].f32[i] = (float)value;
            else if (write)
                part->data[t].i64[i] = value;
            else
                is_right &= tensor->dtype == CTRUN_F32
                                ? part->data[t].f32[i] == (float)value
                                : part->data[t].i64[i] == value;
        }
    }
    return is_right;
}

/* ---- Worlds ------------------------------------------------------------------------------- */

static char directory[64];

static int setup(void **state)
{
    memset(&fault, 0, sizeof fault);
    (void)ct_copy(directory, sizeof directory, "/tmp/ctrun_shards_XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int on_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static int clear(void **state)
{
    memset(&fault, 0, sizeof fault);
    return nftw(directory, on_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void start_anew(void)
{
    void *none = NULL;

    assert_int_equal(clear(&none), 0);
    assert_int_equal(setup(&none), 0);
}

static int save(struct ctrun_shards *shards, struct part *part, uint64_t step,
                struct ctrun_error *err)
{
    char text[24];
    const struct ctrun_metadata metadata[] = {{"position", text}};

    (void)ct_format(text, sizeof text, "%llu", (unsigned long long)step);
    (void)visit(part, step, true);
    return ctrun_shards_save(shards, step, part->tensors, TENSORS, metadata, 1, err);
}

struct job {
    uint64_t first, last; /* steps */
    struct ctrun_shards_options options;
    int victim; /* the rank that gets the fault `at`; -1: none */
    unsigned at;
    int error, signal;
};

static struct ctrun_error told; /* of the last save in this process */

/* A rank of `size` saves its part of the steps. */
static int run_job(struct ctrun_group *group, int rank, int size, const struct job *job)
{
    struct ctrun_shards *shards;
    struct ctrun_error err = {.code = 0};
    struct part part;
    int rc = 0;

    CHECK_OK(ctrun_shards_open(&shards, directory, group, &job->options, &err));
    cut(&part, rank, size);
    for (uint64_t step = job->first; step <= job->last && rc == 0; step++) {
        fault.count = 0;
        fault.at = step == job->last && rank == job->victim ? job->at : 0;
        fault.error = job->error;
        fault.signal = job->signal;
        rc = save(shards, &part, step, &err);
        if (rc == 0)
            rc = ctrun_shards_wait(shards, &err);
    }
    told = err;
    ctrun_shards_close(shards);
    return rc;
}

static int body(int rank, void *context)
{
    const int size = ranks_place(rank, "a").world_size;
    struct ctrun_group *group = ranks_open(rank, "a", NULL);
    const int rc = run_job(group, rank, size, context);

    ctrun_group_close(group);
    return rc != 0;
}

/* Each rank of a world of `size` loads the newest checkpoint. Returns its step. */
static uint64_t load_all(int size)
{
    struct ctrun_checkpoint *checkpoint;
    struct ctrun_error err;
    uint64_t step;

    if (ctrun_checkpoint_open(&checkpoint, directory, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(ct_parse_u64(ctrun_checkpoint_metadata(checkpoint, "position"), 0,
                                  UINT64_MAX, &step),
                     0);
    for (int rank = 0; rank < size; rank++) {
        struct part part;
        cut(&part, rank, size);
        for (int t = 0; t < TENSORS; t++)
            if (ctrun_checkpoint_load(checkpoint, &part.tensors[t], &err) < 0)
                fail_msg("rank %d of %d: %s", rank, size, err.text);
        assert_true(visit(&part, step, false));
    }
    ctrun_checkpoint_close(checkpoint);
    return step;
}

static unsigned count_entries(const char *path)
{
    DIR *dir = opendir(path);
    unsigned count = 0;
    struct dirent *entry;

    assert_non_null(dir);
    while ((entry = readdir(dir)))
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void path_of(char path[256], uint64_t step, const char *file)
{
    (void)ct_format(path, 256, "%s/step-%016llu/%s", directory,
                    (unsigned long long)step, file);
}

static const struct job three_steps = {
    .first = 1, .last = 3, .options = CTRUN_SHARDS_OPTIONS_INIT, .victim = -1};

static struct job job_of(uint64_t first, uint64_t last)
{
    struct job job = three_steps;

    job.first = first;
    job.last = last;
    return job;
}

static void save_alone(uint64_t first, uint64_t last)
{
    const struct job job = job_of(first, last);

    assert_int_equal(run_job(NULL, 0, 1, &job), 0);
}

/* ---- Stories ------------------------------------------------------------------------------ */

TEST_AROUND(what_one_world_saved_every_other_loads, setup, clear)
{
    for (int size = 1; size <= 4; size++) {
        struct job job = job_of((uint64_t)size, (uint64_t)size);
        assert_int_equal(ranks_run(size, body, &job), 0);
        for (int other = 1; other <= 5; other++)
            assert_int_equal(load_all(other), size);
    }
}

RANKS_TEST_AROUND(what_all_ranks_have_is_spread_over_them, 2, setup, clear)
{
    static float data[4][64];
    struct ctrun_tensor init = CTRUN_TENSOR_INIT, tensors[4];
    struct ctrun_group *group = ranks_open(rank, "a", NULL);
    struct ctrun_shards_stats stats = CTRUN_SHARDS_STATS_INIT;
    struct ctrun_shards *shards;
    struct ctrun_error err;
    static const char *const names[] = {"a", "b", "c", "d"};

    for (int i = 0; i < 4; i++) {
        tensors[i] = init;
        tensors[i].name = names[i];
        tensors[i].dims = 1;
        tensors[i].sizes[0] = 64;
        tensors[i].data = data[i];
    }
    CHECK_OK(ctrun_shards_open(&shards, directory, group, NULL, &err));
    CHECK_OK(ctrun_shards_save(shards, 1, tensors, 4, NULL, 0, &err));
    CHECK_OK(ctrun_shards_get_stats(shards, &stats, &err));
    CHECK(stats.saves == 1 && stats.bytes > 2 * 256 && stats.bytes < 3 * 256 + 512);
    ctrun_shards_close(shards);
    ctrun_group_close(group);
    return 0;
}

/* Only one rank has the tensor. */
static int holder_body(int rank, void *context)
{
    const int holder = *(const int *)context;
    const bool has = rank == holder;
    struct ctrun_group *group = ranks_open(rank, "a", NULL);
    struct ctrun_shards_options options = CTRUN_SHARDS_OPTIONS_INIT;
    struct ctrun_tensor tensor = CTRUN_TENSOR_INIT;
    struct ctrun_shards *shards;
    struct ctrun_error err;
    float value = 7 + (float)holder;

    options.async = true;
    tensor.name = "a";
    tensor.data = &value;
    CHECK_OK(ctrun_shards_open(&shards, directory, group, &options, &err));
    CHECK_OK(ctrun_shards_reserve(shards, &tensor, has, &err));
    CHECK_OK(ctrun_shards_save(shards, 1, &tensor, has, NULL, 0, &err));
    CHECK_OK(ctrun_shards_wait(shards, &err));
    CHECK(ctrun_shards_save(shards, 2, NULL, 0, NULL, 0, &err) == -EINVAL);
    CHECK(strstr(err.text, "rank 0: no rank has a tensor"));
    ctrun_shards_close(shards);
    ctrun_group_close(group);
    return 0;
}

TEST_AROUND(a_rank_may_have_nothing_to_save, setup, clear)
{
    for (int holder = 0; holder < 2; holder++) {
        struct ctrun_tensor tensor = CTRUN_TENSOR_INIT;
        struct ctrun_checkpoint *checkpoint;
        struct ctrun_error err;
        float value = 0;

        assert_int_equal(ranks_run(2, holder_body, &holder), 0);
        tensor.name = "a";
        tensor.data = &value;
        assert_int_equal(ctrun_checkpoint_open(&checkpoint, directory, &err), 0);
        assert_int_equal(ctrun_checkpoint_load(checkpoint, &tensor, &err), 0);
        assert_true(value == 7 + (float)holder);
        ctrun_checkpoint_close(checkpoint);
    }
}

/* Two ranks, each with rows [starts, starts + sizes) of "w"; `why` is the error on both. */
struct wrong {
    int64_t starts[2], sizes[2], whole[2];
    int code;
    const char *why;
};

static int wrong_body(int rank, void *context)
{
    const struct wrong *wrong = context;
    struct ctrun_group *group = ranks_open(rank, "a", NULL);
    struct ctrun_tensor tensor = CTRUN_TENSOR_INIT;
    struct ctrun_shards *shards;
    struct ctrun_error err = {.code = 0};
    float data[16] = {0};

    tensor.name = "w";
    tensor.dims = 1;
    tensor.data = data;
    tensor.sizes[0] = wrong->sizes[rank];
    tensor.starts[0] = wrong->starts[rank];
    tensor.whole[0] = wrong->whole[rank];
    CHECK_OK(ctrun_shards_open(&shards, directory, group, NULL, &err));
    CHECK(ctrun_shards_save(shards, 1, &tensor, 1, NULL, 0, &err) == wrong->code);
    if (!strstr(err.text, wrong->why)) {
        fprintf(stderr, "'%s' should say '%s'\n", err.text, wrong->why);
        return 1;
    }
    /* A rank that wants no text still gives the others a reason. */
    CHECK(ctrun_shards_save(shards, 1, &tensor, 1, NULL, 0, rank ? NULL : &err) ==
          wrong->code);
    CHECK(rank || wrong->code != -EINVAL || strstr(err.text, "rank 1: Invalid"));
    ctrun_shards_close(shards);
    ctrun_group_close(group);
    return 0;
}

TEST_AROUND(pieces_that_are_no_whole_tensor_are_refused_on_every_rank, setup, clear)
{
    static struct wrong wrong[] = {
        {{0, 3}, {4, 4}, {7, 7}, CTRUN_E_MISMATCH, "ranks 0 and 1 overlap"},
        {{0, 5}, {4, 2}, {7, 7}, CTRUN_E_MISMATCH, "have 6 of its 7 elements"},
        {{0, 4}, {4, 4}, {7, 8}, CTRUN_E_MISMATCH, "(7) on rank 0, and F32 (8) on"},
        {{0, 4},
         {4, 4},
         {7, 7},
         -EINVAL,
         "rank 1: tensor 'w': dimension 0: size 4 from 4 on does not fit"},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(ranks_run(2, wrong_body, &wrong[i]), 0);
}

static int steps_body(int rank, void *context)
{
    struct ctrun_group *group = ranks_open(rank, "a", NULL);
    struct ctrun_shards *shards;
    struct ctrun_error err = {.code = 0};
    struct part part;

    cut(&part, rank, 3);
    CHECK_OK(ctrun_shards_open(&shards, directory, group, NULL, &err));
    CHECK(save(shards, &part, rank == 1 ? 8 : 7, &err) == CTRUN_E_MISMATCH);
    CHECK(strstr(err.text, "rank 0 saves step 7, rank 1 8"));
    CHECK_OK(save(shards, &part, 7, &err));
    ctrun_shards_close(shards);
    ctrun_group_close(group);
    return 0;
}

TEST_AROUND(another_step_on_one_rank_is_told_on_all, setup, clear)
{
    assert_int_equal(ranks_run(3, steps_body, NULL), 0);
    assert_int_equal(load_all(1), 7);
}

TEST_AROUND(a_process_killed_at_any_call_leaves_the_newest_complete_one, setup, clear)
{
    unsigned calls = 0;

    for (unsigned at = 1, status = 1; status != 0; at++) {
        struct job job = three_steps;
        pid_t pid = fork();

        job.options.keep = 2;
        job.victim = 0;
        job.at = at;
        if (pid == 0)
            _exit(run_job(NULL, 0, 1, &job) == 0 ? 0 : 99);
        assert_int_equal(waitpid(pid, (int *)&status, 0), pid);
        if (status != 0)
            assert_int_equal(WTERMSIG(status), SIGKILL);
        assert_in_range(load_all(1), status ? 2 : 3, 3);
        save_alone(4, 4); /* the next save removes what was left */
        assert_int_equal(load_all(2), 4);
        assert_in_range(count_entries(directory), 2, 3);
        start_anew();
        calls = at;
    }
    assert_true(calls > 10);
}

/* ---- One rank of two gets a fault: the other gets an error, the old checkpoint stays ------ */

enum {
    /* Only for ranks that wait for the stopped rank. */
    STOP_MS = 1000,
    UNHARMED = 10, /* exit codes of ranks, besides 0 (the error named the victim) */
    STRUCK = 11,
    SAVE_CALLS = 20, /* more than a save makes: the last faults never come */
    LOAD_CALLS = 24,
    STRIKES_MAX = 4 * LOAD_CALLS
};

struct strike {
    struct job job;
    ranks_fn *body;
    char directory[sizeof directory];
    struct ranks *ranks;
};

/* The exit code of a rank. */
static int judge(const struct job *job, int rank, int rc)
{
    const int expected = job->signal == SIGSTOP ? CTRUN_E_TIMEOUT : CTRUN_E_PEER_LOST;
    const char *name = job->victim ? "rank 1 (" : "rank 0 (";

    if (rank == job->victim)
        return STRUCK; /* it was stopped, and has run on */
    if (rc == expected && strstr(told.text, name))
        return 0;
    if (rc < 0)
        fprintf(stderr, "rank %d got %d: %s\n", rank, rc, told.text);
    return rc == 0 ? UNHARMED : 1;
}

static struct ctrun_group *open_two(int rank)
{
    return ranks_open(rank, "a", NULL);
}

/* From here on a rank that waits for the stopped one has a short deadline. */
static void expect_a_strike(struct ctrun_group *group, int rank, const struct job *job)
{
    if (rank != job->victim && job->signal == SIGSTOP)
        group->timeout_ms = STOP_MS;
}

static int save_and_judge(int rank, void *context)
{
    const struct job *job = context;
    struct job first = job_of(job->first, job->first), last = *job;
    struct ctrun_group *group = open_two(rank);
    int rc;

    last.first = last.last;
    CHECK(run_job(group, rank, 2, &first) == 0);
    expect_a_strike(group, rank, job);
    rc = run_job(group, rank, 2, &last);
    ctrun_group_close(group);
    return judge(job, rank, rc);
}

/* Each rank of two loads its part of what three have saved, with a barrier after each tensor. */
static int load_and_judge(int rank, void *context)
{
    const struct job *job = context;
    struct ctrun_group *group = open_two(rank);
    struct ctrun_checkpoint *checkpoint;
    struct ctrun_error err;
    struct part part;
    int rc = 0;

    expect_a_strike(group, rank, job);
    fault.count = 0;
    fault.reads = true;
    fault.signal = job->signal;
    fault.at = rank == job->victim ? job->at : 0;
    CHECK_OK(ctrun_checkpoint_open(&checkpoint, directory, &err));
    cut(&part, rank, 2);
    for (int t = 0; t < TENSORS && rc == 0; t++) {
        CHECK_OK(ctrun_checkpoint_load(checkpoint, &part.tensors[t], &err));
        rc = ctrun_barrier(group, NULL, &told);
    }
    fault.at = 0;
    ctrun_checkpoint_close(checkpoint);
    ctrun_group_close(group);
    return judge(job, rank, rc);
}

static void start_strike(struct strike *strike)
{
    (void)ct_copy(strike->directory, sizeof strike->directory, directory);
    strike->ranks = ranks_start(2, strike->body, &strike->job);
}

static int on_temporary(const char *path, const struct stat *st, int type,
                        struct FTW *ftw)
{
    return strstr(path, ".tmp") != NULL;
}

/* Waits until the victim has stopped or ended. True: it has stopped. */
static bool await_stop(pid_t pid)
{
    siginfo_t info;

    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT), 0);
    return info.si_code == CLD_STOPPED;
}

/* Returns false if the victim had made all its calls before. */
static bool finish_strike(struct strike *strike)
{
    const int victim = strike->job.victim;
    const bool saves = strike->body == save_and_judge;
    const pid_t pid = ranks_pid(strike->ranks, victim);
    bool was_struck;
    int status, statuses[2];

    (void)ct_copy(directory, sizeof directory, strike->directory);
    assert_int_equal(waitpid(ranks_pid(strike->ranks, !victim), &status, 0),
                     ranks_pid(strike->ranks, !victim));
    if (!WIFEXITED(status) || (WEXITSTATUS(status) && WEXITSTATUS(status) != UNHARMED))
        fail_msg("rank %d, strike at %u: status %#x", !victim, strike->job.at,
                 (unsigned)status);
    assert_in_range(load_all(3), status && saves ? 2 : 1, 2);
    was_struck = status == 0;
    if (strike->job.signal == SIGSTOP) {
        /* A victim that was only late is named, too. */
        was_struck = await_stop(pid) && was_struck;
        (void)kill(pid, SIGCONT);
    }
    (void)ranks_finish(strike->ranks, statuses);
    if (strike->job.signal != SIGSTOP && status == 0)
        assert_int_equal(WTERMSIG(statuses[victim]), SIGKILL);
    else
        assert_int_equal(WEXITSTATUS(statuses[victim]), STRUCK);
    assert_in_range(load_all(3), 1, 2);
    if (saves)
        save_alone(3, 3);
    assert_int_equal(nftw(directory, on_temporary, 8, FTW_PHYS), 0);
    assert_int_equal(clear(NULL), 0);
    return was_struck;
}

static struct {
    struct strike list[STRIKES_MAX];
    unsigned count;
} strikes;

/* Starts a world for each fault: at the calls 1, 1 + stride and so on, of one rank and of the
 * other. */
static void add_strikes(int number, bool is_async, ranks_fn *strike_body,
                        unsigned stride)
{
    const unsigned last = strike_body == save_and_judge ? SAVE_CALLS : LOAD_CALLS;
    struct job saved = job_of(1, 1);

    for (unsigned i = 0; i < 2 * last; i += stride) {
        struct strike *strike = &strikes.list[strikes.count++];

        *strike = (struct strike){.job = job_of(1, 2), .body = strike_body};
        strike->job.victim = (int)(i % 2);
        strike->job.at = 1 + i / 2;
        strike->job.signal = number;
        strike->job.options.async = is_async;
        if (strike_body == load_and_judge)
            assert_int_equal(ranks_run(3, body, &saved), 0);
        start_strike(strike);
        assert_int_equal(setup(NULL), 0);
    }
}

/* All these worlds run at the same time, because they mostly wait. */
static void finish_strikes(void)
{
    unsigned struck = 0, last = 0;
    char fresh[sizeof directory];

    (void)ct_copy(fresh, sizeof fresh, directory);
    for (unsigned i = 0; i < strikes.count; i++) {
        const bool was_struck = finish_strike(&strikes.list[i]);

        struck += was_struck;
        if (was_struck && strikes.list[i].job.at > last)
            last = strikes.list[i].job.at;
    }
    assert_true(struck >= strikes.count / 4);
    /* No call was left out. */
    assert_true(last < strikes.list[strikes.count - 1].job.at);
    strikes.count = 0;
    (void)ct_copy(directory, sizeof directory, fresh);
}

TEST_AROUND(a_rank_killed_at_any_call_is_named_and_harms_nothing, setup, clear)
{
    add_strikes(SIGKILL, false, save_and_judge, 1);
    finish_strikes();
}

TEST_AROUND(a_rank_stopped_at_any_call_is_named_and_harms_nothing, setup, clear)
{
    add_strikes(SIGSTOP, false, save_and_judge, 1);
    finish_strikes();
}

TEST_AROUND(a_rank_killed_or_stopped_in_the_background_is_named, setup, clear)
{
    const unsigned stride = getenv("CTRUN_TEST_STRIKES") ? 1 : 5;

    add_strikes(SIGKILL, true, save_and_judge, stride);
    add_strikes(SIGSTOP, true, save_and_judge, stride);
    finish_strikes();
}

TEST_AROUND(a_rank_killed_or_stopped_while_it_loads_is_named, setup, clear)
{
    const unsigned stride = getenv("CTRUN_TEST_STRIKES") ? 1 : 3;

    add_strikes(SIGKILL, false, load_and_judge, stride);
    add_strikes(SIGSTOP, false, load_and_judge, stride);
    finish_strikes();
}

/* Any call may fail: either the save returns the error, or the checkpoint is complete. */
TEST_AROUND(a_failing_call_is_told_and_harms_nothing, setup, clear)
{
    unsigned failed = 0;

    for (unsigned at = 1; at < 40; at++) {
        struct job job = job_of(1, 2);
        int rc;

        job.victim = 0;
        job.at = at;
        job.error = EIO;
        rc = run_job(NULL, 0, 1, &job);
        if (rc < 0)
            assert_int_equal(rc, -EIO);
        failed += rc < 0;
        assert_in_range(load_all(1), rc < 0 ? 1 : 2, 2);
        memset(&fault, 0, sizeof fault);
        save_alone(3, 3);
        assert_int_equal(load_all(1), 3);
        start_anew();
    }
    assert_true(failed > 5);
}

TEST_AROUND(the_manifest_is_named_after_everything_is_on_the_disk, setup, clear)
{
    char *at;

    memset(&fault, 0, sizeof fault);
    save_alone(1, 1);
    at = strstr(fault.trace, "write ");
    /* The shard is synced and named, its folder is synced, then the outer folder. */
    assert_non_null(at);
    at = strstr(at,
                "fsync unlink linkat rename fsync fsync write fsync unlink linkat NAME "
                "fsync ");
    if (!at)
        fail_msg("%s", fault.trace);
}

TEST_AROUND(the_newest_stay, setup, clear)
{
    struct job job = job_of(1, 5);

    job.options.keep = 2;
    assert_int_equal(run_job(NULL, 0, 1, &job), 0);
    assert_int_equal(count_entries(directory), 2);
    job = job_of(6, 9);
    job.options.keep = 0;
    assert_int_equal(run_job(NULL, 0, 1, &job), 0);
    assert_int_equal(count_entries(directory), 6);
    assert_int_equal(load_all(1), 9);
}

TEST_AROUND(what_others_put_beside_it_stays, setup, clear)
{
    char path[256];

    save_alone(1, 1);
    path_of(path, 1, "notes.txt");
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    save_alone(2, 5);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(load_all(1), 5);
}

/* The other folder has the same number, and does not count. */
TEST_AROUND(a_copy_of_the_newest_beside_it_does_not_remove_it, setup, clear)
{
    struct job job = job_of(7, 7);
    char path[256];

    save_alone(6, 6);
    (void)ct_format(path, sizeof path, "%s/step-7", directory);
    assert_int_equal(mkdir(path, 0777), 0);
    job.options.keep = 1;
    assert_int_equal(run_job(NULL, 0, 1, &job), 0);
    assert_int_equal(load_all(1), 7);
    assert_int_equal(count_entries(directory), 2);
}

TEST_AROUND(the_same_step_again_replaces_it, setup, clear)
{
    char path[256];
    struct job job = job_of(7, 7);

    save_alone(7, 7);
    assert_int_equal(ranks_run(2, body, &job), 0);
    assert_int_equal(load_all(1), 7);
    path_of(path, 7, "");
    assert_int_equal(count_entries(path), 3); /* two shards and the manifest */
}

TEST_AROUND(an_earlier_step_than_the_newest_is_refused, setup, clear)
{
    struct ctrun_shards *shards;
    struct ctrun_error err;
    struct part part;

    save_alone(8, 8);
    cut(&part, 0, 1);
    assert_int_equal(ctrun_shards_open(&shards, directory, NULL, NULL, &err), 0);
    assert_int_equal(save(shards, &part, 7, &err), -EEXIST);
    assert_non_null(strstr(err.text, "step 8 is there already"));
    ctrun_shards_close(shards);
    assert_int_equal(load_all(1), 8);
}

/* No room is left in the path for the folder of a step. */
TEST_AROUND(a_shard_that_another_run_has_removed_is_told, setup, clear)
{
    struct ctrun_shards *shards;
    struct ctrun_error err;
    struct part part;

    cut(&part, 0, 1);
    assert_int_equal(ctrun_shards_open(&shards, directory, NULL, NULL, &err), 0);
    fault.removes = true;
    assert_int_equal(save(shards, &part, 1, &err), -ENOENT);
    fault.removes = false;
    assert_non_null(strstr(err.text, "rank 0 does not see: "));
    assert_non_null(strstr(err.text, "a folder that no other run saves in"));
    ctrun_shards_close(shards);
}

TEST_AROUND(a_folder_with_too_long_a_name_is_told, setup, clear)
{
    char path[PATH_MAX];
    struct ctrun_shards *shards;
    struct ctrun_error err;
    struct part part;
    size_t used = (size_t)snprintf(path, sizeof path, "%s", directory);

    cut(&part, 0, 1);
    (void)mkdir(path, 0700);
    while (used < PATH_MAX - 20) {
        const size_t more = PATH_MAX - 10 - used < 200 ? PATH_MAX - 10 - used : 200;

        path[used] = '/';
        memset(path + used + 1, 'a', more - 1);
        path[used += more] = '\0';
        assert_int_equal(mkdir(path, 0700), 0);
    }
    assert_int_equal(ctrun_shards_open(&shards, path, NULL, NULL, &err), 0);
    assert_int_equal(save(shards, &part, 1, &err), -ENAMETOOLONG);
    ctrun_shards_close(shards);
}

/* For example a checkpoint of one file. */
TEST_AROUND(a_file_in_place_of_the_directory_is_told_at_once, setup, clear)
{
    struct ctrun_shards *shards;
    struct ctrun_error err;
    char path[96];

    (void)ct_format(path, sizeof path, "%s/file", directory);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    assert_int_equal(ctrun_shards_open(&shards, path, NULL, NULL, &err), -ENOTDIR);
    assert_null(shards);
    assert_non_null(strstr(err.text, path));
}

TEST_AROUND(a_directory_that_cannot_be_written_is_told_at_once, setup, clear)
{
    struct ctrun_shards *shards;
    int status;
    pid_t pid;

    assert_int_equal(chmod(directory, 0555), 0);
    if ((pid = fork()) == 0) {
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
            _exit(2);
        _exit(ctrun_shards_open(&shards, directory, NULL, NULL, NULL) != -EACCES);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(chmod(directory, 0700), 0);
}

TEST_AROUND(in_the_background_data_may_change_and_errors_come_later, setup, clear)
{
    struct ctrun_shards_options options = CTRUN_SHARDS_OPTIONS_INIT;
    struct ctrun_shards *shards;
    struct ctrun_error err;
    struct part part;

    options.async = true;
    cut(&part, 0, 1);
    assert_int_equal(ctrun_shards_open(&shards, directory, NULL, &options, &err), 0);
    assert_int_equal(save(shards, &part, 1, &err), 0);
    memset(part.data, 0xff, sizeof part.data);
    assert_int_equal(ctrun_shards_wait(shards, &err), 0);
    assert_int_equal(load_all(1), 1);
    fault.count = 0;
    fault.at = 4;
    fault.error = ENOSPC;
    assert_int_equal(save(shards, &part, 2, &err), 0);
    assert_int_equal(save(shards, &part, 3, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "step 2"));
    assert_int_equal(save(shards, &part, 3, &err), 0);
    ctrun_shards_close(shards);
    assert_int_equal(load_all(1), 3);
}

TEST_AROUND(ranks_save_in_the_background_together, setup, clear)
{
    struct job job = three_steps;

    job.options.async = true;
    assert_int_equal(ranks_run(3, body, &job), 0);
    assert_int_equal(load_all(2), 3);
}

static size_t slurp(const char *path, uint8_t *to, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, to, size);

    assert_true(n > 0);
    close(fd);
    return (size_t)n;
}

static void spill(const char *path, const void *data, size_t length)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

    assert_int_equal(__real_write(fd, data, length), length);
    close(fd);
}

/* Opens and loads all tensors. 0, or the first error. */
static int load_code(struct ctrun_error *err)
{
    struct ctrun_checkpoint *checkpoint;
    struct part part;
    int rc = ctrun_checkpoint_open(&checkpoint, directory, err);

    if (rc < 0)
        return rc;
    cut(&part, 0, 1);
    for (int t = 0; t < TENSORS && rc == 0; t++)
        rc = ctrun_checkpoint_load(checkpoint, &part.tensors[t], err);
    ctrun_checkpoint_close(checkpoint);
    return rc;
}

TEST_AROUND(every_damaged_or_missing_byte_is_noticed, setup, clear)
{
    uint8_t bytes[8192];
    char path[256], folder[256], name[256] = "";
    struct ctrun_error err;
    struct dirent *entry;
    DIR *dir;

    save_alone(1, 1);
    path_of(folder, 1, "");
    dir = opendir(folder);
    while ((entry = readdir(dir))) {
        size_t length;
        if (entry->d_name[0] == '.')
            continue;
        (void)ct_copy(name, sizeof name, entry->d_name);
        path_of(path, 1, name);
        length = slurp(path, bytes, sizeof bytes);
        for (size_t i = 0; i < length; i++) {
            bytes[i] ^= 0x20;
            spill(path, bytes, length);
            assert_int_equal(load_code(&err), CTRUN_E_BAD_CHECKPOINT);
            bytes[i] ^= 0x20;
        }
        for (size_t i = 0; i < length; i += 7) {
            spill(path, bytes, i);
            assert_int_equal(load_code(&err), CTRUN_E_BAD_CHECKPOINT);
        }
        spill(path, bytes, length);
        assert_int_equal(load_code(&err), 0);
    }
    closedir(dir);
    assert_int_equal(__real_unlink(path), 0);
    if (strstr(name, "shard-")) {
        assert_int_equal(load_code(&err), CTRUN_E_BAD_CHECKPOINT);
        assert_non_null(strstr(err.text, name));
    } else {
        assert_int_equal(load_code(&err), -ENOENT);
    }
}

TEST_AROUND(module_prefix_is_added_or_dropped, setup, clear)
{
    struct ctrun_tensor tensor = CTRUN_TENSOR_INIT;
    struct ctrun_checkpoint *checkpoint;
    struct ctrun_shards *shards;
    struct ctrun_error err;
    float value = 3;

    tensor.name = "module.a";
    tensor.data = &value;
    assert_int_equal(ctrun_shards_open(&shards, directory, NULL, NULL, &err), 0);
    assert_int_equal(ctrun_shards_save(shards, 1, &tensor, 1, NULL, 0, &err), 0);
    ctrun_shards_close(shards);
    value = 0;
    tensor.name = "a";
    assert_int_equal(ctrun_checkpoint_open(&checkpoint, directory, &err), 0);
    assert_int_equal(ctrun_checkpoint_load(checkpoint, &tensor, &err), 0);
    assert_true(value == 3);
    tensor.dtype = CTRUN_I32;
    assert_int_equal(ctrun_checkpoint_load(checkpoint, &tensor, &err),
                     CTRUN_E_BAD_CHECKPOINT);
    assert_non_null(strstr(err.text, "is F32 () there, I32 () is wanted"));
    tensor.name = "b";
    assert_int_equal(ctrun_checkpoint_load(checkpoint, &tensor, &err),
                     CTRUN_E_BAD_CHECKPOINT);
    ctrun_checkpoint_close(checkpoint);
}

TEST_AROUND(a_folder_without_a_checkpoint_is_like_no_file, setup, clear)
{
    struct ctrun_checkpoint *checkpoint;
    struct ctrun_error err;

    assert_int_equal(ctrun_checkpoint_open(&checkpoint, directory, &err), -ENOENT);
    assert_null(checkpoint);
}

/* Pages of `data` that are in memory. */
static size_t count_pages(const uint8_t *data, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t skip = (page - (uintptr_t)data % page) % page;
    const size_t pages = (bytes - skip) / page;
    unsigned char *here = calloc(pages, 1);
    size_t count = 0;

    assert_non_null(here);
    assert_int_equal(mincore((void *)(uintptr_t)(data + skip), pages * page, here), 0);
    for (size_t i = 0; i < pages; i++)
        count += here[i] & 1;
    free(here);
    return count;
}

enum {
    LARGE = 3 << 20
};

static struct ctrun_tensor large_tensor(void)
{
    static uint8_t data[LARGE];
    struct ctrun_tensor tensor = CTRUN_TENSOR_INIT;

    tensor.name = "large";
    tensor.dtype = CTRUN_U8;
    tensor.dims = 1;
    tensor.sizes[0] = LARGE;
    tensor.data = data;
    return tensor;
}

TEST_AROUND(reserved_memory_is_there_before_the_save_and_is_what_it_uses, setup, clear)
{
    struct ctrun_shards_options options = CTRUN_SHARDS_OPTIONS_INIT;
    const struct ctrun_metadata metadata[] = {{"position", "1"}};
    const struct ctrun_tensor tensor = large_tensor();
    struct ctrun_shards *shards;
    const uint8_t *reserved;
    struct ctrun_error err;

    options.async = true;
    assert_int_equal(ctrun_shards_open(&shards, directory, NULL, &options, &err), 0);
    assert_int_equal(ctrun_shards_reserve(shards, &tensor, 1, &err), 0);
    ct_copy_settle(&shards->copy, true);
    reserved = shards->copy.data;
    assert_in_range(count_pages(reserved, shards->copy.bytes),
                    LARGE / sysconf(_SC_PAGESIZE), SIZE_MAX);
    assert_int_equal(count_entries(directory), 0); /* nothing is saved */
    assert_int_equal(ctrun_shards_save(shards, 1, &tensor, 1, metadata, 1, &err), 0);
    assert_ptr_equal(shards->copy.data, reserved);
    ctrun_shards_close(shards);
}

TEST_AROUND(a_save_or_a_close_need_not_wait_for_reserved_memory, setup, clear)
{
    struct ctrun_shards_options options = CTRUN_SHARDS_OPTIONS_INIT;
    const struct ctrun_tensor tensor = large_tensor();
    struct ctrun_shards *shards;
    struct ctrun_error err;
    struct part part;

    options.async = true;
    cut(&part, 0, 1);
    assert_int_equal(ctrun_shards_open(&shards, directory, NULL, &options, &err), 0);
    assert_int_equal(ctrun_shards_reserve(shards, &tensor, 1, &err), 0);
    assert_int_equal(ctrun_shards_wait(shards, &err), 0);
    /* Nor does a close without a save. */
    assert_true(shards->copy.has_thread);
    assert_int_equal(save(shards, &part, 1, &err), 0);
    assert_int_equal(ctrun_shards_reserve(shards, &tensor, 1, &err), 0);
    ctrun_shards_close(shards);
    assert_int_equal(load_all(1), 1);
}

static struct {
    int until[2]; /* a pipe that is closed at the end */
    bool is_on;
    atomic_bool gave_up;
} hold;

/* Holds a thread that lowers its priority, as if it got no CPU. */
int setpriority(int which, id_t who, int priority);
int setpriority(int which, id_t who, int priority)
{
    struct pollfd entry = {.fd = hold.until[0], .events = POLLIN};

    if (hold.is_on && poll(&entry, 1, RANKS_DEADLINE_MS) == 0)
        atomic_store(&hold.gave_up, true);
    return 0;
}

TEST_AROUND(a_save_does_not_wait_for_a_thread_that_does_not_run, setup, clear)
{
    struct ctrun_shards_options options = CTRUN_SHARDS_OPTIONS_INIT;
    const struct ctrun_tensor tensor = large_tensor();
    struct ctrun_shards *shards;
    struct ctrun_error err;
    struct part part;

    options.async = true;
    cut(&part, 0, 1);
    assert_int_equal(pipe(hold.until), 0);
    hold.is_on = true;
    assert_int_equal(ctrun_shards_open(&shards, directory, NULL, &options, &err), 0);
    assert_int_equal(ctrun_shards_reserve(shards, &tensor, 1, &err), 0);
    assert_int_equal(save(shards, &part, 1, &err), 0);
    assert_int_equal(ctrun_shards_wait(shards, &err), 0);
    assert_int_equal(load_all(1), 1);
    assert_false(atomic_load(&hold.gave_up));
    close(hold.until[1]);
    ctrun_shards_close(shards);
    hold.is_on = false;
    close(hold.until[0]);
}

RANKS_TEST_AROUND(ranks_reserve_what_each_will_write, 2, setup, clear)
{
    struct ctrun_shards_options options = CTRUN_SHARDS_OPTIONS_INIT;
    struct ctrun_group *group = ranks_open(rank, "a", NULL);
    struct ctrun_tensor tensor = large_tensor();
    struct ctrun_shards *shards;
    struct ctrun_error err;

    options.async = true;
    CHECK_OK(ctrun_shards_open(&shards, directory, group, &options, &err));
    CHECK_OK(ctrun_shards_reserve(shards, &tensor, 1, &err));
    /* One of the two ranks writes the part that both have. */
    CHECK((shards->copy.bytes > LARGE) == (rank == 0));
    tensor.sizes[0] += rank;
    CHECK(ctrun_shards_reserve(shards, &tensor, 1, &err) == CTRUN_E_MISMATCH);
    ctrun_shards_close(shards);
    ctrun_group_close(group);
    return 0;
}

TEST_AROUND(every_failing_allocation_is_survived, setup, clear)
{
    int rc = -1;

    save_alone(1, 1);
    for (size_t n = 1; rc < 0; n++) {
        struct ctrun_shards_options options = CTRUN_SHARDS_OPTIONS_INIT;
        struct ctrun_shards *shards;
        struct ctrun_error err;
        struct part part;

        options.async = true;
        cut(&part, 0, 1);
        ct_alloc_fail_at(n);
        rc = ctrun_shards_open(&shards, directory, NULL, &options, &err);
        if (rc == 0)
            rc = ctrun_shards_reserve(shards, part.tensors, TENSORS, &err);
        if (rc == 0)
            rc = save(shards, &part, 2, &err);
        if (rc == 0)
            rc = ctrun_shards_wait(shards, &err);
        ct_alloc_fail_at(0);
        if (rc < 0)
            assert_int_equal(rc, -ENOMEM);
        ctrun_shards_close(shards);
        assert_int_equal(load_all(1), rc < 0 ? 1 : 2);
    }
}
