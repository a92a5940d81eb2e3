/* SPDX-License-Identifier: Apache-2.0 */
/* PMI-1's server, line by line, as MPICH's programs ask it. */
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/pmi_job.h"

static struct pmi_job *job;
static struct pmi_reply reply;

static int begin(void **state)
{
    (void)state;
    job = pmi_job_create(3);
    return job ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    pmi_job_destroy(job);
    return 0;
}

static int ask(int rank, const char *line)
{
    static char copy[2 * PMI_LINE_MAX];

    (void)snprintf(copy, sizeof copy, "%s", line);
    return pmi_job_serve(job, rank, copy, &reply);
}

static void expect(int rank, const char *line, const char *answer)
{
    assert_int_equal(ask(rank, line), 0);
    assert_int_equal(reply.act, PMI_ANSWER);
    assert_string_equal(reply.text, answer);
    assert_int_equal(reply.length, strlen(answer));
}

static void a_program_learns_who_it_is(void **state)
{
    (void)state;
    expect(0, "cmd=init pmi_version=1 pmi_subversion=1",
           "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    expect(0, "cmd=init pmi_version=2 pmi_subversion=0",
           "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n");
    expect(1, "cmd=get_maxes",
           "cmd=maxes kvsname_max=64 keylen_max=64 vallen_max=1024 rc=0\n");
    expect(1, "cmd=get_appnum", "cmd=appnum appnum=0 rc=0\n");
    expect(2, "cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_ctrun rc=0\n");
    expect(2, "cmd=get_universe_size ", "cmd=universe_size size=3 rc=0\n");
    expect(2, "cmd=get kvsname=kvs_ctrun key=PMI_process_mapping",
           "cmd=get_result rc=0 msg=success value=(vector,(0,1,3))\n");
}

static void what_one_puts_all_get(void **state)
{
    static const char missing[] =
        "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";

    (void)state;
    expect(0, "cmd=get kvsname=kvs_ctrun key=a", missing);
    expect(1, "cmd=put kvsname=kvs_ctrun key=a value=x=1;y$",
           "cmd=put_result rc=0 msg=success\n");
    expect(0, "cmd=get kvsname=kvs_ctrun key=a",
           "cmd=get_result rc=0 msg=success value=x=1;y$\n");
    expect(2, "cmd=put kvsname=kvs_ctrun key=a value=",
           "cmd=put_result rc=0 msg=success\n");
    expect(0, "cmd=get kvsname=kvs_ctrun key=a",
           "cmd=get_result rc=0 msg=success value=\n");
    expect(0, "cmd=get kvsname=other key=a", missing);
    expect(0, "cmd=get kvsname=kvs_ctrun", missing);
    expect(0, "cmd=getbyidx kvsname=kvs_ctrun idx=1",
           "cmd=getbyidx_results rc=0 nextidx=2 key=a val=\n");
    expect(0, "cmd=getbyidx kvsname=kvs_ctrun idx=2",
           "cmd=getbyidx_results rc=-2 reason=no_more_keyvals\n");
    expect(0, "cmd=getbyidx kvsname=kvs_ctrun idx=-1",
           "cmd=getbyidx_results rc=-1 reason=invalid\n");
}

static void what_does_not_fit_is_refused(void **state)
{
    static const char refused[] = "cmd=put_result rc=-1 msg=invalid\n";
    char line[2 * PMI_LINE_MAX];

    (void)state;
    expect(0, "cmd=put kvsname=kvs_ctrun key=a", refused);
    expect(0, "cmd=put kvsname=kvs_ctrun key= value=a", refused);
    expect(0, "cmd=put kvsname=other key=a value=a", refused);
    (void)snprintf(line, sizeof line, "cmd=put kvsname=kvs_ctrun key=%064d value=a", 0);
    expect(0, line, refused);
    (void)snprintf(line, sizeof line, "cmd=put kvsname=kvs_ctrun key=a value=%01024d",
                   0);
    expect(0, line, refused);
    (void)snprintf(line, sizeof line,
                   "cmd=put kvsname=kvs_ctrun key=%063d value=%01023d", 0, 0);
    expect(0, line, "cmd=put_result rc=0 msg=success\n");
    for (int i = 0; i < 3 * PMI_ENTRIES_EACH - 1; i++) {
        (void)snprintf(line, sizeof line, "cmd=put kvsname=kvs_ctrun key=%d value=a",
                       i);
        expect(i % 3, line, "cmd=put_result rc=0 msg=success\n");
    }
    expect(0, "cmd=put kvsname=kvs_ctrun key=more value=a",
           "cmd=put_result rc=-1 msg=no_room\n");
}

static void a_barrier_opens_when_all_are_in(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        for (int rank = 0; rank < 2; rank++) {
            assert_int_equal(ask(rank, "cmd=barrier_in"), 0);
            assert_int_equal(reply.act, PMI_WAIT);
        }
        assert_int_equal(ask(1, "cmd=barrier_in"), -EPROTO); /* it is in */
        assert_int_equal(ask(2, "cmd=barrier_in"), 0);
        assert_int_equal(reply.act, PMI_ANSWER_ALL);
        assert_string_equal(reply.text, "cmd=barrier_out rc=0\n");
    }
}

static void who_leaves_says_so(void **state)
{
    (void)state;
    assert_int_equal(ask(0, "cmd=finalize"), 0);
    assert_int_equal(reply.act, PMI_GOODBYE);
    assert_string_equal(reply.text, "cmd=finalize_ack rc=0\n");
    assert_int_equal(ask(0, "cmd=abort exitcode=3 message=all is lost"), 0);
    assert_int_equal(reply.act, PMI_ABORT);
    assert_int_equal(reply.exit_code, 3);
    assert_int_equal(ask(0, "cmd=abort exitcode=-1"), 0);
    assert_int_equal(reply.exit_code, 255);
    assert_int_equal(ask(0, "cmd=abort exitcode=256"), 0);
    assert_int_equal(reply.exit_code, 1);
}

static void what_is_not_served_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "cmd",
                                      "=",
                                      "cmd=",
                                      "a=b cmd=init",
                                      "mcmd=spawn",
                                      "cmd=spawn",
                                      "    13cmd=kvs-fence;"};

    (void)state;
    expect(0, "cmd=lookup_name service=x",
           "cmd=lookup_result rc=-1 info=unsupported\n");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ask(0, bad[i]), -EPROTO);
    assert_int_equal(ask(3, "cmd=get_appnum"), -EPROTO);
    assert_int_equal(ask(-1, "cmd=get_appnum"), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_program_learns_who_it_is, begin, end),
        cmocka_unit_test_setup_teardown(what_one_puts_all_get, begin, end),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(a_barrier_opens_when_all_are_in, begin, end),
        cmocka_unit_test_setup_teardown(who_leaves_says_so, begin, end),
        cmocka_unit_test_setup_teardown(what_is_not_served_is_refused, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
