/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/ssh/ssh_job.h"
#include "launcher/ssh/ssh_names.h"
#include "launcher/ssh/ssh_console.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"

/* A writable string, as in a program's argv. */
#define T(text) ((char[]){text})

static char *names[] = {T("a"), T("joe@b"), T("c"), T("d"), NULL};
static char *argv[] = {T("ctrun"), T("--hosts=a,joe@b,c,d"), T("it's"), T(""), NULL};
static char *env[] = {T("PATH=/bin"), T("EMPTY="), NULL};

static const struct ssh_job whole = {
    .total = 4,
    .fanout = 16,
    .reach_ms = 30000,
    .program = T("/opt/ctrun"),
    .ssh = T(""),
    .cwd = T("/home/joe"),
    .run_id = T("r1"),
    .token = T("a token of the tests"),
    .names = names,
    .argv = argv,
    .env = env,
};

TEST(a_host_gets_its_part_of_the_list_and_all_of_the_rest)
{
    struct ssh_job job;
    struct ct_buf buf;

    ct_buf_init(&buf, SSH_JOB_MAX_BYTES);
    assert_int_equal(ssh_job_encode(&buf, &whole, 1, 2), 0);
    assert_int_equal(ssh_job_decode(&job, ct_buf_data(&buf), ct_buf_length(&buf)), 0);
    assert_int_equal(job.total, 4);
    assert_int_equal(job.first, 1);
    assert_int_equal(ssh_job_count(&job), 2);
    assert_string_equal(job.names[0], "joe@b");
    assert_string_equal(ssh_job_host(&job, 1), "b");
    assert_string_equal(ssh_job_host(&job, 2), "c");
    assert_string_equal(job.argv[2], "it's");
    assert_string_equal(job.argv[3], "");
    assert_null(job.argv[4]);
    assert_string_equal(job.env[1], "EMPTY=");
    assert_string_equal(job.token, whole.token);
    ssh_job_deinit(&job);
    ct_buf_deinit(&buf);
}

TEST(a_job_that_is_cut_anywhere_is_refused)
{
    struct ssh_job job;
    struct ct_buf buf;

    ct_buf_init(&buf, SSH_JOB_MAX_BYTES);
    assert_int_equal(ssh_job_encode(&buf, &whole, 0, 4), 0);
    for (size_t n = 0; n < ct_buf_length(&buf); n++)
        assert_int_equal(ssh_job_decode(&job, ct_buf_data(&buf), n), -EBADMSG);
    ct_buf_deinit(&buf);
}

TEST(a_job_survives_every_failed_allocation)
{
    struct ssh_job job;
    struct ct_buf buf;
    size_t n = 0;
    int rc;

    ct_buf_init(&buf, SSH_JOB_MAX_BYTES);
    assert_int_equal(ssh_job_encode(&buf, &whole, 0, 4), 0);
    do {
        ct_alloc_fail_at(++n);
        rc = ssh_job_decode(&job, ct_buf_data(&buf), ct_buf_length(&buf));
        ct_alloc_fail_at(0);
    } while (rc < 0 && n < 1000);
    assert_true(n > 15);
    assert_int_equal(rc, 0);
    ssh_job_deinit(&job);
    ct_buf_deinit(&buf);
}

TEST(this_machine_is_known_by_name_and_number)
{
    assert_true(ssh_names_is_here("localhost", "gpu1"));
    assert_true(ssh_names_is_here("gpu1", "gpu1"));
    assert_true(ssh_names_is_here("gpu1.example.org", "gpu1"));
    assert_true(ssh_names_is_here("gpu1", "gpu1.example.org"));
    assert_true(ssh_names_is_here("127.0.0.1", "gpu1"));
    assert_false(ssh_names_is_here("gpu10", "gpu1"));
    assert_false(ssh_names_is_here("gpu", "gpu1"));
    assert_false(ssh_names_is_here("joe@gpu1", "gpu1"));
    assert_false(ssh_names_is_here("192.0.2.1", "gpu1"));
}

TEST(the_environment_is_chosen_by_name_and_prefix)
{
    char *all[] = {T("PATH=/bin"),
                   T("NCCL_DEBUG=INFO"),
                   T("HOME=/root"),
                   T("CTRUN_TOKEN=x"),
                   T("CTRUN_HOST_SLOT=x"),
                   T("MY_A=1"),
                   T("MYB=2"),
                   T("SSH_AUTH_SOCK=x"),
                   T("PET_NODE_RANK=3"),
                   T("PET_NNODES=2"),
                   T("LC_ALL=C"),
                   T("LD_LIBRARY_PATHS=x"),
                   T("SLURM_JOB_ID=12"),
                   T("EMPTY"),
                   NULL};
    static const char *const wanted[] = {"PATH=/bin", "NCCL_DEBUG=INFO", "MY_A=1",
                                         "PET_NNODES=2", "LC_ALL=C"};
    char **chosen = ssh_names_choose(all, "MY_*,,NOT_THERE");
    size_t n = 0;

    assert_non_null(chosen);
    for (; chosen[n]; n++)
        assert_string_equal(chosen[n], wanted[n]);
    assert_int_equal(n, sizeof wanted / sizeof *wanted);
    free(chosen);
}

static bool says(struct ssh_message_dedup *dedup, uint32_t place, const char *text)
{
    return ssh_message_dedup_is_new(dedup, place, text, strlen(text));
}

TEST(equal_words_of_many_hosts_are_shown_once)
{
    struct ssh_message_dedup *dedup = ssh_message_dedup_create(3);

    assert_non_null(dedup);
    assert_true(says(dedup, 1, "ctrun: restart 1/3\n"));
    assert_false(says(dedup, 0, "ctrun: restart 1/3\n"));
    assert_false(says(dedup, 2, "ctrun: restart 1/3\n"));
    /* The same host sends it again: printed. */
    assert_true(says(dedup, 2, "ctrun: restart 1/3\n"));
    assert_false(says(dedup, 1, "ctrun: restart 1/3\n"));
    assert_true(says(dedup, 1, "ctrun: error[E_EXIT]: rank 1\n  log: /tmp/a\n"));
    assert_false(says(dedup, 0, "ctrun: error[E_EXIT]: rank 1\n  log: /tmp/b\n"));
    for (int i = 0; i < 200; i++) {
        char text[] = {(char)('0' + i % 64), (char)('0' + i / 64), '\0'};

        assert_true(says(dedup, 0, text)); /* the oldest texts are forgotten */
    }
    ssh_message_dedup_destroy(dedup);
}
