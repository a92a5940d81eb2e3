/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/stage/stage_manifest.h"

#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/str.h"

enum {
    MODE_MASK = 0777, /* no set-user-ID: the copy has another owner */
    LAYOUT = 1,
    LINK_MAX_BYTES = 4095,
    TEXT_MAX_BYTES = 4096,
    ENTRY_MIN_BYTES = 1 + 4 + 8 + 4 +
                      1, /* on the wire, so that a count can be checked */
    SOURCE_MIN_BYTES = 8,
};

/* ---- Paths ------------------------------------------------------------------------------- */

bool stage_path_is_safe(const char *path)
{
    const size_t length = strlen(path);

    if (length == 0 || length > STAGE_PATH_MAX)
        return false;
    for (const char *part = path;; part++) {
        const size_t size = strcspn(part, "/");

        if (size == 0 || size > STAGE_NAME_MAX || (size == 1 && part[0] == '.') ||
            (size == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        part += size;
        if (!*part)
            return true;
    }
}

static int rank_of(char c)
{
    return c == '\0' ? 0 : c == '/' ? 1 : 2 + (unsigned char)c;
}

int stage_path_compare(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return rank_of(*a) - rank_of(*b);
}

/* True when the parent of `path` is a folder of this manifest: it is the last entry, or is also
 * above the last entry, whose parents are folders of this manifest (by induction). */
static bool has_folder(const struct stage_manifest *manifest, const char *path)
{
    const char *slash = strrchr(path, '/');
    const struct stage_entry *last;
    size_t length;

    if (!slash)
        return true;
    if (manifest->count == 0)
        return false;
    length = (size_t)(slash - path);
    last = &manifest->entries[manifest->count - 1];
    if (strncmp(last->path, path, length) != 0)
        return false;
    return last->path[length] == '/' ||
           (last->path[length] == '\0' && last->kind == STAGE_FOLDER);
}

/* ---- Building ---------------------------------------------------------------------------- */

static int grow(void **list, uint32_t *capacity, uint64_t wanted, size_t size,
                uint32_t max)
{
    uint64_t more = *capacity ? *capacity : 64;
    void *larger;

    if (wanted > max)
        return -E2BIG;
    if (wanted <= *capacity)
        return 0;
    while (more < wanted)
        more *= 2;
    if (!(larger = ct_realloc_array(*list, (size_t)more, size)))
        return -ENOMEM;
    *list = larger;
    *capacity = (uint32_t)more;
    return 0;
}

static int check_entry(const struct stage_manifest *manifest,
                       const struct stage_entry *entry)
{
    if (!entry->path || !stage_path_is_safe(entry->path))
        return entry->path && strlen(entry->path) > STAGE_PATH_MAX ? -ENAMETOOLONG
                                                                   : -EINVAL;
    if (entry->kind != STAGE_FOLDER && entry->kind != STAGE_FILE &&
        entry->kind != STAGE_LINK)
        return -EINVAL;
    if (entry->mode & ~(uint32_t)MODE_MASK)
        return -EINVAL;
    if (entry->kind == STAGE_LINK &&
        (!entry->target || !*entry->target || strlen(entry->target) > LINK_MAX_BYTES))
        return -EINVAL;
    if (manifest->count > 0 &&
        stage_path_compare(manifest->entries[manifest->count - 1].path, entry->path) >=
            0)
        return -EINVAL;
    return has_folder(manifest, entry->path) ? 0 : -EINVAL;
}

static int add_sums(struct stage_manifest *manifest, uint32_t count)
{
    union { /* grow() takes void ** */
        uint8_t (**sums)[CT_DIGEST_BYTES];
        void **list;
    } view = {.sums = &manifest->sums};
    const int rc = grow(view.list, &manifest->chunk_capacity,
                        (uint64_t)manifest->chunk_count + count, CT_DIGEST_BYTES,
                        STAGE_CHUNKS_MAX);

    if (rc < 0)
        return rc;
    if (count > 0)
        memset(manifest->sums[manifest->chunk_count], 0,
               (size_t)count * CT_DIGEST_BYTES);
    manifest->chunk_count += count;
    return 0;
}

int stage_manifest_add(struct stage_manifest *manifest, const struct stage_entry *entry)
{
    union {
        struct stage_entry **entries;
        void **list;
    } view = {.entries = &manifest->entries};
    struct stage_entry copy = *entry;
    uint64_t chunks = 0;
    int rc = check_entry(manifest, entry);

    if (entry->kind == STAGE_FILE)
        chunks = entry->size / STAGE_CHUNK_BYTES +
                 (entry->size % STAGE_CHUNK_BYTES != 0);
    else
        copy.size = 0;
    if (rc == 0 && chunks > STAGE_CHUNKS_MAX)
        rc = -E2BIG;
    if (rc == 0)
        rc = grow(view.list, &manifest->capacity, (uint64_t)manifest->count + 1,
                  sizeof *entry, STAGE_ENTRIES_MAX);
    if (rc < 0)
        return rc;
    copy.first_chunk = manifest->chunk_count;
    copy.chunks = (uint32_t)chunks;
    copy.path = ct_strdup(entry->path);
    copy.target = entry->kind == STAGE_LINK ? ct_strdup(entry->target) : NULL;
    rc = !copy.path || (entry->kind == STAGE_LINK && !copy.target) ? -ENOMEM : 0;
    if (rc == 0)
        rc = add_sums(manifest, copy.chunks);
    if (rc < 0) {
        free(copy.path);
        free(copy.target);
        return rc;
    }
    manifest->entries[manifest->count++] = copy;
    manifest->bytes += copy.size;
    return 0;
}

int stage_manifest_add_source(struct stage_manifest *manifest, const char *typed,
                              const char *real)
{
    struct stage_source *larger = ct_realloc_array(
        manifest->sources, (size_t)manifest->source_count + 1, sizeof *larger);
    struct stage_source *source;

    if (!larger)
        return -ENOMEM;
    manifest->sources = larger;
    source = &larger[manifest->source_count++];
    source->typed = ct_strdup(typed);
    source->real = ct_strdup(real);
    source->name = ct_strdup(ct_base_name(typed));
    return source->typed && source->real && source->name ? 0 : -ENOMEM;
}

void stage_manifest_drop(struct stage_manifest *manifest)
{
    for (uint32_t i = 0; i < manifest->count; i++) {
        free(manifest->entries[i].path);
        free(manifest->entries[i].target);
    }
    free(manifest->entries);
    free(manifest->sums);
    manifest->entries = NULL;
    manifest->sums = NULL;
    manifest->count = manifest->capacity = 0;
    manifest->chunk_count = manifest->chunk_capacity = 0;
}

void stage_manifest_deinit(struct stage_manifest *manifest)
{
    stage_manifest_drop(manifest);
    for (uint32_t i = 0; i < manifest->source_count; i++) {
        free(manifest->sources[i].typed);
        free(manifest->sources[i].real);
        free(manifest->sources[i].name);
    }
    free(manifest->dir);
    free(manifest->program);
    free(manifest->sources);
    *manifest = (struct stage_manifest){0};
}

/* ---- Writing ----------------------------------------------------------------------------- */

static int put_text(struct ct_buf *out, const char *text)
{
    uint8_t head[4];
    struct ct_writer writer;
    const size_t length = text ? strlen(text) : 0;
    int rc;

    ct_writer_init(&writer, head, sizeof head);
    ct_write_u32(&writer, (uint32_t)length);
    rc = ct_buf_append(out, head, writer.length);
    return rc < 0 || length == 0 ? rc : ct_buf_append(out, text, length);
}

static int put_head(struct ct_buf *out, const struct stage_manifest *manifest)
{
    uint8_t head[4 + sizeof manifest->key + 4 + 1 + 2 * 4];
    struct ct_writer writer;
    int rc;

    ct_writer_init(&writer, head, sizeof head);
    ct_write_u32(&writer, LAYOUT);
    ct_write_raw(&writer, manifest->key, sizeof manifest->key);
    ct_write_u32(&writer, manifest->word);
    ct_write_u8(&writer, manifest->is_removed);
    ct_write_u32(&writer, manifest->source_count);
    ct_write_u32(&writer, manifest->count);
    rc = ct_buf_append(out, head, writer.length);
    if (rc == 0)
        rc = put_text(out, manifest->dir);
    if (rc == 0)
        rc = put_text(out, manifest->program);
    for (uint32_t i = 0; i < manifest->source_count && rc == 0; i++) {
        rc = put_text(out, manifest->sources[i].typed);
        if (rc == 0)
            rc = put_text(out, manifest->sources[i].real);
    }
    return rc;
}

static int put_entry(struct ct_buf *out, const struct stage_manifest *manifest,
                     const struct stage_entry *entry)
{
    uint8_t head[1 + 4 + 8 + 8];
    struct ct_writer writer;
    int rc;

    ct_writer_init(&writer, head, sizeof head);
    ct_write_u8(&writer, (uint8_t)entry->kind);
    ct_write_u32(&writer, entry->mode);
    ct_write_i64(&writer, entry->mtime_ns);
    if (entry->kind == STAGE_FILE)
        ct_write_u64(&writer, entry->size);
    rc = ct_buf_append(out, head, writer.length);
    if (rc == 0)
        rc = put_text(out, entry->path);
    if (rc == 0 && entry->kind == STAGE_LINK)
        rc = put_text(out, entry->target);
    if (rc == 0 && entry->chunks > 0)
        rc = ct_buf_append(out, manifest->sums[entry->first_chunk],
                           (size_t)entry->chunks * CT_DIGEST_BYTES);
    return rc;
}

int stage_manifest_encode(struct ct_buf *out, const struct stage_manifest *manifest)
{
    int rc = put_head(out, manifest);

    for (uint32_t i = 0; i < manifest->count && rc == 0; i++)
        rc = put_entry(out, manifest, &manifest->entries[i]);
    return rc;
}

/* ---- Reading ----------------------------------------------------------------------------- */

/* Into text[TEXT_MAX_BYTES]. */
static void take_text(struct ct_reader *in, char *text)
{
    ct_read_name(in, text, TEXT_MAX_BYTES);
}

/* Reads a text into a new string; with is_absolute it must be empty or an absolute path. */
static char *take_owned(struct ct_reader *in, bool is_absolute, char *text)
{
    take_text(in, text);
    if (is_absolute && *text && *text != '/')
        in->bad = true;
    return in->bad ? NULL : ct_strdup(text);
}

static int take_head(struct stage_manifest *out, struct ct_reader *in, uint32_t *count,
                     char *text)
{
    const uint8_t *key;
    uint32_t sources;
    uint8_t flag;
    char *typed;

    in->bad |= ct_read_u32(in) != LAYOUT;
    key = ct_read_raw(in, sizeof out->key);
    if (key)
        memcpy(out->key, key, sizeof out->key);
    out->word = ct_read_u32(in);
    flag = ct_read_u8(in);
    out->is_removed = flag == 1;
    sources = ct_read_u32(in);
    *count = ct_read_u32(in);
    out->dir = take_owned(in, true, text);
    out->program = take_owned(in, false, text);
    if (!in->bad && (!out->dir || !out->program))
        return -ENOMEM;
    if (in->bad || flag > 1 || sources > STAGE_SOURCES_MAX ||
        sources > in->left / SOURCE_MIN_BYTES || *count > STAGE_ENTRIES_MAX ||
        *count > in->left / ENTRY_MIN_BYTES ||
        (*out->program && !stage_path_is_safe(out->program)))
        return -EBADMSG;
    for (uint32_t i = 0; i < sources; i++) {
        int rc;

        typed = take_owned(in, true, text);
        if (!in->bad && !typed)
            return -ENOMEM;
        take_text(in, text);
        if (in->bad || *typed != '/' || *text != '/') {
            free(typed);
            return -EBADMSG;
        }
        rc = stage_manifest_add_source(out, typed, text);
        free(typed);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int take_entry(struct stage_manifest *out, struct ct_reader *in, char *path,
                      char *target)
{
    struct stage_entry entry = {.path = path, .target = target};
    const uint8_t *sums;
    uint64_t chunks;
    int rc;

    entry.kind = (enum stage_kind)ct_read_u8(in);
    entry.mode = ct_read_u32(in);
    entry.mtime_ns = ct_read_i64(in);
    if (entry.kind == STAGE_FILE)
        entry.size = ct_read_u64(in);
    take_text(in, path);
    if (entry.kind == STAGE_LINK)
        take_text(in, target);
    if (in->bad)
        return -EBADMSG;
    /* Checks that the sums are in the message before memory is allocated for them. */
    chunks = entry.size / STAGE_CHUNK_BYTES + (entry.size % STAGE_CHUNK_BYTES != 0);
    if (chunks > in->left / CT_DIGEST_BYTES)
        return -EBADMSG;
    if ((rc = stage_manifest_add(out, &entry)) < 0)
        return rc == -ENOMEM ? rc : -EBADMSG;
    if (chunks == 0)
        return 0;
    sums = ct_read_raw(in, (size_t)chunks * CT_DIGEST_BYTES);
    if (!sums)
        return -EBADMSG;
    memcpy(out->sums[out->entries[out->count - 1].first_chunk], sums,
           (size_t)chunks * CT_DIGEST_BYTES);
    return 0;
}

int stage_manifest_decode(struct stage_manifest *out, const void *data, size_t length)
{
    char *texts = ct_zalloc(2 * (size_t)TEXT_MAX_BYTES);
    struct ct_reader in;
    uint32_t count = 0;
    int rc;

    *out = (struct stage_manifest){0};
    if (!texts)
        return -ENOMEM;
    ct_reader_init(&in, data, length);
    rc = take_head(out, &in, &count, texts);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = take_entry(out, &in, texts, texts + TEXT_MAX_BYTES);
    if (rc == 0)
        rc = ct_read_end(&in);
    if (rc < 0)
        stage_manifest_deinit(out);
    free(texts);
    return rc;
}

/* ---- Looking ----------------------------------------------------------------------------- */

const struct stage_entry *stage_manifest_file(const struct stage_manifest *manifest,
                                              uint32_t chunk)
{
    uint32_t low = 0;
    uint32_t high = manifest->count;

    /* Finds the last entry with first_chunk <= chunk; entries without chunks come before it. */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;

        if (manifest->entries[middle].first_chunk <= chunk)
            low = middle;
        else
            high = middle;
    }
    return &manifest->entries[low];
}

const struct stage_entry *stage_manifest_find(const struct stage_manifest *manifest,
                                              const char *path)
{
    uint32_t low = 0;
    uint32_t high = manifest->count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = stage_path_compare(manifest->entries[middle].path, path);

        if (order == 0)
            return &manifest->entries[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

uint64_t stage_chunk_offset(const struct stage_entry *file, uint32_t chunk)
{
    return (uint64_t)(chunk - file->first_chunk) * STAGE_CHUNK_BYTES;
}

uint32_t stage_chunk_size(const struct stage_entry *file, uint32_t chunk)
{
    const uint64_t left = file->size - stage_chunk_offset(file, chunk);

    return left < STAGE_CHUNK_BYTES ? (uint32_t)left : STAGE_CHUNK_BYTES;
}
