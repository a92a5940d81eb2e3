/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ckpt/shards.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/thread.h"
#include "worker_sdk/ckpt/durable.h"
#include "worker_sdk/ckpt/folder.h"
#include "worker_sdk/ckpt/tensor_file.h"

static const uint64_t step_max = 1ull << 53; /* a double has it exactly */

enum {
    COPY_ALIGN = 64,
    METADATA_BYTES = 1 << 20 /* reserved for it: it is known with the save only */
};

/* ---- Opening ---- */

int ctrun_shards_open(struct ctrun_shards **out, const char *directory,
                      struct ctrun_group *group,
                      const struct ctrun_shards_options *given, struct ctrun_error *err)
{
    struct ctrun_shards_options options = CTRUN_SHARDS_OPTIONS_INIT;
    struct ctrun_shards *shards;
    struct stat st;
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if (!directory)
        return ct_fail_null(err, "directory");
    if (given && (rc = ct_sized_read(&options, sizeof options, given,
                                     "CTRUN_SHARDS_OPTIONS_INIT", err)) < 0)
        return ct_wrap(err, "checkpoints %s: options", directory), rc;
    if (mkdir(directory, 0777) < 0 && errno != EEXIST)
        return ct_fail(err, -errno, "checkpoints %s: %s", directory, strerror(errno));
    if (stat(directory, &st) == 0 && !S_ISDIR(st.st_mode))
        return ct_fail(err, -ENOTDIR, "checkpoints %s: %s", directory,
                       strerror(ENOTDIR));
    if (access(directory, W_OK | X_OK) < 0) /* now, and not after the first steps */
        return ct_fail(err, -errno, "checkpoints %s: nothing can be written there: %s",
                       directory, strerror(errno));
    if (!(shards = ct_zalloc(sizeof *shards)))
        return ct_fail(err, -ENOMEM, "checkpoints %s: out of memory", directory);
    shards->options = options;
    shards->stats = (struct ctrun_shards_stats)CTRUN_SHARDS_STATS_INIT;
    shards->size = group ? ctrun_group_size(group) : 1;
    shards->rank = group ? ctrun_group_rank(group) : 0;
    shards->group = shards->size > 1 ? group : NULL;
    shards->words = ct_zalloc_array((size_t)shards->size, sizeof *shards->words);
    shards->lengths = ct_zalloc_array((size_t)shards->size, sizeof *shards->lengths);
    shards->directory = ct_strdup(directory);
    if (!shards->words || !shards->lengths || !shards->directory) {
        ctrun_shards_close(shards);
        return ct_fail(err, -ENOMEM, "checkpoints %s: out of memory", directory);
    }
    *out = shards;
    return 0;
}

static void save_deinit(struct ct_shards_save *save)
{
    ct_plan_deinit(&save->plan);
    free(save->tensors);
    free(save->metadata);
    *save = (struct ct_shards_save){.step = 0};
}

void ctrun_shards_close(struct ctrun_shards *shards)
{
    if (!shards)
        return;
    ct_copy_settle(&shards->copy, false);
    (void)ctrun_shards_wait(shards, NULL); /* the error is for who asks before */
    free(shards->directory);
    free(shards->words);
    free(shards->lengths);
    ct_copy_deinit(&shards->copy);
    free(shards);
}

/* ---- Writing: in the call or in the thread ---- */

/* The first rank here makes the folder. A rank with nothing to write makes it as well: it may be
 * rank 0, which writes the manifest there. */
static int write_shard(struct ctrun_shards *shards, uint64_t *values,
                       struct ctrun_error *err)
{
    struct ct_shards_save *save = &shards->save;
    char path[PATH_MAX], name[CT_MANIFEST_SHARD_NAME_MAX];
    uint32_t header_crc = 0;
    int rc;

    if (ct_folder_path(path, shards->directory, save->step, "") < 0)
        return ct_fail(err, -ENAMETOOLONG, "%s: the name is too long",
                       shards->directory);
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return ct_fail(err, -errno, "%s: %s", path, strerror(errno));
    if (save->count == 0)
        return 0;
    (void)ct_format(name, sizeof name, "shard-%05d-of-%05d-%s.safetensors",
                    shards->rank, shards->size, save->tag);
    if (ct_folder_path(path, shards->directory, save->step, name) < 0)
        return ct_fail(err, -ENAMETOOLONG, "%s: the name is too long",
                       shards->directory);
    rc = ct_tensor_file_write(path, save->tensors, save->count, NULL, 0, &save->bytes,
                              &header_crc, err);
    values[0] = save->bytes;
    values[1] = header_crc;
    return rc;
}

/* Lists the shards with bytes, from the words of all ranks; rank 0 must see each file. shard_of:
 * the index of each rank's shard. */
static int list_shards(const struct ctrun_shards *shards, struct ct_manifest *manifest,
                       uint32_t *shard_of, struct ctrun_error *err)
{
    const struct ct_shards_save *save = &shards->save;

    for (int r = 0; r < shards->size; r++) {
        struct ct_manifest_shard *shard = &manifest->shards[manifest->shard_count];
        char path[PATH_MAX];
        struct stat st;

        shard->bytes = shards->words[r].values[0];
        shard->header_crc = (uint32_t)shards->words[r].values[1];
        if (shard->bytes == 0)
            continue;
        (void)ct_format(shard->file, sizeof shard->file,
                        "shard-%05d-of-%05d-%s.safetensors", r, shards->size,
                        save->tag);
        if (ct_folder_path(path, shards->directory, save->step, shard->file) < 0 ||
            stat(path, &st) < 0 || (uint64_t)st.st_size != shard->bytes)
            return ct_fail(err, -ENOENT,
                           "%s: rank %d wrote %llu bytes there, which rank 0 does not "
                           "see: all ranks need the same file system, and a folder "
                           "that no other run saves in",
                           path, r, (unsigned long long)shard->bytes);
        shard_of[r] = (uint32_t)manifest->shard_count++;
    }
    return 0;
}

static int write_manifest(const struct ctrun_shards *shards,
                          const struct ct_manifest *manifest, struct ctrun_error *err)
{
    const struct ct_shards_save *save = &shards->save;
    char path[PATH_MAX], *text = NULL;
    struct iovec part = {.iov_base = NULL};
    int rc = ct_manifest_encode(&text, &part.iov_len, manifest, save->metadata,
                                save->metadata_count);

    if (rc == -E2BIG)
        return ct_fail(err, rc, "too many tensors: the manifest exceeds %d bytes",
                       CT_MANIFEST_MAX_BYTES);
    if (rc < 0)
        return ct_fail(err, rc, "out of memory");
    part.iov_base = text;
    /* Sync the folder's name first: without the folder a crash would lose the manifest. */
    if (ct_folder_path(path, shards->directory, save->step, CT_MANIFEST_FILE) < 0)
        rc = ct_fail(err, -ENAMETOOLONG, "the name is too long");
    else if ((rc = ct_durable_sync_directory(shards->directory)) < 0)
        rc = ct_fail(err, rc, "sync %s: %s", shards->directory, strerror(-rc));
    else
        rc = ct_durable_write(path, &part, 1, err);
    free(text);
    return rc;
}

/* Called on rank 0 when all shards are on the disk. The manifest makes the folder a checkpoint: it
 * is written last, by rename, when every shard is synced. Old checkpoints are removed only after
 * that, so that there always is one. */
static int commit(const struct ctrun_shards *shards, struct ctrun_error *err)
{
    const struct ct_plan *plan = &shards->save.plan;
    struct ct_manifest manifest = {
        .step = shards->save.step,
        .shards = ct_zalloc_array((size_t)shards->size, sizeof *manifest.shards),
        .pieces = ct_zalloc_array(plan->count, sizeof *manifest.pieces)};
    uint32_t *shard_of = ct_zalloc_array((size_t)shards->size, sizeof *shard_of);
    int rc = manifest.shards && manifest.pieces && shard_of
                 ? list_shards(shards, &manifest, shard_of, err)
                 : ct_fail(err, -ENOMEM, "out of memory");

    for (; rc == 0 && manifest.piece_count < plan->count; manifest.piece_count++) {
        struct ct_piece *piece = &manifest.pieces[manifest.piece_count];
        *piece = plan->entries[manifest.piece_count].piece;
        piece->owner = shard_of[piece->owner];
    }
    if (rc == 0 && (rc = write_manifest(shards, &manifest, err)) == 0)
        ct_folder_prune(shards->directory, &manifest, shards->options.keep);
    free(shard_of);
    ct_manifest_deinit(&manifest);
    return rc;
}

/* Runs on the thread, or in the call where there is none. Until it is joined only it uses save,
 * words and group. The ranks agree after the shards, failed or not; and, if none failed, after
 * rank 0's manifest. */
static void *write_all(void *context)
{
    struct ctrun_shards *shards = context;
    struct ct_shards_save *save = &shards->save;
    uint64_t values[CT_SHARDS_VALUES] = {0};
    int rc = write_shard(shards, values, &save->err);

    if ((rc = ct_shards_agree(shards, rc, values, &save->err)) == 0) {
        if (shards->rank == 0)
            rc = commit(shards, &save->err);
        rc = ct_shards_agree(shards, rc, NULL, &save->err);
    }
    if (rc < 0)
        ct_wrap(&save->err, "save checkpoint %s: step %llu", shards->directory,
                (unsigned long long)save->step);
    save->rc = rc;
    save->write_ns = ct_now_ns() - save->begin_ns;
    return NULL;
}

/* ---- The call ---- */

/* Returns the place of the next `bytes` of the copy; with a NULL copy it only counts. */
static void *take(uint8_t *copy, size_t *used, size_t bytes)
{
    void *at = copy ? copy + *used : NULL;

    *used += (bytes + COPY_ALIGN - 1) / COPY_ALIGN * COPY_ALIGN;
    return at;
}

static void copy_bytes(void **at, const void *from, uint8_t *copy, size_t *used,
                       size_t bytes)
{
    void *to = take(copy, used, bytes);

    if (!to)
        return;
    if (bytes)
        memcpy(to, from, bytes);
    *at = to;
}

static void copy_text(const char **at, uint8_t *copy, size_t *used)
{
    void *to = NULL;

    copy_bytes(&to, *at, copy, used, strlen(*at) + 1);
    if (to)
        *at = to;
}

/* Copies everything that the save borrows and returns its bytes; with a NULL copy it only counts.
 * Called twice with the same list: to count, then to copy; both passes run the same code, so that
 * the sizes agree. */
static size_t copy_save(struct ct_shards_save *save, uint8_t *copy)
{
    size_t used = 0;

    for (size_t i = 0; i < save->count; i++) {
        copy_text(&save->tensors[i].name, copy, &used);
        copy_bytes(&save->tensors[i].data, save->tensors[i].data, copy, &used,
                   ct_tensor_bytes(&save->tensors[i]));
    }
    for (size_t i = 0; i < save->metadata_count; i++) {
        copy_text(&save->metadata[i].key, copy, &used);
        copy_text(&save->metadata[i].value, copy, &used);
    }
    return used;
}

/* `more` bytes than the save takes. */
static int make_room(struct ctrun_shards *shards, size_t more, struct ctrun_error *err)
{
    const size_t bytes = copy_save(&shards->save, NULL) + more;

    return ct_copy_resize(&shards->copy, bytes) < 0
               ? ct_fail(err, -ENOMEM, "out of memory for a copy of %zu bytes", bytes)
               : 0;
}

static int copy_all(struct ctrun_shards *shards, struct ctrun_error *err)
{
    const int rc = make_room(shards, 0, err);

    if (rc == 0)
        (void)copy_save(&shards->save, shards->copy.data);
    return rc;
}

/* Takes the tensors that this rank writes, and the metadata. Borrows names and data of `tensors`
 * where the call itself writes. `whole` is zeroed: in its shard a piece is a tensor of its own
 * size, and the manifest knows where it belongs. */
static int take_part(struct ctrun_shards *shards, const uint8_t *flags,
                     const struct ctrun_tensor *tensors, size_t count,
                     const struct ctrun_metadata *metadata, size_t metadata_count,
                     struct ctrun_error *err)
{
    struct ct_shards_save *save = &shards->save;

    save->tensors = ct_zalloc_array(count, sizeof *save->tensors);
    save->metadata = ct_zalloc_array(metadata_count, sizeof *save->metadata);
    if (!save->tensors || !save->metadata)
        return ct_fail(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < count; i++)
        if (flags[i]) {
            save->tensors[save->count] = tensors[i];
            memset(save->tensors[save->count++].whole, 0, sizeof tensors->whole);
        }
    for (size_t i = 0; i < metadata_count && shards->rank == 0; i++)
        save->metadata[save->metadata_count++] = metadata[i];
    return 0;
}

static int start_thread(struct ctrun_shards *shards)
{
    const int rc = ct_thread_start(&shards->thread, write_all, shards);

    shards->is_writing = rc == 0;
    return rc;
}

/* Returns how the last save ended. Call it only when no thread writes: from here on save and copy
 * belong to this thread again. */
static int finish(struct ctrun_shards *shards, struct ctrun_error *err)
{
    struct ct_shards_save *save = &shards->save;
    const int rc = save->rc;

    if (rc < 0 && err)
        *err = save->err;
    if (rc == 0) {
        shards->stats.saves++;
        shards->stats.bytes = save->bytes;
        shards->stats.write_ns = save->write_ns;
    }
    save_deinit(save);
    return rc;
}

/* Does not wait for reserved memory: the save does that. */
int ctrun_shards_wait(struct ctrun_shards *shards, struct ctrun_error *err)
{
    if (!shards)
        return ct_fail_null(err, "shards object");
    if (!shards->is_writing)
        return 0;
    pthread_join(shards->thread, NULL);
    shards->is_writing = false;
    return finish(shards, err);
}

/* A save up to the point where the data may change; for a reservation, up to the point where there
 * is room for the copy. */
static int save_begin(struct ctrun_shards *shards, const struct ctrun_tensor *given,
                      size_t count, const struct ctrun_metadata *metadata,
                      size_t metadata_count, bool reserves, struct ctrun_error *err)
{
    static const struct ctrun_tensor defaults = CTRUN_TENSOR_INIT;
    uint8_t *flags = NULL;
    void *list = NULL;
    int rc = ct_sized_read_array(&list, &defaults, sizeof defaults, given, count,
                                 "CTRUN_TENSOR_INIT", err);

    if (rc == 0 && shards->save.step > step_max)
        rc = ct_fail(err, -EINVAL, "more than 2^53");
    if (rc == 0 && shards->rank == 0) /* nobody uses that of the others */
        rc = ct_tensor_file_check_metadata(metadata, metadata_count, err);
    /* takes rc along: a rank with wrong arguments tells the others, and all of them return */
    if ((rc = ct_shards_plan(shards, &flags, rc, list, count, err)) == 0) {
        rc = take_part(shards, flags, list, count, metadata, metadata_count, err);
        if (rc == 0 && reserves)
            rc = make_room(shards, METADATA_BYTES, err);
        else if (rc == 0 && shards->options.async)
            rc = copy_all(shards, err);
        rc = ct_shards_agree(shards, rc, NULL, err);
    }
    free(flags);
    free(list);
    return rc;
}

/* Plans as the save will, so that the size is the same. step_max: any step may exist already. */
int ctrun_shards_reserve(struct ctrun_shards *shards,
                         const struct ctrun_tensor *tensors, size_t count,
                         struct ctrun_error *err)
{
    int rc;

    if (!shards)
        return ct_fail_null(err, "shards object");
    if (!shards->options.async)
        return 0;
    ct_copy_settle(&shards->copy, false);
    if ((rc = ctrun_shards_wait(shards, err)) < 0)
        return rc;
    shards->save.step = step_max;
    rc = save_begin(shards, tensors, count, NULL, 0, true, err);
    save_deinit(&shards->save);
    if (rc < 0)
        return ct_wrap(err, "reserve for checkpoints %s", shards->directory), rc;
    ct_copy_touch(&shards->copy);
    return 0;
}

int ctrun_shards_save(struct ctrun_shards *shards, uint64_t step,
                      const struct ctrun_tensor *tensors, size_t count,
                      const struct ctrun_metadata *metadata, size_t metadata_count,
                      struct ctrun_error *err)
{
    const uint64_t begin_ns = ct_now_ns();
    int rc;

    if (!shards)
        return ct_fail_null(err, "shards object");
    ct_copy_settle(&shards->copy, false); /* the copy touches the other pages */
    /* A failure of the save before is returned here, on all ranks alike, and nothing new is
     * begun. The next call begins again. */
    if ((rc = ctrun_shards_wait(shards, err)) < 0)
        return rc;
    shards->save.step = step;
    if ((rc = save_begin(shards, tensors, count, metadata, metadata_count, false,
                         err)) < 0) {
        save_deinit(&shards->save);
        return ct_wrap(err, "save checkpoint %s: step %llu", shards->directory,
                       (unsigned long long)step),
               rc;
    }
    shards->save.begin_ns = shards->options.async ? ct_now_ns() : begin_ns;
    /* Without a thread the call itself writes, with the same collectives. */
    if (!shards->options.async || start_thread(shards) < 0) {
        (void)write_all(shards);
        rc = finish(shards, err);
    }
    shards->stats.stall_ns = ct_now_ns() - begin_ns;
    return rc;
}

int ctrun_shards_get_stats(struct ctrun_shards *shards, struct ctrun_shards_stats *out,
                           struct ctrun_error *err)
{
    if (!shards)
        return ct_fail_null(err, "shards object");
    return ct_sized_write(out, &shards->stats, sizeof shards->stats,
                          "CTRUN_SHARDS_STATS_INIT", err);
}
