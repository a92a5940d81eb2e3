/* SPDX-License-Identifier: Apache-2.0 */
/* A data set of images in memory: the pair of IDX files, and batches out of it.
 *
 * A batch of 64 MNIST images costs some 50 microseconds, a thousandth of a training step, so no
 * thread prefetches: handing a batch over would cost as much. */
#include <errno.h>
#include <fcntl.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/data/idx.h"

enum {
    DATASET_CLASSES = 10,
    DATASET_MAX_SIDE = 4096, /* pixels; keeps rows and columns in an int with room */
    DATASET_PATH_MAX = 4096,
};

/* Where the files may lie under the directory: as downloaded, and where torchvision unpacks. */
static const char *const subfolders[] = {"", "MNIST/raw/", "FashionMNIST/raw/"};
static const char *const suffixes[] = {"", ".gz"};

const char *ctrun_dataset_default_directory(void)
{
    return "/usr/share/datasets/fashion-mnist"; /* Debian: dataset-fashion-mnist */
}

/* Opens the file `stem` in the first subfolder that has it, and writes its path to path. */
static int dataset_open(const char *directory, const char *stem, char *path,
                        size_t size, struct ctrun_error *err)
{
    for (size_t i = 0; i < sizeof subfolders / sizeof *subfolders; i++) {
        for (size_t j = 0; j < sizeof suffixes / sizeof *suffixes; j++) {
            int fd;

            if (ct_format(path, size, "%s/%s%s%s", directory, subfolders[i], stem,
                          suffixes[j]) < 0)
                return ct_fail(err, -ENAMETOOLONG,
                               "the name of the data directory is too long: %.64s...",
                               directory);
            fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
            if (fd >= 0)
                return fd;
            if (errno != ENOENT && errno != ENOTDIR)
                return ct_fail(err, CTRUN_E_BAD_DATA, "%s: %s", path, strerror(errno));
        }
    }
    return ct_fail(
        err, CTRUN_E_BAD_DATA,
        "no data set in %s: neither %s nor %s.gz is there; name a directory with "
        "MNIST's or Fashion-MNIST's files, or install dataset-fashion-mnist",
        directory, stem, stem);
}

static int dataset_read(struct ct_idx *out, const char *directory, const char *stem,
                        int dims, char *path, size_t size, struct ctrun_error *err)
{
    int fd = dataset_open(directory, stem, path, size, err);

    return fd < 0 ? fd : ct_idx_read(out, fd, path, dims, err);
}

static int labels_check(const struct ct_idx *labels, const char *path, uint32_t images,
                        struct ctrun_error *err)
{
    if (labels->sizes[0] != images)
        return ct_fail(
            err, CTRUN_E_BAD_DATA,
            "%s: %u labels for %u images: the two files do not belong together", path,
            labels->sizes[0], images);
    for (size_t i = 0; i < labels->length; i++)
        if (labels->data[i] >= DATASET_CLASSES)
            return ct_fail(
                err, CTRUN_E_BAD_DATA,
                "%s: byte %zu: label %u of image %zu is not 0 to 9; fetch the "
                "data set again",
                path, i + 8, labels->data[i], i);
    return 0;
}

int ctrun_dataset_load(struct ctrun_dataset *out, const char *directory,
                       enum ctrun_split split, struct ctrun_error *err)
{
    struct ctrun_dataset found = CTRUN_DATASET_INIT;
    const char *prefix = split == CTRUN_TRAIN ? "train" : "t10k";
    struct ct_idx images = {.dims = 0};
    struct ct_idx labels = {.dims = 0};
    char path[DATASET_PATH_MAX];
    char stem[64];
    int rc;

    if ((rc = ct_sized_write(out, &found, sizeof found, "CTRUN_DATASET_INIT", err)) < 0)
        return ct_wrap(err, "data set"), rc;
    if (!directory)
        return ct_fail_null(err, "directory");
    (void)ct_format(stem, sizeof stem, "%s-images-idx3-ubyte", prefix);
    if ((rc = dataset_read(&images, directory, stem, 3, path, sizeof path, err)) < 0)
        return rc;
    if (images.sizes[1] > DATASET_MAX_SIDE || images.sizes[2] > DATASET_MAX_SIDE) {
        rc = ct_fail(
            err, CTRUN_E_BAD_DATA,
            "%s: its images have %u x %u pixels; at most %d x %d are supported", path,
            images.sizes[1], images.sizes[2], DATASET_MAX_SIDE, DATASET_MAX_SIDE);
        goto fail;
    }
    (void)ct_format(stem, sizeof stem, "%s-labels-idx1-ubyte", prefix);
    if ((rc = dataset_read(&labels, directory, stem, 1, path, sizeof path, err)) < 0 ||
        (rc = labels_check(&labels, path, images.sizes[0], err)) < 0)
        goto fail;
    found.count = images.sizes[0];
    found.rows = (int)images.sizes[1];
    found.columns = (int)images.sizes[2];
    found.images = images.data;
    found.labels = labels.data;
    return ct_sized_write(out, &found, sizeof found, "CTRUN_DATASET_INIT", err);
fail:
    ct_idx_deinit(&labels);
    ct_idx_deinit(&images);
    return rc;
}

void ctrun_dataset_free(struct ctrun_dataset *dataset)
{
    if (!dataset)
        return;
    free(dataset->images);
    free(dataset->labels);
    dataset->count = 0;
    dataset->images = dataset->labels = NULL;
}

void ctrun_dataset_gather(const struct ctrun_dataset *dataset, const uint64_t *indices,
                          size_t batch, float mean, float std, float *x, uint8_t *y)
{
    size_t pixels;
    float table
        [256]; /* a pixel has only 256 values: the division is done once for each value */

    if (!dataset || !indices || !x || !y)
        return;
    pixels = (size_t)dataset->rows * (size_t)dataset->columns;
    for (int i = 0; i < 256; i++)
        table[i] = ((float)i / 255.0f - mean) / std;
    for (size_t b = 0; b < batch; b++) {
        const uint8_t *image = dataset->images + indices[b] * pixels;
        float *to = x + b * pixels;

        for (size_t p = 0; p < pixels; p++)
            to[p] = table[image[p]];
        y[b] = dataset->labels[indices[b]];
    }
}
