/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, rendezvous settings, stream maps, device lists and templates: small pure
 * parsers. */
#include "tests/lib/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/hardware/devices.h"
#include "launcher/options/nnodes.h"
#include "launcher/options/nproc_list.h"
#include "launcher/options/rdzv_conf.h"
#include "launcher/options/streams.h"
#include "launcher/options/template.h"

TEST(nnodes_takes_a_number_or_a_range)
{
    static const struct {
        const char *text;
        int min, max;
    } good[] = {
        {"1", 1, 1}, {"2", 2, 2}, {"1:4", 1, 4}, {" 2 : 3 ", 2, 3}, {"+2", 2, 2}};
    static const struct {
        const char *text;
        const char *words;
    } bad[] = {
        {"1:2:3", "is not in \"MIN:MAX\" format"},
        {"0", "min_nodes must be > 0"},
        {"3:2", "min_nodes must be > 0 and <= max_nodes"},
        {"a", "not a number"},
        {"1:", "not a number"},
        {"", "not a number"},
        {"-1", "min_nodes"},
        {"99999999", "more than"},
    };
    struct ctrun_error err;
    struct nnodes n;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(nnodes_parse(good[i].text, &n, NULL), 0);
        assert_int_equal(n.min, good[i].min);
        assert_int_equal(n.max, good[i].max);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(nnodes_parse(bad[i].text, &n, &err), -EINVAL);
        assert_non_null(strstr(err.text, bad[i].words));
    }
}

static int some_gpus(const void *count)
{
    return *(const int *)count;
}

static int six_cpus(const void *count)
{
    return 6;
}

TEST(nproc_words_ask_the_machine)
{
    static const struct {
        const char *text;
        int gpus;
        int result; /* < 0: refused */
    } rows[] = {
        {"2", 0, 2},
        {" 007 ", 0, 7},
        {"cpu", 8, 6},
        {"auto", 8, 8},
        {"auto", 0, 6},
        {"gpu", 3, 3},
        {"gpu", 0, CTRUN_E_RESOURCES},
        {"xpu", 0, -EINVAL},
        {"0", 0, -EINVAL},
        {"-1", 0, -EINVAL},
        {"unknown", 0, -EINVAL},
        {"", 0, -EINVAL},
        {"100000", 0, -EINVAL},
    };
    struct ctrun_error err;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct nproc_source source = {some_gpus, six_cpus, &rows[i].gpus};
        int n = -1;
        int rc = nproc_parse(rows[i].text, &source, &n, &err);

        assert_int_equal(rc, rows[i].result < 0 ? rows[i].result : 0);
        if (rc == 0)
            assert_int_equal(n, rows[i].result);
    }
    assert_int_equal(nproc_parse("what", &(struct nproc_source){0}, &(int){0}, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "Unsupported nproc_per_node value: what"));
}

TEST(a_list_gives_each_node_its_workers)
{
    static const struct {
        const char *text;
        int count; /* < 0: refused */
        int workers[6];
    } rows[] = {
        {"8,2", 2, {8, 2}},
        {"8,8,2x3", 5, {8, 8, 2, 2, 2}},
        {"4x2,1", 3, {4, 4, 1}},
        {" 8 , 2 x 2 ", 3, {8, 2, 2}},
        {"3x1", 1, {3}},
        {"1x65536", 65536, {1, 1, 1, 1, 1, 1}},
        {"1x65536,1", -1, {0}},
        {"8,", -1, {0}},
        {",8", -1, {0}},
        {"8,,8", -1, {0}},
        {"0,8", -1, {0}},
        {"8x0", -1, {0}},
        {"8x", -1, {0}},
        {"x8,8", -1, {0}},
        {"8x2x2", -1, {0}},
        {"-8,8", -1, {0}},
        {"4097,1", -1, {0}},
        {"8,gpu", -1, {0}},
        {"99999999999999999999x2", -1, {0}},
    };
    static const char *const no_lists[] = {"8", " 8 ", "gpu", "xpu", "", "-1"};
    struct ctrun_error err;
    int workers;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(nproc_list_is(rows[i].text));
        for (int node = 0; node < 6; node++) {
            const int count = nproc_list_read(rows[i].text, node, &workers, &err);

            assert_int_equal(count, rows[i].count < 0 ? -EINVAL : rows[i].count);
            if (count >= 0)
                assert_int_equal(workers, rows[i].workers[node]);
        }
    }
    for (size_t i = 0; i < sizeof no_lists / sizeof *no_lists; i++)
        assert_false(nproc_list_is(no_lists[i]));
    assert_int_equal(nproc_list_read("8,2", -1, &workers, NULL), 2);
    assert_int_equal(workers, 0);
    assert_int_equal(nproc_list_read("8,2y", 0, &workers, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--nproc-per-node=8,2y: '2y' is neither N"));
}

TEST(rdzv_conf_keeps_what_it_does_not_know)
{
    struct rdzv_conf conf;
    uint64_t ms = 7;
    bool flag = false;

    assert_int_equal(
        rdzv_conf_parse("'join_timeout=5,last_call_timeout=1,timeout=5'", &conf, NULL),
        0);
    assert_int_equal(rdzv_conf_get_seconds(&conf, "join_timeout", &ms, NULL), 0);
    assert_int_equal(ms, 7);
    assert_int_equal(rdzv_conf_get_seconds(&conf, "last_call_timeout", &ms, NULL), 1);
    assert_int_equal(ms, 1000);
    assert_string_equal(rdzv_conf_get(&conf, "timeout"), "5'");
    assert_int_equal(
        rdzv_conf_parse(" a = b=c , is_host = Yes, n=5.5,a=2", &conf, NULL), 0);
    assert_string_equal(rdzv_conf_get(&conf, "a"), "2");
    assert_int_equal(rdzv_conf_get_bool(&conf, "is_host", &flag, NULL), 1);
    assert_true(flag);
    assert_int_equal(rdzv_conf_get_seconds(&conf, "n", &ms, NULL), -EINVAL);
    assert_int_equal(rdzv_conf_get_bool(&conf, "n", &flag, NULL), -EINVAL);
    assert_int_equal(rdzv_conf_parse("  ", &conf, NULL), 0);
    assert_int_equal(rdzv_conf_parse("a", &conf, NULL), -EINVAL);
    assert_int_equal(rdzv_conf_parse("a=", &conf, NULL), -EINVAL);
    assert_int_equal(rdzv_conf_parse("=a", &conf, NULL), -EINVAL);
    assert_int_equal(rdzv_conf_parse("a=1,,b=2", &conf, NULL), -EINVAL);
}

TEST(a_timeout_of_zero_is_refused)
{
    struct rdzv_conf conf;
    uint64_t ms;

    assert_int_equal(rdzv_conf_parse("t=0,u=-5,v=99999999999999", &conf, NULL), 0);
    assert_int_equal(rdzv_conf_get_seconds(&conf, "t", &ms, NULL), -EINVAL);
    assert_int_equal(rdzv_conf_get_seconds(&conf, "u", &ms, NULL), -EINVAL);
    assert_int_equal(rdzv_conf_get_seconds(&conf, "v", &ms, NULL), -EINVAL);
}

TEST(streams_follow_redirects_tee_and_filter)
{
    static struct streams s;

    assert_int_equal(streams_parse(&s, "1:2", "0", "", NULL), 0);
    assert_int_equal(streams_target(&s, 0, STREAM_STDERR), AGENT_STREAM_CONSOLE);
    assert_int_equal(streams_target(&s, 1, STREAM_STDERR), AGENT_STREAM_FILE);
    assert_int_equal(streams_target(&s, 1, STREAM_STDOUT), AGENT_STREAM_CONSOLE);
    assert_int_equal(streams_parse(&s, "0", "0:1,12:3", "0, 3", NULL), 0);
    assert_int_equal(streams_target(&s, 0, STREAM_STDOUT), AGENT_STREAM_TEE);
    assert_int_equal(streams_target(&s, 12, STREAM_STDERR),
                     AGENT_STREAM_FILE_ONLY_OF_TEE);
    assert_int_equal(streams_target(&s, 1, STREAM_STDOUT), AGENT_STREAM_DROP);
    assert_int_equal(streams_target(&s, 3, STREAM_STDOUT), AGENT_STREAM_CONSOLE);
    assert_int_equal(streams_parse(&s, "3", "3", "", NULL), 0);
    assert_int_equal(streams_target(&s, 4095, STREAM_STDOUT), AGENT_STREAM_TEE);
}

TEST(bad_stream_maps_are_refused)
{
    static const char *const bad[] = {"4",    "",         "a",        "0:4",
                                      "0:1,", "0:",       ":1",       "0:11",
                                      "33",   "0:1 ,1:2", "999999:1", "-1:1"};
    static struct streams s;
    struct ctrun_error err;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (streams_parse(&s, bad[i], "0", "", &err) != -EINVAL)
            fail_msg("'%s' was taken", bad[i]);
        assert_int_equal(streams_parse(&s, "0", bad[i], "", &err), -EINVAL);
    }
    assert_int_equal(streams_parse(&s, "0", "0", "a", &err), -EINVAL);
    assert_string_equal(
        err.text,
        "--local_ranks_filter must be a comma-separated list of integers e.g. "
        "--local_ranks_filter=0,1,2");
}

TEST(device_lists_count_as_cuda_does)
{
    char entry[16];

    assert_int_equal(devices_visible_count("0,2,5"), 3);
    assert_int_equal(devices_visible_count(""), 0);
    assert_int_equal(devices_visible_count("-1"), 0);
    assert_int_equal(devices_visible_count("3,-1,4"), 1);
    assert_int_equal(devices_visible_count("GPU-5895,MIG-1/2/3"), 2);
    assert_int_equal(devices_visible_count("none"), 0);
    assert_int_equal(devices_visible_count("NoDevFiles"), 0);
    assert_int_equal(devices_visible_count("0, none,1"), 1);
    assert_int_equal(devices_visible_count(" +1,2"), 2);
    assert_int_equal(devices_visible_entry(" 6 , 7", 1, entry, sizeof entry), 0);
    assert_string_equal(entry, "7");
    assert_int_equal(devices_visible_entry("6,7", 2, entry, sizeof entry), -ERANGE);
    assert_true(devices_cpu_count() >= 1);
}

TEST(templates_substitute_as_python_does)
{
    static const struct template_name names[] = {
        {"local_rank", "3"}, {"rank", "11"}, {NULL, NULL}};
    static const struct {
        const char *text;
        const char *result;
    } rows[] = {
        {"${local_rank}", "3"},
        {"$local_rank", "3"},
        {"a$local_rank-b", "a3-b"},
        {"${foo}", "${foo}"},
        {"$foo", "$foo"},
        {"$$x", "$x"},
        {"$$local_rank", "$local_rank"},
        {"$", "$"},
        {"a$", "a$"},
        {"$1", "$1"},
        {"${", "${"},
        {"${}", "${}"},
        {"${local_rank", "${local_rank"},
        {"$local_ranks", "$local_ranks"},
        {"$local_rank$rank", "311"},
        {"$$$rank", "$11"},
        {"", ""},
        {"$LOCAL_RANK", "$LOCAL_RANK"},
        {"${local rank}", "${local rank}"},
        {"<${rank}>", "<11>"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *result = template_substitute(rows[i].text, names);

        assert_string_equal(result, rows[i].result);
        free(result);
    }
}
