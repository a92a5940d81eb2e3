/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ckpt/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/random.h>

#include <cjson/cJSON.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/crc32c.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ckpt/safetensors.h"

static const char format_name[] = "ctrun.shards.1";
static const char crc_form[] = ",\"crc32c\":\"%08" PRIx32 "\"}\n";

enum {
    CRC_BYTES = sizeof ",\"crc32c\":\"00000000\"}\n" - 1
};

/* ---- Decoding ---- */

static int bad(struct ctrun_error *err, const char *what, const char *why)
{
    return ct_fail(err, CTRUN_E_BAD_CHECKPOINT, "manifest: %.128s: %s", what, why);
}

static const cJSON *member(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* The sum is at the very end and covers all bytes before it, so that it is checked before anything
 * is parsed. */
static int check_crc(const char *json, size_t length, struct ctrun_error *err)
{
    char end[CRC_BYTES + 1];

    if (length < CRC_BYTES)
        return bad(err, "the text", "cut off");
    (void)ct_format(end, sizeof end, crc_form, ct_crc32c(0, json, length - CRC_BYTES));
    if (memcmp(json + length - CRC_BYTES, end, CRC_BYTES) != 0)
        return bad(err, "the text", "its sum at the end is missing or wrong");
    return 0;
}

static bool read_crc(const cJSON *item, uint32_t *out)
{
    const char *text = cJSON_GetStringValue(item);
    char *end;

    if (!text || strlen(text) != 8 || strspn(text, "0123456789abcdef") != 8)
        return false;
    *out = (uint32_t)strtoul(text, &end, 16);
    return true;
}

static int read_shards(struct ct_manifest *out, struct ctrun_error *err)
{
    const cJSON *list = member(out->tree, "shards"), *item;

    if (!cJSON_IsArray(list))
        return bad(err, "shards", "not a list");
    out->shards = ct_zalloc_array((size_t)cJSON_GetArraySize(list),
                                  sizeof *out->shards);
    if (!out->shards)
        return ct_fail(err, -ENOMEM, "manifest: out of memory");
    cJSON_ArrayForEach(item, list)
    {
        struct ct_manifest_shard *shard = &out->shards[out->shard_count++];
        const char *file = cJSON_GetStringValue(member(item, "file"));

        /* a name in this folder and nothing else: a foreign manifest must not make us open other
         * files */
        if (!file || !*file || *file == '.' || strchr(file, '/') ||
            ct_copy(shard->file, sizeof shard->file, file) < 0)
            return bad(err, "shards", "file is not the name of a file in this folder");
        if (!ct_json_read_number(member(item, "bytes"), &shard->bytes) ||
            !read_crc(member(item, "header_crc32c"), &shard->header_crc))
            return bad(err, file, "bytes or header_crc32c is missing or wrong");
    }
    return 0;
}

/* A list of `dims` whole numbers; dims < 0: of as many as there are. Returns how many, -1: it is not. */
static int read_sizes(const cJSON *list, int dims, int64_t *sizes)
{
    const cJSON *item;
    uint64_t size;
    int count = 0;

    if (!cJSON_IsArray(list))
        return -1;
    cJSON_ArrayForEach(item, list)
    {
        if (count == CTRUN_MAX_DIMS || !ct_json_read_number(item, &size))
            return -1;
        sizes[count++] = (int64_t)size;
    }
    return dims < 0 || dims == count ? count : -1;
}

/* Whether each element of the tensor is in exactly one of its pieces. For that each coordinate of
 * each dimension has a random number: a box measures the product of their differences, and the
 * boxes that cut a tensor measure what it measures. With other boxes the sums are equal once in
 * 2^40 times at most: so seldom 8 dimensions have products with 64 factors of 2. Comparing the boxes in pairs would take hours for a hostile manifest. */
static bool is_cut(const struct ct_piece *tensor, const struct ct_piece *pieces,
                   size_t count, const uint64_t *keys)
{
    struct ct_piece whole = *tensor;
    uint64_t sum = 0;

    memset(whole.start, 0, sizeof whole.start);
    memcpy(whole.size, whole.whole, sizeof whole.size);
    for (size_t i = 0; i < count; i++)
        sum += ct_piece_measure(&pieces[i], keys);
    return sum == ct_piece_measure(&whole, keys);
}

/* Names and types are borrowed from the tree, which the manifest owns. read_tensors() has
 * counted the pieces, so there is room. */
static int read_pieces(struct ct_manifest *out, const cJSON *tensor,
                       const uint64_t *keys, struct ctrun_error *err)
{
    const cJSON *list = member(tensor, "pieces"), *item;
    struct ct_piece piece = {.name = tensor->string,
                             .dtype = cJSON_GetStringValue(member(tensor, "dtype"))};
    const size_t first = out->piece_count;

    piece.dims = read_sizes(member(tensor, "shape"), -1, piece.whole);
    if (!piece.dtype || piece.dims < 0 || !cJSON_IsArray(list))
        return bad(err, piece.name, "dtype, shape or pieces is missing or wrong");
    cJSON_ArrayForEach(item, list)
    {
        uint64_t shard;

        if (!ct_json_read_number(member(item, "shard"), &shard) ||
            shard >= out->shard_count)
            return bad(err, piece.name, "a piece is in a shard that does not exist");
        piece.owner = (uint32_t)shard;
        if (read_sizes(member(item, "start"), piece.dims, piece.start) < 0 ||
            read_sizes(member(item, "shape"), piece.dims, piece.size) < 0 ||
            !ct_piece_is_sound(&piece))
            return bad(err, piece.name, "a piece is not a part of the tensor");
        out->pieces[out->piece_count++] = piece;
    }
    if (!is_cut(&piece, out->pieces + first, out->piece_count - first, keys))
        return bad(err, piece.name, "its pieces overlap or leave elements out");
    return 0;
}

static int compare(const void *a, const void *b)
{
    return ct_piece_compare(a, b);
}

static int read_tensors(struct ct_manifest *out, struct ctrun_error *err)
{
    const cJSON *tensors = member(out->tree, "tensors"), *item;
    uint64_t keys[CTRUN_MAX_DIMS] = {ct_now_ns()}; /* kept just after boot */
    size_t count = 0;
    int rc;

    if (!cJSON_IsObject(tensors))
        return bad(err, "tensors", "not an object");
    cJSON_ArrayForEach(item, tensors)
        count += (size_t)cJSON_GetArraySize(member(item, "pieces"));
    if (!(out->pieces = ct_zalloc_array(count, sizeof *out->pieces)))
        return ct_fail(err, -ENOMEM, "manifest: out of memory for %zu pieces", count);
    (void)getrandom(keys, sizeof keys, GRND_NONBLOCK);
    cJSON_ArrayForEach(item, tensors)
    {
        if ((rc = read_pieces(out, item, keys, err)) < 0)
            return rc;
    }
    qsort(out->pieces, out->piece_count, sizeof *out->pieces, compare);
    for (size_t i = 1; i < out->piece_count; i++)
        if (compare(&out->pieces[i - 1], &out->pieces[i]) == 0 ||
            (strcmp(out->pieces[i - 1].name, out->pieces[i].name) == 0 &&
             /* Equal names at other addresses are two members of the object: JSON allows that,
              * and we do not. */
             out->pieces[i - 1].name != out->pieces[i].name))
            return bad(err, out->pieces[i].name, "it is there twice");
    return 0;
}

int ct_manifest_decode(struct ct_manifest *out, const char *json, size_t length,
                       struct ctrun_error *err)
{
    const char *format;
    int rc;

    *out = (struct ct_manifest){.step = 0};
    if ((rc = check_crc(json, length, err)) < 0)
        return rc;
    out->tree = cJSON_ParseWithLength(json, length);
    format = cJSON_GetStringValue(member(out->tree, "format"));
    if (!format || strcmp(format, format_name) != 0)
        rc = bad(err, "format", "not one that this version of ctrun reads");
    else if (!ct_json_read_number(member(out->tree, "step"), &out->step))
        rc = bad(err, "step", "not a whole number");
    else if ((rc = read_shards(out, err)) == 0)
        rc = read_tensors(out, err);
    if (rc < 0)
        ct_manifest_deinit(out);
    return rc;
}

void ct_manifest_deinit(struct ct_manifest *manifest)
{
    free(manifest->shards);
    free(manifest->pieces);
    cJSON_Delete(manifest->tree);
    *manifest = (struct ct_manifest){.step = 0};
}

const char *ct_manifest_metadata(const struct ct_manifest *manifest, const char *key)
{
    return cJSON_GetStringValue(member(member(manifest->tree, "metadata"), key));
}

const struct ct_piece *ct_manifest_find(const struct ct_manifest *manifest,
                                        const char *name, size_t *count)
{
    size_t low = 0, high = manifest->piece_count;

    while (low < high) { /* the first that is not in front of it */
        const size_t middle = low + (high - low) / 2;
        if (strcmp(manifest->pieces[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (*count = 0; low + *count < manifest->piece_count; ++*count)
        if (strcmp(manifest->pieces[low + *count].name, name) != 0)
            break;
    return *count ? &manifest->pieces[low] : NULL;
}

/* ---- Encoding ---- */

/* cJSON takes a NULL parent and then fails, so that each function here needs one check at its end. */
static bool add_sizes(cJSON *object, const char *name, const int64_t *sizes, int dims)
{
    cJSON *list = cJSON_AddArrayToObject(object, name);

    for (int i = 0; i < dims; i++) {
        cJSON *number = cJSON_CreateNumber((double)sizes[i]);
        if (!cJSON_AddItemToArray(list, number)) {
            cJSON_Delete(number);
            return false;
        }
    }
    return list != NULL;
}

static cJSON *add_object(cJSON *list)
{
    cJSON *object = cJSON_CreateObject();

    if (cJSON_AddItemToArray(list, object))
        return object;
    cJSON_Delete(object);
    return NULL;
}

static bool add_shards(cJSON *tree, const struct ct_manifest *manifest)
{
    cJSON *list = cJSON_AddArrayToObject(tree, "shards");
    char crc[9];

    for (size_t i = 0; list && i < manifest->shard_count; i++) {
        cJSON *shard = add_object(list);
        (void)ct_format(crc, sizeof crc, "%08" PRIx32, manifest->shards[i].header_crc);
        if (!cJSON_AddStringToObject(shard, "file", manifest->shards[i].file) ||
            !cJSON_AddNumberToObject(shard, "bytes",
                                     (double)manifest->shards[i].bytes) ||
            !cJSON_AddStringToObject(shard, "header_crc32c", crc))
            return false;
    }
    return list != NULL;
}

static bool add_tensors(cJSON *tree, const struct ct_manifest *manifest)
{
    cJSON *tensors = cJSON_AddObjectToObject(tree, "tensors"), *list = NULL;

    for (size_t i = 0; tensors && i < manifest->piece_count; i++) {
        const struct ct_piece *piece = &manifest->pieces[i];
        cJSON *object;

        if (i == 0 || strcmp(piece->name, piece[-1].name) != 0) {
            cJSON *tensor = cJSON_AddObjectToObject(tensors, piece->name);
            if (!cJSON_AddStringToObject(tensor, "dtype", piece->dtype) ||
                !add_sizes(tensor, "shape", piece->whole, piece->dims) ||
                !(list = cJSON_AddArrayToObject(tensor, "pieces")))
                return false;
        }
        object = add_object(list);
        if (!cJSON_AddNumberToObject(object, "shard", piece->owner) ||
            !add_sizes(object, "start", piece->start, piece->dims) ||
            !add_sizes(object, "shape", piece->size, piece->dims))
            return false;
    }
    return tensors != NULL;
}

/* Pieces of one tensor follow each other (ct_plan_make()), so each tensor is begun once. */
static char *print(const struct ct_manifest *manifest,
                   const struct ctrun_metadata *metadata, size_t metadata_count)
{
    cJSON *tree = cJSON_CreateObject(), *map = NULL;
    char *json = NULL;
    bool is_good = cJSON_AddStringToObject(tree, "format", format_name) &&
                   cJSON_AddNumberToObject(tree, "step", (double)manifest->step) &&
                   (map = cJSON_AddObjectToObject(tree, "metadata"));

    for (size_t i = 0; is_good && i < metadata_count; i++)
        is_good = cJSON_AddStringToObject(map, metadata[i].key, metadata[i].value);
    if (is_good && add_shards(tree, manifest) && add_tensors(tree, manifest))
        json = cJSON_PrintUnformatted(tree);
    cJSON_Delete(tree);
    return json;
}

int ct_manifest_encode(char **out, size_t *length, const struct ct_manifest *manifest,
                       const struct ctrun_metadata *metadata, size_t metadata_count)
{
    char *json = print(manifest, metadata, metadata_count);
    size_t bytes = json ? strlen(json) - 1 : 0; /* without the last brace */
    int rc = -ENOMEM;

    *out = NULL;
    *length = bytes + CRC_BYTES;
    if (json && *length > CT_MANIFEST_MAX_BYTES)
        rc = -E2BIG;
    else if (json && (*out = ct_zalloc(*length + 1))) {
        memcpy(*out, json, bytes);
        rc = ct_format(*out + bytes, CRC_BYTES + 1, crc_form,
                       ct_crc32c(0, json, bytes));
    }
    cJSON_free(json);
    return rc < 0 ? rc : 0;
}
