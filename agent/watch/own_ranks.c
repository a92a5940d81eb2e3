/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/own_ranks.h"

#include <errno.h>

#include "agent/process/reap.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    ENVIRON_MAX_BYTES = 64 * 1024,
    WORDS_MAX_BYTES = 4096,
};

/* NUL-terminated pieces, as /proc has them. */
struct pieces {
    size_t length;
    char *text; /* of `size` bytes */
    size_t size;
};

/* State of one walk through /proc. All that is read there comes from the user: lengths are capped,
 * and text is made plain before it is shown. */
struct look {
    struct own_ranks *out;
    const pid_t *workers;
    int count;
    struct pieces worker_env, env, words, parent_words;
    pid_t known; /* the worker of worker_env */
};

static void read_pieces(struct pieces *out, pid_t pid, const char *file)
{
    const ssize_t length = ct_small_file_of(out->text, out->size, pid, 0, file);

    out->length = length > 0 ? (size_t)length : 0;
}

static const char *find(const struct pieces *env, const char *name)
{
    const size_t length = strlen(name);

    for (size_t at = 0; at < env->length; at += strlen(env->text + at) + 1)
        if (strncmp(env->text + at, name, length) == 0 && env->text[at + length] == '=')
            return env->text + at + length + 1;
    return "";
}

static bool are_equal(const struct pieces *a, const struct pieces *b)
{
    return a->length > 0 && a->length == b->length &&
           memcmp(a->text, b->text, a->length) == 0;
}

static bool has_word(const struct pieces *words, const char *part)
{
    for (size_t at = 0; at < words->length; at += strlen(words->text + at) + 1)
        if (strstr(words->text + at, part))
            return true;
    return false;
}

static void add_pair(char *dst, size_t size, const char *name, const char *value)
{
    if (*value)
        (void)ct_append_item(dst, size, " ", "%s=%.48s", name, value); /* cut is fine */
}

/* Compares the variables of the process with those of the worker. */
static void compare(const struct look *look, struct own_ranks *out)
{
    static const char *const names[] = {CT_ENV_RANK, CT_ENV_WORLD_SIZE,
                                        CT_ENV_MASTER_ADDR, CT_ENV_MASTER_PORT};
    uint64_t port;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *ours = find(&look->worker_env, names[i]);
        const char *theirs = find(&look->env, names[i]);

        if (!*theirs || strcmp(ours, theirs) == 0)
            continue;
        add_pair(out->theirs, sizeof out->theirs, names[i], theirs);
        add_pair(out->ours, sizeof out->ours, names[i], ours);
        if (strcmp(names[i], CT_ENV_MASTER_PORT) == 0 &&
            ct_parse_u64(theirs, 1, UINT16_MAX, &port) == 0)
            out->port = (int)port;
    }
    ct_make_plain(out->theirs, false);
    ct_make_plain(out->ours, false);
}

static void note(struct look *look, const struct reap_process *process)
{
    struct own_ranks *out = look->out;
    struct own_ranks found = {.worker = process->session, .first = process->pid};

    if (out->worker != 0 && out->worker != process->session)
        return;
    /* A worker leads its session, so the session's number is its pid. Keeps what was read of the
     * last worker. */
    if (look->known != process->session)
        read_pieces(&look->worker_env, process->session, "environ");
    look->known = process->session;
    read_pieces(&look->env, process->pid, "environ");
    read_pieces(&look->words, process->pid, "cmdline");
    read_pieces(&look->parent_words, process->parent, "cmdline");
    /* Skips what cannot be read, a helper of multiprocessing that trains nothing, and a launcher of
     * ours inside the worker, which manages its own ranks. */
    if (look->env.length == 0 || has_word(&look->words, "multiprocessing.resource_") ||
        strcmp(find(&look->env, CT_ENV_AGENT_SOCKET),
               find(&look->worker_env, CT_ENV_AGENT_SOCKET)) != 0)
        return;
    compare(look, &found);
    if (!*found.theirs && !are_equal(&look->words, &look->parent_words) &&
        !has_word(&look->words, "multiprocessing.spawn") &&
        !has_word(&look->words, "multiprocessing.forkserver"))
        return;
    found.count = out->count + 1;
    found.cpu_ticks = out->cpu_ticks;
    /* The order of /proc is not reliable: always reports the lowest pid. */
    if (out->count > 0 && out->first < process->pid)
        out->count++;
    else
        *out = found;
}

static void visit(void *context, const struct reap_process *process)
{
    struct look *look = context;

    for (int i = 0; i < look->count; i++) {
        if (look->workers[i] != process->session)
            continue;
        look->out->cpu_ticks += ct_small_file_ticks(process->pid);
        if (process->pid != process->session)
            note(look, process);
    }
}

static bool make(struct pieces *out, size_t size)
{
    *out = (struct pieces){.size = size, .text = ct_zalloc(size)};
    return out->text != NULL;
}

int own_ranks_look(struct own_ranks *out, const pid_t *workers, int count)
{
    struct look look = {.out = out, .workers = workers, .count = count};
    const bool has_all = make(&look.worker_env, ENVIRON_MAX_BYTES) &&
                         make(&look.env, ENVIRON_MAX_BYTES) &&
                         make(&look.words, WORDS_MAX_BYTES) &&
                         make(&look.parent_words, WORDS_MAX_BYTES);

    *out = (struct own_ranks){0};
    if (has_all)
        (void)reap_scan(NULL, visit, &look);
    free(look.worker_env.text);
    free(look.env.text);
    free(look.words.text);
    free(look.parent_words.text);
    return has_all ? 0 : -ENOMEM;
}
