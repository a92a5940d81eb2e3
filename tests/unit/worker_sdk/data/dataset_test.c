/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets from disk: good ones, and one test for each way in which a file can be bad. */
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/include/ctrun.h"

enum {
    ROWS = 3,
    COLUMNS = 2,
    COUNT = 5,
    PIXELS = ROWS * COLUMNS
};

/* A directory with a small good data set (plain images, gzip labels), which a test may damage. */
struct folder {
    char path[64];
    uint8_t images[16 + COUNT * PIXELS];
    uint8_t labels[8 + COUNT];
};

static void file_name(const struct folder *folder, const char *name, char *out,
                      size_t size)
{
    assert_true(ct_format(out, size, "%s/%s", folder->path, name) > 0);
}

static void write_file(const struct folder *folder, const char *name, const void *data,
                       size_t length)
{
    char path[256];
    FILE *f;

    file_name(folder, name, path, sizeof path);
    assert_non_null(f = fopen(path, "we"));
    assert_int_equal(fwrite(data, 1, length, f), length);
    assert_int_equal(fclose(f), 0);
}

static void write_gzip(const struct folder *folder, const char *name, const void *data,
                       size_t length)
{
    char path[256];
    gzFile f;

    file_name(folder, name, path, sizeof path);
    assert_non_null(f = gzopen(path, "wb"));
    assert_int_equal(gzwrite(f, data, (unsigned)length), length);
    assert_int_equal(gzclose(f), Z_OK);
}

static void remove_file(const struct folder *folder, const char *name)
{
    char path[256];

    file_name(folder, name, path, sizeof path);
    (void)unlink(path); /* it may not exist */
}

static int setup(void **state)
{
    static const uint8_t images_header[16] = {0, 0, 8, 3,    0, 0, 0, COUNT,
                                              0, 0, 0, ROWS, 0, 0, 0, COLUMNS};
    static const uint8_t labels_header[8] = {0, 0, 8, 1, 0, 0, 0, COUNT};
    struct folder *folder = calloc(1, sizeof *folder);

    (void)ct_copy(folder->path, sizeof folder->path, "/tmp/ctrun_loader_XXXXXX");
    if (!mkdtemp(folder->path))
        return -1;
    memcpy(folder->images, images_header, sizeof images_header);
    memcpy(folder->labels, labels_header, sizeof labels_header);
    for (int i = 0; i < COUNT * PIXELS; i++)
        folder->images[16 + i] = (uint8_t)(i * 8);
    for (int i = 0; i < COUNT; i++)
        folder->labels[8 + i] = (uint8_t)(9 - i);
    write_file(folder, "train-images-idx3-ubyte", folder->images,
               sizeof folder->images);
    write_gzip(folder, "train-labels-idx1-ubyte.gz", folder->labels,
               sizeof folder->labels);
    *state = folder;
    return 0;
}

static int teardown(void **state)
{
    struct folder *folder = *state;

    remove_file(folder, "train-images-idx3-ubyte");
    remove_file(folder, "train-images-idx3-ubyte.gz");
    remove_file(folder, "train-labels-idx1-ubyte.gz");
    (void)rmdir(folder->path);
    free(folder);
    return 0;
}

/* Loads and expects E_BAD_DATA with both texts in the message. */
static void expect_bad(const struct folder *folder, const char *file, const char *why)
{
    struct ctrun_dataset set = CTRUN_DATASET_INIT;
    struct ctrun_error err = {.code = 0};

    assert_int_equal(ctrun_dataset_load(&set, folder->path, CTRUN_TRAIN, &err),
                     CTRUN_E_BAD_DATA);
    assert_null(set.images);
    if (!strstr(err.text, file) || !strstr(err.text, why))
        fail_msg("'%s' should name '%s' and say '%s'", err.text, file, why);
}

TEST_AROUND(plain_and_gzip_files_load, setup, teardown)
{
    struct folder *folder = *state;
    struct ctrun_dataset set = CTRUN_DATASET_INIT;
    struct ctrun_error err;

    assert_int_equal(ctrun_dataset_load(&set, folder->path, CTRUN_TRAIN, &err), 0);
    assert_int_equal(set.count, COUNT);
    assert_int_equal(set.rows, ROWS);
    assert_int_equal(set.columns, COLUMNS);
    assert_memory_equal(set.images, folder->images + 16, COUNT * PIXELS);
    assert_memory_equal(set.labels, folder->labels + 8, COUNT);
    ctrun_dataset_free(&set);
    assert_null(set.images);
}

TEST_AROUND(gather_normalises_chosen_images, setup, teardown)
{
    struct folder *folder = *state;
    static const uint64_t chosen[] = {4, 0, 4};
    struct ctrun_dataset set = CTRUN_DATASET_INIT;
    float x[3 * PIXELS];
    uint8_t y[3];

    assert_int_equal(ctrun_dataset_load(&set, folder->path, CTRUN_TRAIN, NULL), 0);
    ctrun_dataset_gather(&set, chosen, 3, 0.1307f, 0.3081f, x, y);
    for (size_t b = 0; b < 3; b++) {
        for (size_t p = 0; p < PIXELS; p++) {
            float pixel = set.images[chosen[b] * PIXELS + p];

            assert_true(x[b * PIXELS + p] == (pixel / 255.0f - 0.1307f) / 0.3081f);
        }
        assert_int_equal(y[b], 9 - chosen[b]);
    }
    ctrun_dataset_free(&set);
}

TEST_AROUND(missing_files_say_what_to_do, setup, teardown)
{
    struct folder *folder = *state;

    remove_file(folder, "train-images-idx3-ubyte");
    expect_bad(folder, "train-images-idx3-ubyte", "install dataset-fashion-mnist");
}

TEST_AROUND(other_kinds_of_file_are_refused, setup, teardown)
{
    struct folder *folder = *state;
    char path[256];

    write_file(folder, "train-images-idx3-ubyte", "<html>", 6);
    expect_bad(folder, "train-images-idx3-ubyte",
               "not an IDX file: it begins with 3c 68");
    write_file(folder, "train-images-idx3-ubyte", folder->labels,
               sizeof folder->labels);
    expect_bad(folder, "train-images-idx3-ubyte", "1 dimensions where 3 are expected");
    folder->images[2] = 0x0d;
    write_file(folder, "train-images-idx3-ubyte", folder->images,
               sizeof folder->images);
    expect_bad(folder, "train-images-idx3-ubyte", "byte 2: element type 0x0d");
    remove_file(folder, "train-images-idx3-ubyte");
    file_name(folder, "train-images-idx3-ubyte", path, sizeof path);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_bad(folder, "train-images-idx3-ubyte", "not a regular file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* opening it must not block either */
    expect_bad(folder, "train-images-idx3-ubyte", "not a regular file");
}

TEST_AROUND(every_truncation_is_noticed, setup, teardown)
{
    struct folder *folder = *state;

    for (size_t length = 0; length < sizeof folder->images; length++) {
        write_file(folder, "train-images-idx3-ubyte", folder->images, length);
        expect_bad(folder, "train-images-idx3-ubyte", "fetch the data set again");
    }
    expect_bad(folder, "train-images-idx3-ubyte",
               "ends at byte 45, in the data, which reaches to byte 46");
}

TEST_AROUND(truncated_gzip_is_noticed, setup, teardown)
{
    struct folder *folder = *state;
    char path[256];
    uint8_t packed[256];
    FILE *f;
    size_t size;

    file_name(folder, "train-labels-idx1-ubyte.gz", path, sizeof path);
    assert_non_null(f = fopen(path, "re"));
    size = fread(packed, 1, sizeof packed, f);
    fclose(f);
    for (size_t length = 0; length < size; length++) {
        write_file(folder, "train-labels-idx1-ubyte.gz", packed, length);
        expect_bad(folder, "train-labels-idx1-ubyte.gz", "fetch the data set again");
    }
    packed[size - 6] ^= 1; /* the CRC */
    write_file(folder, "train-labels-idx1-ubyte.gz", packed, size);
    expect_bad(folder, "train-labels-idx1-ubyte.gz", "incorrect data check");
}

/* Another copy of the file does not help then, and the message does not advise it. */
TEST_AROUND(a_failed_read_is_named, setup, teardown)
{
    struct folder *folder = *state;
    struct ctrun_dataset set = CTRUN_DATASET_INIT;
    struct ctrun_error err;
    char path[256];

    remove_file(folder, "train-images-idx3-ubyte");
    file_name(folder, "train-images-idx3-ubyte", path, sizeof path);
    assert_int_equal(symlink("/proc/self/mem", path), 0); /* nothing is at address 0 */
    assert_int_equal(ctrun_dataset_load(&set, folder->path, CTRUN_TRAIN, &err),
                     CTRUN_E_BAD_DATA);
    assert_non_null(strstr(err.text, "byte 0, in the header: Input/output error"));
    assert_null(strstr(err.text, "fetch the data set again"));
}

TEST_AROUND(lying_header_allocates_nothing, setup, teardown)
{
    struct folder *folder = *state;

    memset(folder->images + 4, 0xff, 12);
    write_file(folder, "train-images-idx3-ubyte", folder->images,
               sizeof folder->images);
    expect_bad(folder, "train-images-idx3-ubyte", "byte 4: dimension 0 is 4294967295");
    memset(folder->images + 4, 0, 4);
    write_file(folder, "train-images-idx3-ubyte", folder->images,
               sizeof folder->images);
    expect_bad(folder, "train-images-idx3-ubyte", "byte 4: dimension 0 is 0");
}

TEST_AROUND(trailing_bytes_are_refused, setup, teardown)
{
    struct folder *folder = *state;
    uint8_t longer[sizeof folder->images + 1] = {0};

    memcpy(longer, folder->images, sizeof folder->images);
    write_file(folder, "train-images-idx3-ubyte", longer, sizeof longer);
    expect_bad(folder, "train-images-idx3-ubyte", "continues behind byte 46");
}

TEST_AROUND(labels_that_do_not_fit_are_refused, setup, teardown)
{
    struct folder *folder = *state;

    folder->labels[8 + 3] = 10;
    write_gzip(folder, "train-labels-idx1-ubyte.gz", folder->labels,
               sizeof folder->labels);
    expect_bad(folder, "train-labels-idx1-ubyte.gz", "byte 11: label 10 of image 3");
    folder->labels[7] = COUNT - 1;
    write_gzip(folder, "train-labels-idx1-ubyte.gz", folder->labels,
               sizeof folder->labels - 1);
    expect_bad(folder, "train-labels-idx1-ubyte.gz", "4 labels for 5 images");
}

TEST(debian_fashion_mnist_loads_when_installed)
{
    struct ctrun_dataset set = CTRUN_DATASET_INIT;
    const char *directory = ctrun_dataset_default_directory();

    if (access(directory, R_OK) < 0) {
        print_message("skipped: %s is not installed\n", directory);
        skip();
    }
    assert_int_equal(ctrun_dataset_load(&set, directory, CTRUN_TEST, NULL), 0);
    assert_int_equal(set.count, 10000);
    assert_int_equal(set.rows, 28);
    assert_int_equal(set.columns, 28);
    assert_int_equal(set.labels[0], 9); /* the ankle boot */
    ctrun_dataset_free(&set);
}
