/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/recorder/json_recorder.h"

#include <cjson/cJSON.h>
#include <errno.h>

#include "agent/error_file/json.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"

/* torch's number of the first group, and its name on all ranks. */
static const char first_id[] = "0", first_name[] = "0";

static void copy_plain(char *dst, size_t size, const char *text)
{
    (void)ct_copy(dst, size, text ? text : ""); /* cut: only for display */
    ct_make_plain(dst, false);
}

static void copy_group(char dst[RECORDER_NAME_MAX], const char *kind, const char *name)
{
    char text[RECORDER_NAME_MAX];

    (void)ct_format(text, sizeof text, "%s%s", kind, name ? name : ""); /* or cut */
    copy_plain(dst, RECORDER_NAME_MAX, text);
}

int64_t recorder_view_find(const struct recorder_view *view, const char *group)
{
    for (int i = 0; i < view->group_count; i++)
        if (strcmp(view->groups[i].name, group) == 0)
            return view->groups[i].entered;
    return -1;
}

const struct recorder_call *recorder_view_recent(const struct recorder_view *view,
                                                 const char *group, int64_t number)
{
    for (int i = 0; i < view->recent_count; i++)
        if (view->recent[i].number == number &&
            strcmp(view->recent[i].group, group) == 0)
            return &view->recent[i];
    return NULL;
}

void recorder_view_add(struct recorder_view *view, const struct recorder_view *other)
{
    for (int i = 0; i < other->group_count && view->group_count < RECORDER_GROUPS_MAX;
         i++)
        view->groups[view->group_count++] = other->groups[i];
    for (int i = 0; i < other->recent_count && view->recent_count < RECORDER_RECENT_MAX;
         i++)
        view->recent[view->recent_count++] = other->recent[i];
    if (*other->oldest.op &&
        (!*view->oldest.op || other->oldest.entered_ns < view->oldest.entered_ns))
        view->oldest = other->oldest;
    if (*other->newest.op &&
        (!*view->newest.op || other->newest.entered_ns > view->newest.entered_ns))
        view->newest = other->newest;
}

/* ---- Sizes ------------------------------------------------------------------------------- */

/* "[3,4]" */
static int add_dims(char *dst, size_t size, const cJSON *dims)
{
    const cJSON *dim;
    size_t used = strlen(dst);
    int rc = ct_format(dst + used, size - used, "[");

    cJSON_ArrayForEach(dim, dims)
    {
        used = strlen(dst);
        if (rc < 0 || !cJSON_IsNumber(dim))
            return -EBADMSG;
        rc = ct_format(dst + used, size - used, "%s%.0f", dim == dims->child ? "" : ",",
                       dim->valuedouble);
    }
    used = strlen(dst);
    return rc < 0 ? rc : ct_format(dst + used, size - used, "]");
}

/* Reads as many tensors as there is room for. */
static void read_sizes(char *dst, size_t size, const cJSON *entry)
{
    const cJSON *type = json_get(entry, "input_dtypes");
    const cJSON *dims;

    *dst = '\0';
    type = cJSON_IsArray(type) ? type->child : NULL;
    cJSON_ArrayForEach(dims, json_get(entry, "input_sizes"))
    {
        const size_t used = strlen(dst);
        const char *name = cJSON_GetStringValue(type);

        if (ct_format(dst + used, size - used, "%s%.16s", used ? " " : "",
                      name ? name : "") < 0 ||
            add_dims(dst, size, dims) < 0) {
            dst[used] = '\0';
            break;
        }
        type = type ? type->next : NULL;
    }
    ct_make_plain(dst, false);
}

/* ---- Calls ------------------------------------------------------------------------------- */

static bool is_complete(const cJSON *entry)
{
    const char *state = cJSON_GetStringValue(json_get(entry, "state"));

    return cJSON_IsTrue(json_get(entry, "retired")) ||
           (state && strcmp(state, "completed") == 0);
}

static void read_call(struct recorder_call *out, const char *kind, const cJSON *entry)
{
    const cJSON *group = json_get(entry, "process_group");
    const bool is_pair = cJSON_IsTrue(json_get(entry, "is_p2p"));
    const cJSON *name = cJSON_IsArray(group) ? group->child : NULL;

    *out = (struct recorder_call){
        .number = json_get_i64(entry, is_pair ? "p2p_seq_id" : "collective_seq_id", 0),
        .entered_ns = json_get_u64(entry, "time_created_ns"),
    };
    if (!is_pair)
        copy_group(out->group, kind, cJSON_GetStringValue(name));
    copy_plain(out->title, sizeof out->title,
               cJSON_GetStringValue(name ? name->next : NULL));
    copy_plain(out->op, sizeof out->op,
               cJSON_GetStringValue(json_get(entry, "profiling_name")));
    read_sizes(out->sizes, sizeof out->sizes, entry);
}

/* Entries come in the order of the calls. */
static void read_calls(struct recorder_view *out, const char *kind,
                       const cJSON *entries)
{
    const cJSON *entry, *oldest = NULL, *newest = NULL;

    cJSON_ArrayForEach(entry, entries)
    {
        if (!cJSON_IsObject(entry))
            continue;
        if (!oldest && !is_complete(entry))
            oldest = entry;
        newest = entry;
    }
    for (; newest && cJSON_IsObject(newest) && out->recent_count < RECORDER_RECENT_MAX;
         newest = newest == entries->child ? NULL : newest->prev)
        read_call(&out->recent[out->recent_count++], kind, newest);
    if (out->recent_count > 0)
        out->newest = out->recent[0];
    if (oldest)
        read_call(&out->oldest, kind, oldest);
}

/* ---- Groups ------------------------------------------------------------------------------ */

/* The name of the group with this number in this process: only calls have it. */
static const char *find_name(const cJSON *entries, const char *id)
{
    const cJSON *entry;
    int64_t number;

    if (ct_parse_i64(id, 0, INT64_MAX, &number) < 0)
        return NULL;
    cJSON_ArrayForEach(entry, entries)
    {
        const cJSON *group = json_get(entry, "process_group");

        if (cJSON_IsArray(group) && json_get_i64(entry, "pg_id", -1) == number)
            return cJSON_GetStringValue(group->child);
    }
    return strcmp(id, first_id) == 0 ? first_name : NULL;
}

static void read_groups(struct recorder_view *out, const char *kind,
                        const cJSON *status, const cJSON *entries)
{
    const cJSON *group;

    cJSON_ArrayForEach(group, status)
    {
        const char *name = group->string ? find_name(entries, group->string) : NULL;
        struct recorder_group *to = &out->groups[out->group_count];

        if (!name || !cJSON_IsObject(group) || out->group_count == RECORDER_GROUPS_MAX)
            continue;
        copy_group(to->name, kind, name);
        to->entered = json_get_i64(group, "last_enqueued_collective", -1);
        out->group_count += to->entered >= 0;
    }
}

int json_recorder_read(struct recorder_view *out, const char *kind, const char *text,
                       size_t length)
{
    cJSON *root = json_parse(text, length);
    const cJSON *entries;

    *out = (struct recorder_view){0};
    if (!root)
        return -EBADMSG;
    entries = json_get(root, "entries");
    entries = cJSON_IsArray(entries) ? entries : NULL;
    read_calls(out, kind, entries);
    if (cJSON_IsObject(json_get(root, "pg_status")))
        read_groups(out, kind, json_get(root, "pg_status"), entries);
    cJSON_Delete(root);
    return 0;
}

/* ---- All calls --------------------------------------------------------------------------- */

/* A hash of the operation and its sizes. */
static uint64_t hash_shape(const cJSON *entry)
{
    const char *op = cJSON_GetStringValue(json_get(entry, "profiling_name"));
    uint64_t hash = op ? ct_hash(op, strlen(op)) : CT_HASH_START;
    const cJSON *dims, *dim;

    cJSON_ArrayForEach(dims, json_get(entry, "input_sizes"))
    {
        hash = ct_hash_add(hash, ",", 1);
        cJSON_ArrayForEach(dim, dims)
            hash = ct_hash_add(hash, &dim->valuedouble, sizeof dim->valuedouble);
    }
    return hash;
}

static bool take_collective(struct straggler_call *out, const char *kind,
                            const cJSON *entry)
{
    const cJSON *group = json_get(entry, "process_group");
    const cJSON *name = cJSON_IsArray(group) ? group->child : NULL;
    char text[RECORDER_NAME_MAX];

    *out = (struct straggler_call){
        .number = json_get_i64(entry, "collective_seq_id", 0),
        .entered_ns = json_get_u64(entry, "time_created_ns"),
        .shape = hash_shape(entry)};
    copy_group(text, kind, cJSON_GetStringValue(name));
    out->group = ct_hash(text, strlen(text));
    return name && out->number > 0 && out->entered_ns > 0 &&
           !cJSON_IsTrue(json_get(entry, "is_p2p"));
}

int json_recorder_read_calls(struct straggler_call **out, const char *kind,
                             const char *text, size_t length)
{
    cJSON *root = json_parse(text, length);
    const cJSON *entries = json_get(root, "entries"), *entry;
    const int all = cJSON_IsArray(entries) ? cJSON_GetArraySize(entries) : 0;
    int skip = all > STRAGGLER_CALLS_MAX ? all - STRAGGLER_CALLS_MAX : 0;
    int count = 0;

    *out = NULL;
    if (all > skip)
        *out = ct_zalloc_array((size_t)(all - skip), sizeof **out);
    if (*out)
        cJSON_ArrayForEach(entry, entries)
        {
            if (skip > 0)
                skip--;
            else
                count += take_collective(&(*out)[count], kind, entry);
        }
    cJSON_Delete(root);
    return !root ? -EBADMSG : all > 0 && !*out ? -ENOMEM : count;
}

/* ---- A trace ----------------------------------------------------------------------------- */

/* "X" has a duration; "i" has none, because the recorder does not know when the call ended. */
static int add_event(struct ct_buf *out, int rank, uint64_t now_ns, const cJSON *entry)
{
    struct recorder_call call;
    const bool is_over = is_complete(entry);
    const uint64_t ended_ns = json_get_u64(entry, "time_discovered_completed_ns");
    const uint64_t end_ns = is_over ? ended_ns : now_ns;
    int rc;

    read_call(&call, "", entry);
    if ((rc = ct_buf_printf(out, ",\n{\"name\":")) < 0 ||
        (rc = ct_json_append_str(out, call.op)) < 0 ||
        (rc = ct_buf_printf(out, ",\"pid\":%d,\"tid\":%lld,\"ts\":%.3f", rank,
                            (long long)json_get_i64(entry, "pg_id", -1) + 1,
                            (double)call.entered_ns / 1e3)) < 0)
        return rc;
    rc = end_ns > call.entered_ns
             ? ct_buf_printf(out, ",\"ph\":\"X\",\"dur\":%.3f",
                             (double)(end_ns - call.entered_ns) / 1e3)
             : ct_buf_printf(out, ",\"ph\":\"i\",\"s\":\"t\"");
    if (rc < 0 ||
        (rc = ct_buf_printf(out, ",\"args\":{\"number\":%lld,\"is_over\":%s,\"group\":",
                            (long long)call.number, is_over ? "true" : "false")) < 0 ||
        (rc = ct_json_append_str(out, *call.title ? call.title : call.group)) < 0 ||
        (rc = ct_buf_printf(out, ",\"sizes\":")) < 0 ||
        (rc = ct_json_append_str(out, call.sizes)) < 0)
        return rc;
    return ct_buf_printf(out, "}}");
}

int json_recorder_add_trace(struct ct_buf *out, int rank, int most, uint64_t now_ns,
                            const char *text, size_t length, bool is_first)
{
    cJSON *root = json_parse(text, length);
    const cJSON *entries = json_get(root, "entries"), *entry;
    int skip = cJSON_IsArray(entries) ? cJSON_GetArraySize(entries) - most : 0;
    int rc = !root
                 ? -EBADMSG
                 : ct_buf_printf(out,
                                 "%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,"
                                 "\"args\":{\"name\":\"rank %d\"}}",
                                 is_first ? "" : ",\n", rank, rank);

    cJSON_ArrayForEach(entry, entries)
    {
        if (skip-- > 0 || rc < 0 || !cJSON_IsObject(entry))
            continue;
        rc = add_event(out, rank, now_ns, entry);
    }
    cJSON_Delete(root);
    return rc < 0 ? rc : 0;
}
