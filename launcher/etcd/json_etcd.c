/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/etcd/json_etcd.h"

#include <cjson/cJSON.h>
#include <errno.h>

#include "agent/error_file/json.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/text_code.h"

/* ---- Requests ------------------------------------------------------------------------ */

/* ,"name":"base64" and so on: whatever comes first in an object brings no comma. */
static int add_bytes(struct ct_buf *out, const char *before, const void *data,
                     size_t length)
{
    int rc = ct_buf_printf(out, "%s\"", before);

    if (rc >= 0)
        rc = ct_base64_encode(out, data, length);
    return rc < 0 ? rc : ct_buf_printf(out, "\"");
}

static int add_key(struct ct_buf *out, const char *before, const char *key)
{
    return add_bytes(out, before, key, strlen(key));
}

int json_etcd_texts(struct ct_buf *out, const char *name, const char *text,
                    const char *name2, const char *text2)
{
    cJSON *root = cJSON_CreateObject();
    char *json = NULL;
    int rc = -ENOMEM;

    if (root && cJSON_AddStringToObject(root, name, text) &&
        (!name2 || cJSON_AddStringToObject(root, name2, text2)) &&
        (json = cJSON_PrintUnformatted(root)))
        rc = ct_buf_append(out, json, strlen(json));
    cJSON_free(json);
    cJSON_Delete(root);
    return rc;
}

int json_etcd_login(struct ct_buf *out, const char *user, const char *password)
{
    return json_etcd_texts(out, "name", user, "password", password);
}

int json_etcd_member_add(struct ct_buf *out, const char *peer_url)
{
    return ct_buf_printf(out, "{\"peerURLs\":[\"%s\"],\"isLearner\":true}", peer_url);
}

int json_etcd_grant(struct ct_buf *out, int64_t ttl_s)
{
    return ct_buf_printf(out, "{\"TTL\":\"%lld\"}", (long long)ttl_s);
}

int json_etcd_lease(struct ct_buf *out, int64_t lease)
{
    return ct_buf_printf(out, "{\"ID\":\"%lld\"}", (long long)lease);
}

int json_etcd_range(struct ct_buf *out, const char *key)
{
    int rc = add_key(out, "{\"key\":", key);

    return rc < 0 ? rc : ct_buf_printf(out, "}");
}

int json_etcd_watch(struct ct_buf *out, const char *key, int64_t start_revision)
{
    int rc = add_key(out, "{\"create_request\":{\"key\":", key);

    return rc < 0 ? rc
                  : ct_buf_printf(out, ",\"start_revision\":\"%lld\"}}",
                                  (long long)start_revision);
}

static int add_op(struct ct_buf *out, const struct json_etcd_op *op, const char *comma)
{
    int rc = ct_buf_printf(out, "%s{\"request_%s\":", comma,
                           op->value ? "put" : "delete_range");

    if (rc < 0 || (rc = add_key(out, "{\"key\":", op->key)) < 0)
        return rc;
    if (op->value && (rc = add_bytes(out, ",\"value\":", op->value, op->length)) < 0)
        return rc;
    if (op->value && op->lease != 0 &&
        (rc = ct_buf_printf(out, ",\"lease\":\"%lld\"", (long long)op->lease)) < 0)
        return rc;
    return ct_buf_printf(out, "}}");
}

static int add_guard(struct ct_buf *out, const struct json_etcd_guard *guard)
{
    int rc = add_key(out, "{\"compare\":[{\"key\":", guard->key);

    if (rc < 0 || (rc = ct_buf_printf(out,
                                      ",\"target\":\"CREATE\",\"result\":\"EQUAL\","
                                      "\"create_revision\":\"%lld\"}",
                                      (long long)guard->create_revision)) < 0)
        return rc;
    if (guard->unchanged &&
        ((rc = add_key(out, ",{\"key\":", guard->unchanged)) < 0 ||
         (rc = ct_buf_printf(out,
                             ",\"target\":\"MOD\",\"result\":\"LESS\","
                             "\"mod_revision\":\"%lld\"}",
                             (long long)guard->revision + 1)) < 0))
        return rc;
    return ct_buf_printf(out, "],\"success\":[");
}

int json_etcd_txn(struct ct_buf *out, const struct json_etcd_guard *guard,
                  const struct json_etcd_op *ops, size_t count)
{
    int rc = add_guard(out, guard);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < count; i++)
        if ((rc = add_op(out, &ops[i], i ? "," : "")) < 0)
            return rc;
    rc = add_key(out, "],\"failure\":[{\"request_range\":{\"key\":", guard->key);
    return rc < 0 ? rc : ct_buf_printf(out, "}}]}");
}

/* ---- Answers ------------------------------------------------------------------------- */

/* The size is checked before anything is allocated: the answer may not be from an etcd. */
static int read_value(struct json_etcd_kv *out, const char *text)
{
    const size_t length = text ? strlen(text) : 0;
    const size_t room = length / 4 * 3;
    int bytes;

    if (room > JSON_ETCD_VALUE_MAX_BYTES + 2) /* of which padding may be */
        return -EBADMSG;
    if (!(out->value = ct_zalloc(room + 1)))
        return -ENOMEM;
    bytes = ct_base64_decode(out->value, room, text, length);
    out->length = bytes > 0 ? (size_t)bytes : 0;
    return bytes > JSON_ETCD_VALUE_MAX_BYTES ? -EBADMSG : bytes < 0 ? bytes : 0;
}

static int read_key(struct json_etcd_kv *out, const char *text)
{
    const size_t length = text ? strlen(text) : 0;
    const int bytes = ct_base64_decode(out->key, sizeof out->key - 1, text, length);

    out->key[bytes > 0 ? bytes : 0] = '\0';
    return bytes < 0 ? bytes : 0;
}

static int read_kv(struct json_etcd_kv *out, const cJSON *item)
{
    int rc;

    out->create_revision = json_get_i64(item, "create_revision", 0);
    out->mod_revision = json_get_i64(item, "mod_revision", 0);
    out->lease = json_get_i64(item, "lease", 0);
    rc = read_key(out, cJSON_GetStringValue(json_get(item, "key")));
    return rc < 0 ? rc : read_value(out, cJSON_GetStringValue(json_get(item, "value")));
}

/* `list` holds kvs, or with is_events objects that have one each.
 * A reply has one list at most; after a failure count covers those that were begun, so that
 * deinit frees their values. */
static int read_kvs(struct json_etcd_reply *out, const cJSON *list, bool is_events)
{
    const int count = cJSON_GetArraySize(list);
    const cJSON *item;
    int rc = 0;

    if (count <= 0 || out->kvs)
        return 0;
    if (count > JSON_ETCD_KVS_MAX)
        return -EBADMSG;
    if (!(out->kvs = ct_zalloc_array((size_t)count, sizeof *out->kvs)))
        return -ENOMEM;
    cJSON_ArrayForEach(item, list)
    {
        const char *type = cJSON_GetStringValue(json_get(item, "type"));
        struct json_etcd_kv *kv = &out->kvs[out->count++];

        if ((rc = read_kv(kv, is_events ? json_get(item, "kv") : item)) < 0)
            break;
        kv->is_deleted = is_events && type && strcmp(type, "DELETE") == 0;
    }
    return rc;
}

static void read_error(struct json_etcd_reply *out, const cJSON *root)
{
    const cJSON *error = json_get(root, "error");

    if (cJSON_IsObject(error)) { /* a stream's */
        out->code = (int)json_get_i64(error, "grpc_code", 0);
        json_get_text(error, "message", out->message, sizeof out->message);
    } else if (error) {
        out->code = (int)json_get_i64(root, "code", 0);
        json_get_text(root, "error", out->message, sizeof out->message);
    }
    if (error && out->code == 0)
        out->code = JSON_ETCD_UNAVAILABLE;
}

static const char *first_text(const cJSON *list)
{
    const char *text = cJSON_GetStringValue(cJSON_GetArrayItem(list, 0));

    return text ? text : "";
}

static void read_members(struct json_etcd_reply *out, const cJSON *list)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, list)
    {
        struct json_etcd_member *member = &out->members[out->member_count];

        if (out->member_count == JSON_ETCD_MEMBERS_MAX)
            return;
        out->member_count++;
        json_get_text(item, "ID", member->id, sizeof member->id);
        json_get_text(item, "name", member->name, sizeof member->name);
        (void)ct_copy(member->peer_url, sizeof member->peer_url,
                      first_text(json_get(item, "peerURLs")));
        (void)ct_copy(member->client_url, sizeof member->client_url,
                      first_text(json_get(item, "clientURLs")));
        member->is_learner = cJSON_IsTrue(json_get(item, "isLearner"));
    }
}

static int read_object(struct json_etcd_reply *out, const cJSON *object)
{
    const char *token = cJSON_GetStringValue(json_get(object, "token"));
    const cJSON *response;
    int rc;

    out->revision = json_get_i64(json_get(object, "header"), "revision", 0);
    out->raft_term = json_get_i64(json_get(object, "header"), "raft_term", 0);
    out->lease = json_get_i64(object, "ID", 0);
    out->ttl_s = json_get_i64(object, "TTL", 0);
    out->succeeded = cJSON_IsTrue(json_get(object, "succeeded"));
    out->is_created = cJSON_IsTrue(json_get(object, "created"));
    out->is_canceled = cJSON_IsTrue(json_get(object, "canceled"));
    out->compact_revision = json_get_i64(object, "compact_revision", 0);
    json_get_text(object, "leader", out->leader, sizeof out->leader);
    json_get_text(json_get(object, "header"), "member_id", out->member,
                  sizeof out->member);
    read_members(out, json_get(object, "members"));
    if (token && strlen(token) >= sizeof out->token)
        return -EMSGSIZE;
    json_get_text(object, "token", out->token, sizeof out->token);
    if (out->is_canceled)
        json_get_text(object, "cancel_reason", out->message, sizeof out->message);
    if ((rc = read_kvs(out, json_get(object, "kvs"), false)) < 0 ||
        (rc = read_kvs(out, json_get(object, "events"), true)) < 0)
        return rc;
    cJSON_ArrayForEach(response, json_get(object, "responses"))
    {
        rc = read_kvs(out, json_get(json_get(response, "response_range"), "kvs"),
                      false);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int json_etcd_read(struct json_etcd_reply *out, const char *text, size_t length)
{
    cJSON *root = json_parse(text, length);
    const cJSON *result;
    int rc;

    *out = (struct json_etcd_reply){0};
    if (!root)
        return -EBADMSG;
    read_error(out, root);
    result = json_get(root, "result");
    rc = read_object(out, cJSON_IsObject(result) ? result : root);
    cJSON_Delete(root);
    if (rc < 0)
        json_etcd_reply_deinit(out);
    return rc;
}

void json_etcd_reply_deinit(struct json_etcd_reply *reply)
{
    for (size_t i = 0; i < reply->count; i++)
        free(reply->kvs[i].value);
    free(reply->kvs);
    *reply = (struct json_etcd_reply){0};
}
