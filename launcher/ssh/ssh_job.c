/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_job.h"

#include <errno.h>

#include "launcher/ssh/ssh_names.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/str_list.h"

/* ---- Writing ----------------------------------------------------------------------------- */

static int put_u32(struct ct_buf *out, uint32_t value)
{
    uint8_t bytes[4];
    struct ct_writer writer;

    ct_writer_init(&writer, bytes, sizeof bytes);
    ct_write_u32(&writer, value);
    return ct_buf_append(out, bytes, sizeof bytes);
}

static int put_text(struct ct_buf *out, const char *text)
{
    const size_t length = strlen(text);
    int rc = length > SSH_JOB_MAX_BYTES ? -EMSGSIZE : put_u32(out, (uint32_t)length);

    return rc < 0 ? rc : ct_buf_append(out, text, length);
}

static int put_list(struct ct_buf *out, char *const *list, size_t count)
{
    int rc = put_u32(out, (uint32_t)count);

    for (size_t i = 0; i < count && rc == 0; i++)
        rc = put_text(out, list[i]);
    return rc;
}

int ssh_job_encode(struct ct_buf *out, const struct ssh_job *job, uint32_t first,
                   uint32_t count)
{
    const uint32_t numbers[] = {job->total, first, job->fanout, job->reach_ms};
    const char *const texts[] = {job->program, job->ssh, job->cwd, job->run_id,
                                 job->token};
    int rc = 0;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && rc == 0; i++)
        rc = put_u32(out, numbers[i]);
    for (size_t i = 0; i < sizeof texts / sizeof *texts && rc == 0; i++)
        rc = put_text(out, texts[i]);
    if (rc == 0)
        rc = put_list(out, job->names + (first - job->first), count);
    if (rc == 0)
        rc = put_list(out, job->argv, ct_str_list_count(job->argv));
    return rc < 0 ? rc : put_list(out, job->env, ct_str_list_count(job->env));
}

/* ---- Reading ----------------------------------------------------------------------------- */

static char *take_text(struct ct_reader *in)
{
    size_t length = 0;
    const uint8_t *text = ct_read_blob(in, SSH_JOB_MAX_BYTES, &length);
    char *copy;

    if (in->bad || memchr(text, 0, length)) {
        in->bad = true;
        return NULL;
    }
    copy = ct_strndup((const char *)text, length);
    in->bad |= !copy; /* out of memory: reject the job as a whole */
    return copy;
}

static char **take_list(struct ct_reader *in)
{
    const uint32_t count = ct_read_u32(in);
    char **list;

    /* Each text has a length of four bytes, so the bytes left limit what is allocated here. */
    if (in->bad || count > SSH_WORDS_MAX || count > in->left / 4 ||
        !(list = ct_zalloc_array((size_t)count + 1, sizeof *list))) {
        in->bad = true;
        return NULL;
    }
    for (uint32_t i = 0; i < count && !in->bad; i++)
        list[i] = take_text(in);
    return list;
}

static bool is_sound(const struct ssh_job *job)
{
    const size_t count = ct_str_list_count(job->names);

    return job->total <= SSH_HOSTS_MAX && count > 0 && job->first < job->total &&
           count <= job->total - job->first && job->fanout > 0 && job->argv[0];
}

int ssh_job_decode(struct ssh_job *out, const void *data, size_t length)
{
    struct ct_reader in;

    *out = (struct ssh_job){0};
    ct_reader_init(&in, data, length);
    out->total = ct_read_u32(&in);
    out->first = ct_read_u32(&in);
    out->fanout = ct_read_u32(&in);
    out->reach_ms = ct_read_u32(&in);
    out->program = take_text(&in);
    out->ssh = take_text(&in);
    out->cwd = take_text(&in);
    out->run_id = take_text(&in);
    out->token = take_text(&in);
    out->names = take_list(&in);
    out->argv = take_list(&in);
    out->env = take_list(&in);
    if (ct_read_end(&in) == 0 && is_sound(out))
        return 0;
    ssh_job_deinit(out);
    return -EBADMSG;
}

/* ---- The rest ---------------------------------------------------------------------------- */

void ssh_job_deinit(struct ssh_job *job)
{
    if (job->token)
        explicit_bzero(job->token, strlen(job->token));
    free(job->program);
    free(job->ssh);
    free(job->cwd);
    free(job->run_id);
    free(job->token);
    ct_str_list_free(job->names);
    ct_str_list_free(job->argv);
    ct_str_list_free(job->env);
    *job = (struct ssh_job){0};
}

uint32_t ssh_job_count(const struct ssh_job *job)
{
    return (uint32_t)ct_str_list_count(job->names);
}

const char *ssh_job_host(const struct ssh_job *job, uint32_t place)
{
    return ssh_names_host(job->names[place - job->first]);
}
