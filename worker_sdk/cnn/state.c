/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/cnn/state.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"

enum {
    SECTIONS = 3,
    TENSORS = SECTIONS * CNN_PARAMS,
    NAME_MAX_BYTES = 64,
    TEXT_MAX_BYTES = 32,
    /* A larger position means a damaged file. */
    EPOCH_MAX = 1000000,
};

static const char *const PREFIX[SECTIONS] = {"", "adadelta.square_avg.",
                                             "adadelta.acc_delta."};

/* All tensors of a file, in PyTorch's layout. */
struct image {
    struct cnn_tensors sections[SECTIONS];
    struct ctrun_tensor tensors[TENSORS];
    char names[TENSORS][NAME_MAX_BYTES];
};

static void image_deinit(struct image *image)
{
    for (int s = 0; s < SECTIONS; s++)
        cnn_tensors_deinit(&image->sections[s]);
}

/* The model is in memory in the order that our kernels read; the file has PyTorch's order. An
 * image is a copy of all of it in that order, as large as the model. */
static int image_init(struct image *image)
{
    memset(image, 0, sizeof *image);
    for (int s = 0; s < SECTIONS; s++) {
        if (cnn_tensors_init(&image->sections[s]) < 0) {
            image_deinit(image);
            return -ENOMEM;
        }
        for (enum cnn_param p = 0; p < CNN_PARAMS; p++) {
            const int at = s * CNN_PARAMS + (int)p;
            struct ctrun_tensor *tensor = &image->tensors[at];

            (void)ct_format(image->names[at], NAME_MAX_BYTES, "%s%s", PREFIX[s],
                            cnn_params[p].name);
            *tensor = (struct ctrun_tensor)CTRUN_TENSOR_INIT;
            tensor->name = image->names[at];
            tensor->dtype = CTRUN_F32;
            tensor->dims = cnn_params[p].dims;
            memcpy(tensor->sizes, cnn_params[p].sizes, sizeof cnn_params[p].sizes);
            tensor->data = image->sections[s].of[p];
        }
    }
    return 0;
}

static const struct cnn_tensors *section_of(const struct cnn_model *model, int section)
{
    const struct cnn_tensors *const all[SECTIONS] = {&model->values, &model->square_avg,
                                                     &model->acc_delta};

    return all[section];
}

int cnn_state_check_place(const char *path, struct ctrun_error *err)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    struct stat st;

    if (ct_format(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 1,
                  slash ? path : ".") < 0)
        return ct_fail(err, -ENAMETOOLONG, "%s: the name is too long", path);
    if (access(folder, W_OK | X_OK) < 0)
        return ct_fail(err, -errno, "%s: nothing can be written to %s: %s", path,
                       folder, strerror(errno));
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return ct_fail(err, S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL,
                       "%s is no regular file, and is not replaced by one", path);
    return 0;
}

int cnn_state_save(const char *path, struct ctrun_shards *shards,
                   const struct cnn_model *model, const struct cnn_position *position,
                   const struct cnn_state_info *info, struct ctrun_error *err)
{
    char text[8][TEXT_MAX_BYTES];
    const struct ctrun_metadata metadata[] = {
        {"format", "pt"},        {"producer", "ctrun-mnist"},
        {"seed", text[0]},       {"epoch", text[1]},
        {"start", text[2]},      {"step", text[3]},
        {"loss_sum", text[4]},   {"lr", text[5]},
        {"world_size", text[6]}, {"global_batch", text[7]},
    };
    struct image image;
    int rc;

    if (image_init(&image) < 0)
        return ct_fail(err, -ENOMEM, "%s: save: out of memory", path);
    for (int s = 0; s < SECTIONS; s++)
        for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
            cnn_to_torch(p, section_of(model, s)->of[p], image.sections[s].of[p]);
    (void)ct_format(text[0], TEXT_MAX_BYTES, "%" PRIu64, position->seed);
    (void)ct_format(text[1], TEXT_MAX_BYTES, "%" PRIu64, position->epoch);
    (void)ct_format(text[2], TEXT_MAX_BYTES, "%" PRIu64, position->start);
    (void)ct_format(text[3], TEXT_MAX_BYTES, "%" PRIu64, position->step);
    /* hexadecimal: the same bits come back, and the loss of an epoch does not depend on where it
     * was interrupted */
    (void)ct_format(text[4], TEXT_MAX_BYTES, "%a", position->loss);
    (void)ct_format(text[5], TEXT_MAX_BYTES, "%.9g", info->lr);
    (void)ct_format(text[6], TEXT_MAX_BYTES, "%d", info->world_size);
    (void)ct_format(text[7], TEXT_MAX_BYTES, "%" PRIu64, position->global_batch);
    rc = shards ? ctrun_shards_save(shards, position->step, image.tensors, TENSORS,
                                    metadata, sizeof metadata / sizeof *metadata, err)
                : ctrun_checkpoint_save(path, image.tensors, TENSORS, metadata,
                                        sizeof metadata / sizeof *metadata, err);
    image_deinit(&image);
    return rc;
}

int cnn_state_reserve(struct ctrun_shards *shards, struct ctrun_error *err)
{
    struct image image;
    int rc;

    if (image_init(&image) < 0)
        return ct_fail(err, -ENOMEM, "reserve for checkpoints: out of memory");
    rc = ctrun_shards_reserve(shards, image.tensors, TENSORS, err);
    image_deinit(&image);
    return rc;
}

static int read_number(const struct ctrun_checkpoint *file, const char *path,
                       const char *key, uint64_t max, uint64_t *out,
                       struct ctrun_error *err)
{
    const char *text = ctrun_checkpoint_metadata(file, key);

    if (!text)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "%s: no \"%s\" in its metadata: not written by ctrun-mnist",
                       path, key);
    if (ct_parse_u64(text, 0, max, out) < 0)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "%s: \"%s\" is \"%.40s\": not a number from 0 to %" PRIu64, path,
                       key, text, max);
    return 0;
}

static int read_position(const struct ctrun_checkpoint *file, const char *path,
                         struct cnn_position *position, struct ctrun_error *err)
{
    const char *loss = ctrun_checkpoint_metadata(file, "loss_sum");
    char *end = NULL;
    int rc;

    if ((rc = read_number(file, path, "seed", UINT64_MAX, &position->seed, err)) < 0 ||
        (rc = read_number(file, path, "epoch", EPOCH_MAX, &position->epoch, err)) < 0 ||
        (rc = read_number(file, path, "start", UINT32_MAX, &position->start, err)) <
            0 ||
        (rc = read_number(file, path, "step", UINT64_MAX, &position->step, err)) < 0)
        return rc;
    position->loss = loss ? strtod(loss, &end) : NAN;
    if (!isfinite(position->loss) || *end)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "%s: \"loss_sum\" is missing or not a number", path);
    position->global_batch = 0; /* older files have none */
    return ctrun_checkpoint_metadata(file, "global_batch")
               ? read_number(file, path, "global_batch", UINT32_MAX,
                             &position->global_batch, err)
               : 0;
}

int cnn_state_load(const char *path, struct cnn_model *model,
                   struct cnn_position *position, struct ctrun_error *err)
{
    struct ctrun_checkpoint *file = NULL;
    struct image image;
    int rc;

    if (image_init(&image) < 0)
        return ct_fail(err, -ENOMEM, "%s: load: out of memory", path);
    if ((rc = ctrun_checkpoint_open(&file, path, err)) < 0 ||
        (rc = read_position(file, path, position, err)) < 0)
        goto close;
    /* Reads all tensors before the model is changed: a damaged file leaves the model as it was. */
    for (int i = 0; i < TENSORS; i++)
        if ((rc = ctrun_checkpoint_load(file, &image.tensors[i], err)) < 0)
            goto close;
    for (int s = 0; s < SECTIONS; s++)
        for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
            cnn_from_torch(p, image.sections[s].of[p], section_of(model, s)->of[p]);
close:
    ctrun_checkpoint_close(file);
    image_deinit(&image);
    return rc < 0 ? rc : 0;
}

int cnn_state_load_values(const char *path, struct cnn_tensors *values,
                          struct ctrun_error *err)
{
    struct ctrun_checkpoint *file = NULL;
    struct image image;
    int rc;

    if (image_init(&image) < 0)
        return ct_fail(err, -ENOMEM, "%s: load: out of memory", path);
    rc = ctrun_checkpoint_open(&file, path, err);
    for (int p = 0; p < CNN_PARAMS && rc >= 0; p++)
        if ((rc = ctrun_checkpoint_load(file, &image.tensors[p], err)) >= 0)
            cnn_from_torch((enum cnn_param)p, image.sections[0].of[p], values->of[p]);
    ctrun_checkpoint_close(file);
    image_deinit(&image);
    return rc < 0 ? rc : 0;
}

int cnn_state_save_gradients(const char *path, float *const grads[CNN_PARAMS],
                             uint64_t step, struct ctrun_error *err)
{
    char text[TEXT_MAX_BYTES];
    const struct ctrun_metadata metadata[] = {
        {"format", "pt"}, {"producer", "ctrun-mnist"}, {"step", text}};
    struct image image;
    int rc;

    if (image_init(&image) < 0)
        return ct_fail(err, -ENOMEM, "%s: save: out of memory", path);
    for (int p = 0; p < CNN_PARAMS; p++)
        cnn_to_torch((enum cnn_param)p, grads[p], image.sections[0].of[p]);
    (void)ct_format(text, sizeof text, "%" PRIu64, step);
    rc = ctrun_checkpoint_save(path, image.tensors, CNN_PARAMS, metadata,
                               sizeof metadata / sizeof *metadata, err);
    image_deinit(&image);
    return rc;
}
