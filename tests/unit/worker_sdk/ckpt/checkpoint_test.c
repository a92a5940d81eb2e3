/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: saved values can be loaded, and each kind of damage has its message. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ckpt/durable.h"
#include "worker_sdk/include/ctrun.h"

static float weight[2][3] = {{1, 2, 3}, {4, 5, -6.5f}};
static int64_t step = 42;
static uint8_t mask[5] = {1, 0, 1, 1, 0};
static const struct ctrun_tensor saved[] = {
    {.size = sizeof(struct ctrun_tensor),
     .name = "mask",
     .dtype = CTRUN_U8,
     .dims = 1,
     .sizes = {5},
     .data = mask},
    {.size = sizeof(struct ctrun_tensor),
     .name = "conv1.weight",
     .dtype = CTRUN_F32,
     .dims = 2,
     .sizes = {2, 3},
     .data = weight},
    {.size = sizeof(struct ctrun_tensor),
     .name = "none",
     .dtype = CTRUN_F32,
     .dims = 1,
     .sizes = {0},
     .data = NULL},
    {.size = sizeof(struct ctrun_tensor),
     .name = "step",
     .dtype = CTRUN_I64,
     .dims = 0,
     .data = &step},
};
enum {
    SAVED = sizeof saved / sizeof *saved
};
static const struct ctrun_metadata saved_metadata[] = {
    {"format", "pt"}, {"note", "quotes \" and\nlines"}};

struct folder {
    char path[64];
    char file[96];
};

static int setup(void **state)
{
    struct folder *folder = calloc(1, sizeof *folder);

    (void)ct_copy(folder->path, sizeof folder->path, "/tmp/ctrun_checkpoint_XXXXXX");
    if (!mkdtemp(folder->path))
        return -1;
    (void)ct_format(folder->file, sizeof folder->file, "%s/model.safetensors",
                    folder->path);
    *state = folder;
    return 0;
}

static int teardown(void **state)
{
    struct folder *folder = *state;
    int rc;

    (void)unlink(folder->file); /* not every story makes one */
    rc = rmdir(folder->path);   /* and no story may leave a temporary file */
    free(folder);
    return rc;
}

static void save(const struct folder *folder)
{
    struct ctrun_error err;
    int rc = ctrun_checkpoint_save(folder->file, saved, SAVED, saved_metadata, 2, &err);

    if (rc < 0)
        fail_msg("save: %s", err.text);
}

/* Before our file gets its name, another thread that writes the same path gives up. */
static char *rival;

static bool may_not_go_on(void *context)
{
    return false;
}

static void *give_up(void *path)
{
    const struct ct_durable_source source = {
        .fd = -1, .length = 1, .may_go_on = may_not_go_on};

    return ct_durable_copy(path, &source, NULL) == -ECANCELED ? path : NULL;
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    pthread_t thread;
    void *result;

    if (rival) {
        assert_int_equal(pthread_create(&thread, NULL, give_up, rival), 0);
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_ptr_equal(result, rival);
    }
    return __real_rename(from, to);
}

static size_t slurp(const char *path, uint8_t *to, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, to, size);

    assert_true(n >= 0);
    close(fd);
    return (size_t)n;
}

static void spill(const char *path, const void *data, size_t length)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_int_equal(write(fd, data, length), length);
    close(fd);
}

/* A file with this header text and `data` zero bytes behind it. */
static void spill_header(const char *path, const char *json, size_t data)
{
    uint8_t bytes[2048] = {0};
    size_t length = strlen(json);

    assert_true(8 + length + data <= sizeof bytes);
    bytes[0] = (uint8_t)length;
    bytes[1] = (uint8_t)(length >> 8);
    memcpy(bytes + 8, json, length);
    spill(path, bytes, 8 + length + data);
}

static void expect_bad(const struct folder *folder, const char *why)
{
    struct ctrun_checkpoint *checkpoint;
    struct ctrun_error err = {.code = 0};

    assert_int_equal(ctrun_checkpoint_open(&checkpoint, folder->file, &err),
                     CTRUN_E_BAD_CHECKPOINT);
    assert_null(checkpoint);
    if (!strstr(err.text, folder->file) || !strstr(err.text, why) ||
        !strstr(err.text, "resume from another one"))
        fail_msg("'%s' should name the file and say '%s' and what to do", err.text,
                 why);
}

TEST_AROUND(saved_tensors_and_metadata_come_back, setup, teardown)
{
    struct folder *folder = *state;
    struct ctrun_checkpoint *checkpoint;
    float loaded[2][3] = {{0}};
    int64_t loaded_step = 0;
    uint8_t loaded_mask[5] = {0};
    struct ctrun_tensor to = saved[1];

    save(folder);
    assert_int_equal(ctrun_checkpoint_open(&checkpoint, folder->file, NULL), 0);
    to.data = loaded;
    assert_int_equal(ctrun_checkpoint_load(checkpoint, &to, NULL), 0);
    assert_memory_equal(loaded, weight, sizeof weight);
    to = saved[3];
    to.data = &loaded_step;
    assert_int_equal(ctrun_checkpoint_load(checkpoint, &to, NULL), 0);
    assert_int_equal(loaded_step, 42);
    to = saved[0];
    to.data = loaded_mask;
    assert_int_equal(ctrun_checkpoint_load(checkpoint, &to, NULL), 0);
    assert_memory_equal(loaded_mask, mask, sizeof mask);
    assert_int_equal(ctrun_checkpoint_load(checkpoint, &saved[2], NULL), 0);
    assert_string_equal(ctrun_checkpoint_metadata(checkpoint, "format"), "pt");
    assert_string_equal(ctrun_checkpoint_metadata(checkpoint, "note"),
                        saved_metadata[1].value);
    assert_null(ctrun_checkpoint_metadata(checkpoint, "absent"));
    ctrun_checkpoint_close(checkpoint);
}

TEST_AROUND(module_prefix_is_added_or_dropped, setup, teardown)
{
    struct folder *folder = *state;
    struct ctrun_checkpoint *checkpoint;
    float value = 3;
    float loaded = 0;
    struct ctrun_tensor tensors[] = {{.size = sizeof(struct ctrun_tensor),
                                      .name = "module.a",
                                      .dtype = CTRUN_F32,
                                      .dims = 0,
                                      .data = &value},
                                     {.size = sizeof(struct ctrun_tensor),
                                      .name = "b",
                                      .dtype = CTRUN_F32,
                                      .dims = 0,
                                      .data = &value}};

    assert_int_equal(ctrun_checkpoint_save(folder->file, tensors, 2, NULL, 0, NULL), 0);
    assert_int_equal(ctrun_checkpoint_open(&checkpoint, folder->file, NULL), 0);
    tensors[0] = (struct ctrun_tensor){.size = sizeof(struct ctrun_tensor),
                                       .name = "a",
                                       .dtype = CTRUN_F32,
                                       .data = &loaded};
    tensors[1] = (struct ctrun_tensor){.size = sizeof(struct ctrun_tensor),
                                       .name = "module.b",
                                       .dtype = CTRUN_F32,
                                       .data = &loaded};
    for (int i = 0; i < 2; i++) {
        loaded = 0;
        assert_int_equal(ctrun_checkpoint_load(checkpoint, &tensors[i], NULL), 0);
        assert_true(loaded == 3);
    }
    ctrun_checkpoint_close(checkpoint);
}

TEST_AROUND(wrong_name_type_or_shape_is_named, setup, teardown)
{
    struct folder *folder = *state;
    struct ctrun_checkpoint *checkpoint;
    struct ctrun_error err;
    struct ctrun_tensor to = saved[1];

    save(folder);
    assert_int_equal(ctrun_checkpoint_open(&checkpoint, folder->file, NULL), 0);
    to.name = "conv9.weight";
    assert_int_equal(ctrun_checkpoint_load(checkpoint, &to, &err),
                     CTRUN_E_BAD_CHECKPOINT);
    assert_non_null(strstr(err.text, "no tensor 'conv9.weight'"));
    to = saved[1];
    to.sizes[1] = 4;
    assert_int_equal(ctrun_checkpoint_load(checkpoint, &to, &err),
                     CTRUN_E_BAD_CHECKPOINT);
    assert_non_null(
        strstr(err.text, "'conv1.weight' is F32 (2, 3) there, F32 (2, 4) is wanted"));
    to = saved[1];
    to.dtype = CTRUN_I32;
    assert_int_equal(ctrun_checkpoint_load(checkpoint, &to, &err),
                     CTRUN_E_BAD_CHECKPOINT);
    assert_non_null(strstr(err.text, "I32 (2, 3) is wanted"));
    ctrun_checkpoint_close(checkpoint);
}

TEST_AROUND(data_are_aligned_for_every_type, setup, teardown)
{
    struct folder *folder = *state;
    uint8_t bytes[4096];
    size_t length;
    size_t header;

    save(folder);
    length = slurp(folder->file, bytes, sizeof bytes);
    header = 8 + bytes[0] + (size_t)bytes[1] * 256;
    assert_int_equal(header % 64, 0);
    assert_int_equal(bytes[8], '{');
    assert_int_equal(length - header, 8 + 24 + 5);
    assert_memory_equal(bytes + header, &step, 8); /* the largest elements come first */
}

TEST_AROUND(every_truncation_is_noticed, setup, teardown)
{
    struct folder *folder = *state;
    uint8_t bytes[4096];
    size_t length;

    save(folder);
    length = slurp(folder->file, bytes, sizeof bytes);
    for (size_t cut = 0; cut < length; cut++) {
        spill(folder->file, bytes, cut);
        expect_bad(folder, "cut off");
    }
    spill(folder->file, bytes, length + 3);
    expect_bad(folder, "3 bytes of data behind the last tensor");
}

TEST_AROUND(a_changed_byte_is_noticed_when_loading, setup, teardown)
{
    struct folder *folder = *state;
    struct ctrun_checkpoint *checkpoint;
    struct ctrun_error err;
    uint8_t bytes[4096];
    float loaded[2][3];
    struct ctrun_tensor to = saved[1];
    size_t length;

    save(folder);
    length = slurp(folder->file, bytes, sizeof bytes);
    bytes[length - 5 - 1] ^= 0x10; /* last byte of conv1.weight */
    spill(folder->file, bytes, length);
    assert_int_equal(ctrun_checkpoint_open(&checkpoint, folder->file, NULL), 0);
    to.data = loaded;
    assert_int_equal(ctrun_checkpoint_load(checkpoint, &to, &err),
                     CTRUN_E_BAD_CHECKPOINT);
    assert_non_null(strstr(
        err.text, "bytes of tensor 'conv1.weight' are not those that were saved"));
    ctrun_checkpoint_close(checkpoint);
}

TEST_AROUND(damaged_headers_are_refused, setup, teardown)
{
#define A(offsets)                                                                     \
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" offsets "}"
#define B(offsets) "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" offsets "}"
    static const struct {
        const char *json;
        size_t data;
        const char *why;
    } cases[] = {
        {"{]", 0, "no JSON from byte 9 on"},
        {"[]", 0, "not one JSON object"},
        {"{} {}", 0, "not one JSON object"},
        {"{\"a\":1}", 0, "'a': not an object"},
        {"{\"a\":{\"dtype\":\"X9\",\"shape\":[],\"data_offsets\":[0,4]}}", 4,
         "missing or unknown"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4,
         "shape is missing or not a list"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
         "not a whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,6]}}", 6,
         "not a whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9e15,9e15],\"data_offsets\":[0,0]}}", 0,
         "its shape is too large"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]"
         "}}",
         1, "more than 8 dimensions"},
        {"{" A("[0]") "}", 8, "data_offsets are not [begin, end]"},
        {"{" A("[8,0]") "}", 8, "data_offsets are not [begin, end]"},
        {"{" A("[0,12]") "}", 12, "length does not fit its shape"},
        {"{" A("[0,8]") "}", 7, "cut off: tensor 'a' ends at byte 8"},
        {"{" A("[4,12]") "}", 12, "unused bytes in front"},
        {"{" A("[0,8]") "," B("[7,11]") "}", 11, "'b': it overlaps another one"},
        {"{" A("[0,8]") "," A("[8,16]") "}", 16, "'a': it is there twice"},
        {"{" A("[0,8]") "}", 9, "1 bytes of data behind the last tensor"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"k\":1}}", 0, "'k' is not text"},
        {"{\"__metadata__\":{\"ctrun.crc32c\":\"0\"}," A("[0,8]") "}", 8,
         "has not one sum"},
    };
    struct folder *folder = *state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spill_header(folder->file, cases[i].json, cases[i].data);
        expect_bad(folder, cases[i].why);
    }
    spill_header(folder->file, "{" A("[0,8]") "," B("[8,12]") "}   ",
                 /* A good header. */
                 12);
    {
        struct ctrun_checkpoint *checkpoint;

        assert_int_equal(ctrun_checkpoint_open(&checkpoint, folder->file, NULL), 0);
        ctrun_checkpoint_close(checkpoint);
    }
}

TEST_AROUND(other_files_are_recognised, setup, teardown)
{
    struct folder *folder = *state;
    struct ctrun_checkpoint *checkpoint;
    struct ctrun_error err;

    assert_int_equal(ctrun_checkpoint_open(&checkpoint, folder->file, &err), -ENOENT);
    assert_non_null(strstr(err.text, folder->file));
    spill(folder->file, "PK\3\4 and so on", 14);
    expect_bad(folder, "torch.save()");
    spill(folder->file, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    expect_bad(folder, "not a safetensors file");
    assert_int_equal(unlink(folder->file), 0);
    assert_int_equal(mkfifo(folder->file, 0600), 0); /* opening it must not block */
    expect_bad(folder, "not a regular file");
}

TEST_AROUND(metadata_that_cannot_be_read_back_are_refused, setup, teardown)
{
    static const struct ctrun_metadata wrong[][2] = {
        {{"a", "1"}, {NULL, "2"}},   {{"a", "1"}, {"b", NULL}},
        {{"a", "1"}, {"a", "2"}},    {{"a", "1"}, {"ctrun.crc32c", "00000000 "}},
        {{"a", "1"}, {"\xff", "2"}}, {{"a", "1"}, {"b", "caf\xe9"}},
    };
    struct folder *folder = *state;
    struct ctrun_shards *shards;
    struct ctrun_error err;

    assert_int_equal(ctrun_shards_open(&shards, folder->path, NULL, NULL, &err), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(
            ctrun_checkpoint_save(folder->file, saved, SAVED, wrong[i], 2, &err),
            -EINVAL);
        assert_non_null(strstr(err.text, "metadata[1]"));
        if (i == 3)
            assert_non_null(strstr(err.text, "'ctrun.crc32c' is reserved"));
        assert_int_equal(ctrun_shards_save(shards, 1, saved, SAVED, wrong[i], 2, &err),
                         -EINVAL);
        assert_non_null(strstr(err.text, "metadata[1]"));
    }
    assert_int_equal(ctrun_checkpoint_save(folder->file, saved, SAVED, NULL, 1, &err),
                     -EINVAL);
    assert_int_equal(ctrun_shards_save(shards, 1, saved, SAVED, NULL, 1, &err),
                     -EINVAL);
    ctrun_shards_close(shards);
}

/* Other readers of safetensors refuse the whole file. */
TEST_AROUND(names_that_are_no_utf8_are_refused, setup, teardown)
{
    const struct folder *folder = *state;
    struct ctrun_tensor tensor = saved[0];
    struct ctrun_error err;

    tensor.name = "caf\xc3\xa9";
    assert_int_equal(ctrun_checkpoint_save(folder->file, &tensor, 1, NULL, 0, &err), 0);
    tensor.name = "caf\xe9";
    assert_int_equal(ctrun_checkpoint_save(folder->file, &tensor, 1, NULL, 0, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "its name is not UTF-8"));
}

/* As root a save to /dev/null would make a file of it. */
TEST_AROUND(what_is_no_file_is_not_replaced, setup, teardown)
{
    const struct folder *folder = *state;
    struct ctrun_error err;
    struct stat st;

    assert_int_equal(mkfifo(folder->file, 0600), 0);
    assert_int_equal(ctrun_checkpoint_save(folder->file, saved, SAVED, NULL, 0, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "model.safetensors is no regular file"));
    assert_int_equal(lstat(folder->file, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
}

TEST_AROUND(failed_save_keeps_the_old_file, setup, teardown)
{
    struct folder *folder = *state;
    struct ctrun_error err;
    struct ctrun_tensor twice[] = {saved[0], saved[0]};
    struct ctrun_tensor wrong = saved[1];
    char nowhere[128];
    struct stat before;
    struct stat after;

    save(folder);
    assert_int_equal(stat(folder->file, &before), 0);
    assert_int_equal(ctrun_checkpoint_save(folder->file, twice, 2, NULL, 0, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "two tensors are called 'mask'"));
    wrong.sizes[0] = -1;
    assert_int_equal(ctrun_checkpoint_save(folder->file, &wrong, 1, NULL, 0, &err),
                     -EINVAL);
    for (size_t n = 1; n <= 4; n++) {
        ct_alloc_fail_at(n);
        assert_int_equal(
            ctrun_checkpoint_save(folder->file, saved, SAVED, NULL, 0, &err), -ENOMEM);
    }
    ct_alloc_fail_at(0);
    (void)ct_format(nowhere, sizeof nowhere, "%s/no/such/dir", folder->path);
    assert_int_equal(ctrun_checkpoint_save(nowhere, saved, SAVED, NULL, 0, &err),
                     -ENOENT);
    assert_non_null(strstr(err.text, nowhere));
    assert_int_equal(stat(folder->file, &after), 0);
    assert_int_equal(before.st_size, after.st_size);
}

TEST_AROUND(saving_again_replaces_the_file, setup, teardown)
{
    struct folder *folder = *state;
    struct ctrun_checkpoint *checkpoint;
    struct ctrun_checkpoint *old;
    struct ctrun_tensor to = saved[3];
    int64_t loaded = 0;

    save(folder);
    assert_int_equal(ctrun_checkpoint_open(&old, folder->file, NULL), 0);
    step = 43;
    save(folder);
    step = 42;
    to.data = &loaded;
    assert_int_equal(ctrun_checkpoint_open(&checkpoint, folder->file, NULL), 0);
    assert_int_equal(ctrun_checkpoint_load(checkpoint, &to, NULL), 0);
    assert_int_equal(loaded, 43);
    ctrun_checkpoint_close(checkpoint);
    /* An open checkpoint can still be read. */
    assert_int_equal(ctrun_checkpoint_load(old, &to, NULL), 0);
    assert_int_equal(loaded, 42);
    ctrun_checkpoint_close(old);
}

/* Saves more than the limit on file sizes allows, in a child; returns its wait status. */
static int save_beyond_limit(const struct folder *folder, void (*on_limit)(int))
{
    static float big[4096];
    const struct ctrun_tensor tensor = {.size = sizeof(struct ctrun_tensor),
                                        .name = "big",
                                        .dtype = CTRUN_F32,
                                        .dims = 1,
                                        .sizes = {4096},
                                        .data = big};
    const struct rlimit limit = {.rlim_cur = 8192, .rlim_max = 8192};
    struct ctrun_error err;
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGXFSZ, on_limit);
        if (setrlimit(RLIMIT_FSIZE, &limit) < 0)
            _exit(99);
        if (ctrun_checkpoint_save(folder->file, &tensor, 1, NULL, 0, &err) != -EFBIG ||
            !strstr(err.text, folder->file))
            _exit(98);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

TEST_AROUND(a_thread_that_gives_up_the_same_file_does_not_harm_it, setup, teardown)
{
    struct folder *folder = *state;

    rival = folder->file;
    save(folder);
    rival = NULL;
    assert_int_equal(access(folder->file, F_OK), 0);
}

TEST_AROUND(a_full_disk_leaves_the_old_file, setup, teardown)
{
    struct folder *folder = *state;
    uint8_t before[4096];
    uint8_t after[4096];
    size_t length;

    save(folder);
    length = slurp(folder->file, before, sizeof before);
    assert_int_equal(save_beyond_limit(folder, SIG_IGN), 0);
    assert_int_equal(slurp(folder->file, after, sizeof after), length);
    assert_memory_equal(after, before, length);
}

/* The limit's signal arrives in the middle of the data, and kills. */
TEST_AROUND(death_while_saving_leaves_nothing, setup, teardown)
{
    struct folder *folder = *state;
    int fd = open(folder->path, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

    if (fd < 0) {
        print_message("skipped: %s has no files without names\n", folder->path);
        skip();
    }
    close(fd);
    save(folder);
    assert_int_equal(WTERMSIG(save_beyond_limit(folder, SIG_DFL)), SIGXFSZ);
    /* teardown asserts that no other file is left */
}
