/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a checkpoint: one file, or the shards of a folder with a manifest. Both have pieces of
 * tensors; the caller may want different pieces. */
#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/whole_file.h"
#include "worker_sdk/ckpt/folder.h"
#include "worker_sdk/ckpt/tensor_file.h"

static const char module_prefix[] = "module.";

enum {
    FILES_OPEN_MAX = 64 /* shards at a time */
};

struct ctrun_checkpoint {
    char *path;                  /* of the file, or of the step's folder */
    struct ct_tensor_file *file; /* NULL: sharded, by the manifest */
    struct ct_manifest manifest;
    struct ct_tensor_file *open[FILES_OPEN_MAX]; /* a shard, in the slot of its index */
    size_t shard[FILES_OPEN_MAX];                /* which */
};

/* ---- Saving one file ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Checks the caller's arguments before anything is written. */
static int tensors_check(const struct ctrun_tensor *tensors, size_t count,
                         struct ctrun_error *err)
{
    const char **names = ct_zalloc_array(count, sizeof *names);
    struct ct_piece piece;
    int rc = names ? 0 : ct_fail(err, -ENOMEM, "out of memory");

    for (size_t i = 0; i < count && rc == 0; i++) {
        names[i] = tensors[i].name;
        rc = ct_piece_of_tensor(&piece, &tensors[i], err);
        if (rc == 0 && memcmp(piece.size, piece.whole, sizeof piece.size) != 0)
            rc = ct_fail(err, -EINVAL,
                         "tensor '%s' is a piece: save pieces with "
                         "ctrun_shards_save()",
                         tensors[i].name);
    }
    if (rc == 0)
        qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 1; i < count && rc == 0; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            rc = ct_fail(err, -EINVAL, "two tensors are called '%s'", names[i]);
    free(names);
    return rc;
}

int ctrun_checkpoint_save(const char *path, const struct ctrun_tensor *given,
                          size_t count, const struct ctrun_metadata *metadata,
                          size_t metadata_count, struct ctrun_error *err)
{
    static const struct ctrun_tensor defaults = CTRUN_TENSOR_INIT;
    uint32_t header_crc;
    uint64_t bytes;
    void *list = NULL;
    int rc;

    if (!path)
        return ct_fail_null(err, "path");
    if ((rc = ct_sized_read_array(&list, &defaults, sizeof defaults, given, count,
                                  "CTRUN_TENSOR_INIT", err)) == 0 &&
        (rc = tensors_check(list, count, err)) == 0 &&
        (rc = ct_tensor_file_check_metadata(metadata, metadata_count, err)) == 0)
        rc = ct_tensor_file_write(path, list, count, metadata, metadata_count, &bytes,
                                  &header_crc, err);
    free(list);
    return rc < 0 ? (ct_wrap(err, "save checkpoint %s", path), rc) : 0;
}

/* ---- Opening ---- */

/* Checks that every shard exists, with all its bytes. */
static int check_shards(const struct ctrun_checkpoint *checkpoint,
                        struct ctrun_error *err)
{
    for (size_t i = 0; i < checkpoint->manifest.shard_count; i++) {
        const struct ct_manifest_shard *shard = &checkpoint->manifest.shards[i];
        char path[PATH_MAX];
        struct stat st;

        if (ct_format(path, sizeof path, "%s/%s", checkpoint->path, shard->file) < 0)
            return ct_fail(err, -ENAMETOOLONG, "the name is too long");
        if (stat(path, &st) < 0)
            return ct_fail(err, CTRUN_E_BAD_CHECKPOINT, "%s: %s", shard->file,
                           strerror(errno));
        if ((uint64_t)st.st_size != shard->bytes)
            return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                           "%s has %llu bytes, %llu were written", shard->file,
                           (unsigned long long)st.st_size,
                           (unsigned long long)shard->bytes);
    }
    return 0;
}

static int read_manifest(struct ctrun_checkpoint *checkpoint, struct ctrun_error *err)
{
    char path[PATH_MAX], *text;
    size_t length;
    int rc;

    if (ct_format(path, sizeof path, "%s/%s", checkpoint->path, CT_MANIFEST_FILE) < 0)
        return ct_fail(err, -ENAMETOOLONG, "the name is too long");
    rc = ct_whole_file_read(path, CT_MANIFEST_MAX_BYTES, &text, &length, NULL);
    if (rc == -EFBIG)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT, "%s is larger than %d bytes",
                       CT_MANIFEST_FILE, CT_MANIFEST_MAX_BYTES);
    if (rc == -EBADMSG)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT, "%s is not a regular file",
                       CT_MANIFEST_FILE);
    if (rc < 0)
        return ct_fail(err, rc, "%s: %s", CT_MANIFEST_FILE, strerror(-rc));
    rc = ct_manifest_decode(&checkpoint->manifest, text, length, err);
    free(text);
    return rc < 0 ? rc : check_shards(checkpoint, err);
}

/* The folder of a checkpoint, or the newest complete one in a folder of them. */
static int open_folder(struct ctrun_checkpoint *checkpoint, struct ctrun_error *err)
{
    char path[PATH_MAX];
    struct stat st;
    uint64_t step;
    int rc;

    if (ct_format(path, sizeof path, "%s/%s", checkpoint->path, CT_MANIFEST_FILE) < 0)
        return ct_fail(err, -ENAMETOOLONG, "the name is too long");
    if (stat(path, &st) < 0) {
        if ((rc = ct_folder_newest(checkpoint->path, &step, err)) < 0)
            return rc;
        if (ct_folder_path(path, checkpoint->path, step, "") < 0)
            return ct_fail(err, -ENAMETOOLONG, "the name is too long");
        free(checkpoint->path);
        if (!(checkpoint->path = ct_strdup(path)))
            return ct_fail(err, -ENOMEM, "out of memory");
    }
    return read_manifest(checkpoint, err);
}

int ctrun_checkpoint_open(struct ctrun_checkpoint **out, const char *path,
                          struct ctrun_error *err)
{
    struct ctrun_checkpoint *checkpoint;
    struct stat st;
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if (!path)
        return ct_fail_null(err, "path");
    checkpoint = ct_zalloc(sizeof *checkpoint);
    if (!checkpoint || !(checkpoint->path = ct_strdup(path)))
        rc = ct_fail(err, -ENOMEM, "checkpoint %s: out of memory", path);
    else if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        if ((rc = open_folder(checkpoint, err)) < 0)
            rc = ct_tensor_file_fail(checkpoint->path ? checkpoint->path : path, rc,
                                     err);
    } else
        rc = ct_tensor_file_open(&checkpoint->file, path, err);
    if (rc < 0)
        ctrun_checkpoint_close(checkpoint);
    else
        *out = checkpoint;
    return rc;
}

void ctrun_checkpoint_close(struct ctrun_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (size_t i = 0; i < FILES_OPEN_MAX; i++)
        ct_tensor_file_close(checkpoint->open[i]);
    ct_tensor_file_close(checkpoint->file);
    ct_manifest_deinit(&checkpoint->manifest);
    free(checkpoint->path);
    free(checkpoint);
}

const char *ctrun_checkpoint_metadata(const struct ctrun_checkpoint *checkpoint,
                                      const char *key)
{
    if (!checkpoint || !key)
        return NULL;
    return checkpoint->file ? ct_safetensors_metadata(&checkpoint->file->header, key)
                            : ct_manifest_metadata(&checkpoint->manifest, key);
}

/* ---- Loading ---- */

/* A shard stays open until another one needs its slot. */
static int open_shard(struct ctrun_checkpoint *checkpoint, size_t i,
                      struct ct_tensor_file **out, struct ctrun_error *err)
{
    const struct ct_manifest_shard *shard = &checkpoint->manifest.shards[i];
    /* A failed open leaves the slot NULL, so that the slot's number is ignored the next time. */
    struct ct_tensor_file **slot = &checkpoint->open[i % FILES_OPEN_MAX];
    char path[PATH_MAX];
    int rc;

    if (!*slot || checkpoint->shard[i % FILES_OPEN_MAX] != i) {
        if (ct_format(path, sizeof path, "%s/%s", checkpoint->path, shard->file) < 0)
            return ct_fail(err, -ENAMETOOLONG, "the name is too long");
        ct_tensor_file_close(*slot);
        checkpoint->shard[i % FILES_OPEN_MAX] = i;
        if ((rc = ct_tensor_file_open(slot, path, err)) == -ENOENT)
            return ct_tensor_file_fail(path,
                                       ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                                               "this shard does not exist any more"),
                                       err);
        if (rc < 0)
            return rc;
    }
    *out = *slot;
    if ((*slot)->header_crc == shard->header_crc && (*slot)->bytes == shard->bytes)
        return 0;
    return ct_tensor_file_fail(
        (*slot)->path,
        ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                "its size or its header is not as the manifest says"),
        err);
}

static int fail_shape(const char *path, const struct ct_piece *there,
                      const struct ct_piece *wanted, struct ctrun_error *err)
{
    char shape[2][CT_SAFETENSORS_SHAPE_TEXT_MAX];

    ct_safetensors_format_shape(shape[0], there->dtype, there->dims, there->whole);
    ct_safetensors_format_shape(shape[1], wanted->dtype ? wanted->dtype : "?",
                                wanted->dims, wanted->whole);
    return ct_tensor_file_fail(
        path,
        ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                "of another model: tensor '%s' is %s there, %s is wanted", wanted->name,
                shape[0], shape[1]),
        err);
}

static bool is_alike(const struct ct_piece *a, const struct ct_piece *b)
{
    return strcmp(a->dtype, b->dtype) == 0 && a->dims == b->dims &&
           memcmp(a->whole, b->whole, (size_t)a->dims * sizeof *a->whole) == 0;
}

/* The piece of a file's tensor: all of it. */
static struct ct_piece piece_of_entry(const struct ct_safetensors_entry *entry)
{
    struct ct_piece piece = {
        .name = entry->name, .dtype = entry->dtype, .dims = entry->dims};

    memcpy(piece.whole, entry->sizes, sizeof piece.whole);
    memcpy(piece.size, entry->sizes, sizeof piece.size);
    return piece;
}

static int load_from_file(struct ctrun_checkpoint *checkpoint, const char *name,
                          const struct ct_piece *target, void *data,
                          struct ctrun_error *err)
{
    const struct ct_safetensors_entry *entry = ct_safetensors_find(
        &checkpoint->file->header, name);
    struct ct_piece source;

    if (!entry)
        return -ENOENT;
    source = piece_of_entry(entry);
    if (!is_alike(&source, target))
        return fail_shape(checkpoint->path, &source, target, err);
    return ct_tensor_file_read(checkpoint->file, entry, &source, target, data, err);
}

static int load_piece(struct ctrun_checkpoint *checkpoint,
                      const struct ct_piece *source, const struct ct_piece *target,
                      void *data, struct ctrun_error *err)
{
    const struct ct_safetensors_entry *entry;
    struct ct_tensor_file *file;
    int rc = open_shard(checkpoint, source->owner, &file, err);

    if (rc < 0)
        return rc;
    entry = ct_safetensors_find(&file->header, source->name);
    if (entry && strcmp(entry->dtype, source->dtype) == 0 &&
        entry->dims == source->dims &&
        memcmp(entry->sizes, source->size,
               (size_t)entry->dims * sizeof *entry->sizes) == 0)
        return ct_tensor_file_read(file, entry, source, target, data, err);
    return ct_tensor_file_fail(
        file->path,
        ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                "it does not have the piece of '%s' that the manifest names",
                source->name),
        err);
}

/* Every piece that has elements of the wanted box is read whole, since its CRC-32C is over all of
 * its bytes. The pieces cut up the tensor: the save and the manifest's decoder have checked that. */
static int load_from_shards(struct ctrun_checkpoint *checkpoint, const char *name,
                            const struct ct_piece *target, void *data,
                            struct ctrun_error *err)
{
    size_t count;
    const struct ct_piece *pieces = ct_manifest_find(&checkpoint->manifest, name,
                                                     &count);
    int rc;

    if (!pieces)
        return -ENOENT;
    for (size_t i = 0; i < count; i++) {
        struct ct_runs runs;

        if (!is_alike(&pieces[i], target))
            return fail_shape(checkpoint->path, &pieces[i], target, err);
        if (ct_runs_init(&runs, &pieces[i], target) > 0 &&
            (rc = load_piece(checkpoint, &pieces[i], target, data, err)) < 0)
            return rc;
    }
    return 0;
}

/* Finds the tensor by its name, or by the name with "module." (as DistributedDataParallel saves)
 * added or dropped. */
static int load_named(struct ctrun_checkpoint *checkpoint,
                      const struct ct_piece *target, void *data,
                      struct ctrun_error *err)
{
    int (*load)(struct ctrun_checkpoint *, const char *, const struct ct_piece *,
                void *, struct ctrun_error *) = checkpoint->file ? load_from_file
                                                                 : load_from_shards;
    char other[PATH_MAX];
    int rc = load(checkpoint, target->name, target, data, err);

    if (rc == -ENOENT && ct_starts_with(target->name, module_prefix))
        rc = load(checkpoint, target->name + sizeof module_prefix - 1, target, data,
                  err);
    if (rc == -ENOENT &&
        ct_format(other, sizeof other, "%s%s", module_prefix, target->name) >= 0)
        rc = load(checkpoint, other, target, data, err);
    if (rc != -ENOENT)
        return rc;
    return ct_tensor_file_fail(checkpoint->path,
                               ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                                       "of another model: no tensor '%s'",
                                       target->name),
                               err);
}

int ctrun_checkpoint_load(struct ctrun_checkpoint *checkpoint,
                          const struct ctrun_tensor *given, struct ctrun_error *err)
{
    struct ctrun_tensor tensor = CTRUN_TENSOR_INIT;
    struct ct_piece target;
    int rc = checkpoint ? ct_sized_read(&tensor, sizeof tensor, given,
                                        "CTRUN_TENSOR_INIT", err)
                        : ct_fail_null(err, "checkpoint");

    if (rc < 0 || (rc = ct_piece_of_tensor(&target, &tensor, err)) < 0)
        return ct_wrap(err, "load checkpoint"), rc;
    return load_named(checkpoint, &target, tensor.data, err);
}
