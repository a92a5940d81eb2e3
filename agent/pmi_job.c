/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pmi_job.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    WORDS_MAX = 16
};

static const char kvs_name[] = "kvs_ctrun";

struct entry {
    char *key; /* owned, the value behind its NUL */
    const char *value;
};

struct pmi_job {
    int size;
    int waiting; /* in the barrier */
    bool *is_in;
    struct entry *entries;
    size_t count;
    size_t capacity;
};

/* ---- Words ----------------------------------------------------------------------------- */

struct word {
    const char *key;
    const char *value;
};

struct request {
    struct word words[WORDS_MAX];
    size_t count;
};

/* What is behind msg= or message= may hold blanks; nobody reads it. */
static int cut(struct request *out, char *line)
{
    out->count = 0;
    for (char *at = line; *at && out->count < WORDS_MAX;) {
        char *end = at + strcspn(at, " ");
        char *equals;

        if (*end)
            *end++ = '\0';
        if ((equals = strchr(at, '='))) {
            *equals = '\0';
            out->words[out->count++] = (struct word){at, equals + 1};
        }
        at = end;
    }
    return out->count > 0 && strcmp(out->words[0].key, "cmd") == 0 ? 0 : -EPROTO;
}

/* NULL: not there. */
static const char *find_word(const struct request *request, const char *key)
{
    for (size_t i = 1; i < request->count; i++)
        if (strcmp(request->words[i].key, key) == 0)
            return request->words[i].value;
    return NULL;
}

__attribute__((format(printf, 2, 3))) static int answer(struct pmi_reply *out,
                                                        const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(out->text, sizeof out->text, format, args);
    va_end(args);
    out->length = n > 0 && (size_t)n < sizeof out->text ? (size_t)n : 0;
    return out->length > 0 ? 0 : -EPROTO;
}

/* ---- Keys ------------------------------------------------------------------------------ */

static struct entry *find_entry(const struct pmi_job *job, const char *key)
{
    for (size_t i = 0; i < job->count; i++)
        if (strcmp(job->entries[i].key, key) == 0)
            return &job->entries[i];
    return NULL;
}

static int make_room(struct pmi_job *job)
{
    const size_t most = (size_t)job->size * PMI_ENTRIES_EACH + 1;
    const size_t capacity = job->capacity ? job->capacity * 2 : 64;
    struct entry *entries;

    if (job->count >= most)
        return -ENOSPC;
    if (job->count < job->capacity)
        return 0;
    if (!(entries = reallocarray(job->entries, capacity, sizeof *entries)))
        return -ENOMEM;
    job->entries = entries;
    job->capacity = capacity;
    return 0;
}

static int set_entry(struct pmi_job *job, const char *key, const char *value)
{
    const size_t key_size = strlen(key) + 1;
    const size_t value_size = strlen(value) + 1;
    struct entry *entry = find_entry(job, key);
    char *memory;
    int rc;

    if (!entry && (rc = make_room(job)) < 0)
        return rc;
    if (!(memory = ct_zalloc(key_size + value_size)))
        return -ENOMEM;
    memcpy(memory, key, key_size);
    memcpy(memory + key_size, value, value_size);
    if (entry)
        free(entry->key);
    else
        entry = &job->entries[job->count++];
    *entry = (struct entry){memory, memory + key_size};
    return 0;
}

/* ---- Requests ---------------------------------------------------------------------------- */

static int on_init(struct pmi_job *job, const struct request *request, int rank,
                   struct pmi_reply *out)
{
    const char *version = find_word(request, "pmi_version");

    (void)job;
    (void)rank;
    return answer(out, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=%d\n",
                  version && strcmp(version, "1") == 0 ? 0 : -1);
}

static int on_maxes(struct pmi_job *job, const struct request *request, int rank,
                    struct pmi_reply *out)
{
    (void)job;
    (void)request;
    (void)rank;
    return answer(out, "cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d rc=0\n",
                  PMI_KVS_MAX, PMI_KEY_MAX, PMI_VALUE_MAX);
}

static int on_appnum(struct pmi_job *job, const struct request *request, int rank,
                     struct pmi_reply *out)
{
    (void)job;
    (void)request;
    (void)rank;
    return answer(out, "cmd=appnum appnum=0 rc=0\n");
}

static int on_kvsname(struct pmi_job *job, const struct request *request, int rank,
                      struct pmi_reply *out)
{
    (void)job;
    (void)request;
    (void)rank;
    return answer(out, "cmd=my_kvsname kvsname=%s rc=0\n", kvs_name);
}

static int on_universe(struct pmi_job *job, const struct request *request, int rank,
                       struct pmi_reply *out)
{
    (void)request;
    (void)rank;
    return answer(out, "cmd=universe_size size=%d rc=0\n", job->size);
}

static int on_put(struct pmi_job *job, const struct request *request, int rank,
                  struct pmi_reply *out)
{
    const char *key = find_word(request, "key");
    const char *value = find_word(request, "value");
    const char *kvs = find_word(request, "kvsname");
    int rc = 0;

    (void)rank;
    if (!key || !*key || !value || strlen(key) >= PMI_KEY_MAX ||
        strlen(value) >= PMI_VALUE_MAX || !kvs || strcmp(kvs, kvs_name) != 0)
        rc = -EINVAL;
    else
        rc = set_entry(job, key, value);
    if (rc == -ENOMEM)
        return rc;
    return answer(out, "cmd=put_result rc=%d msg=%s\n", rc ? -1 : 0,
                  rc == 0         ? "success"
                  : rc == -ENOSPC ? "no_room"
                                  : "invalid");
}

static int on_get(struct pmi_job *job, const struct request *request, int rank,
                  struct pmi_reply *out)
{
    const char *key = find_word(request, "key");
    const char *kvs = find_word(request, "kvsname");
    const struct entry *entry = key && kvs && strcmp(kvs, kvs_name) == 0
                                    ? find_entry(job, key)
                                    : NULL;

    (void)rank;
    if (!entry)
        return answer(out, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    return answer(out, "cmd=get_result rc=0 msg=success value=%s\n", entry->value);
}

static int on_by_index(struct pmi_job *job, const struct request *request, int rank,
                       struct pmi_reply *out)
{
    const char *text = find_word(request, "idx");
    uint64_t index;

    (void)rank;
    if (!text || ct_parse_u64(text, 0, UINT32_MAX, &index) < 0)
        return answer(out, "cmd=getbyidx_results rc=-1 reason=invalid\n");
    if (index >= job->count)
        return answer(out, "cmd=getbyidx_results rc=-2 reason=no_more_keyvals\n");
    return answer(out, "cmd=getbyidx_results rc=0 nextidx=%llu key=%s val=%s\n",
                  (unsigned long long)index + 1, job->entries[index].key,
                  job->entries[index].value);
}

static int on_barrier(struct pmi_job *job, const struct request *request, int rank,
                      struct pmi_reply *out)
{
    (void)request;
    if (job->is_in[rank]) /* it was to wait */
        return -EPROTO;
    job->is_in[rank] = true;
    out->act = PMI_WAIT;
    if (++job->waiting < job->size)
        return 0;
    job->waiting = 0;
    memset(job->is_in, 0, (size_t)job->size * sizeof *job->is_in);
    out->act = PMI_ANSWER_ALL;
    return answer(out, "cmd=barrier_out rc=0\n");
}

static int on_finalize(struct pmi_job *job, const struct request *request, int rank,
                       struct pmi_reply *out)
{
    (void)job;
    (void)request;
    (void)rank;
    out->act = PMI_GOODBYE;
    return answer(out, "cmd=finalize_ack rc=0\n");
}

/* No answer: a client that gets one goes on, and may well exit with 0. */
static int on_abort(struct pmi_job *job, const struct request *request, int rank,
                    struct pmi_reply *out)
{
    const char *text = find_word(request, "exitcode");
    int64_t code;

    (void)job;
    (void)rank;
    out->act = PMI_ABORT;
    out->exit_code = 1;
    if (text && ct_parse_i64(text, INT32_MIN, INT32_MAX, &code) == 0 && (code & 0xff))
        out->exit_code = (int)(code & 0xff); /* what exit() would leave of it */
    return 0;
}

static const struct {
    const char *name;
    int (*serve)(struct pmi_job *job, const struct request *request, int rank,
                 struct pmi_reply *out);
} commands[] = {
    {"init", on_init},
    {"get_maxes", on_maxes},
    {"get_appnum", on_appnum},
    {"get_my_kvsname", on_kvsname},
    {"get_universe_size", on_universe},
    {"put", on_put},
    {"get", on_get},
    {"getbyidx", on_by_index},
    {"barrier_in", on_barrier},
    {"finalize", on_finalize},
    {"abort", on_abort},
};

/* Its client reads on: publish_name is answered by publish_result. */
static int refuse(const char *name, struct pmi_reply *out)
{
    static const struct {
        const char *name;
        const char *result;
    } known[] = {
        {"publish_name", "publish_result"},
        {"unpublish_name", "unpublish_result"},
        {"lookup_name", "lookup_result"},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return answer(out, "cmd=%s rc=-1 info=unsupported\n", known[i].result);
    return -EPROTO;
}

int pmi_job_serve(struct pmi_job *job, int rank, char *line, struct pmi_reply *out)
{
    struct request request;

    out->act = PMI_ANSWER;
    out->length = 0;
    if (rank < 0 || rank >= job->size || cut(&request, line) < 0)
        return -EPROTO;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(request.words[0].value, commands[i].name) == 0)
            return commands[i].serve(job, &request, rank, out);
    return refuse(request.words[0].value, out);
}

/* ---- Life ------------------------------------------------------------------------------ */

struct pmi_job *pmi_job_create(int size)
{
    struct pmi_job *job = ct_zalloc(sizeof *job);
    char mapping[64];

    /* "from node 0 on, 1 node, `size` processes each": they share memory */
    (void)ct_format(mapping, sizeof mapping, "(vector,(0,1,%d))", size);
    if (job) {
        job->size = size;
        job->is_in = ct_zalloc_array((size_t)size, sizeof *job->is_in);
    }
    if (job && job->is_in && set_entry(job, "PMI_process_mapping", mapping) == 0)
        return job;
    pmi_job_destroy(job);
    return NULL;
}

void pmi_job_destroy(struct pmi_job *job)
{
    if (!job)
        return;
    for (size_t i = 0; i < job->count; i++)
        free(job->entries[i].key);
    free(job->entries);
    free(job->is_in);
    free(job);
}
