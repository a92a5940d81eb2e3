/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "launcher/etcd/json_etcd.h"
#include "launcher/net/server_record.h"
#include "tests/lib/test.h"

static void assert_request(int rc, struct ct_buf *out, const char *expected)
{
    assert_int_equal(rc, 0);
    assert_int_equal(ct_buf_append(out, "", 1), 0);
    assert_string_equal((const char *)ct_buf_data(out), expected);
    ct_buf_consume(out, ct_buf_length(out));
}

TEST(requests_are_as_etcd_3_4_takes_them)
{
    const struct json_etcd_op ops[] = {
        {.key = "/c", .value = "v1", .length = 2, .lease = 77}, {.key = "/l"}};
    struct ct_buf out;

    ct_buf_init(&out, 4096);
    assert_request(json_etcd_range(&out, "/c"), &out, "{\"key\":\"L2M=\"}");
    assert_request(json_etcd_grant(&out, 5), &out, "{\"TTL\":\"5\"}");
    assert_request(json_etcd_lease(&out, 2535423225924697365), &out,
                   "{\"ID\":\"2535423225924697365\"}");
    assert_request(json_etcd_watch(&out, "/c", 15), &out,
                   "{\"create_request\":{\"key\":\"L2M=\",\"start_revision\":\"15\"}}");
    assert_request(json_etcd_login(&out, "me", "p\"w\\"), &out,
                   "{\"name\":\"me\",\"password\":\"p\\\"w\\\\\"}");
    assert_request(
        json_etcd_txn(&out, &(struct json_etcd_guard){.key = "/c"}, ops, 2), &out,
        "{\"compare\":[{\"key\":\"L2M=\",\"target\":\"CREATE\",\"result\":\"EQUAL\","
        "\"create_revision\":\"0\"}],\"success\":[{\"request_put\":{\"key\":\"L2M=\","
        "\"value\":\"djE=\",\"lease\":\"77\"}},{\"request_delete_range\":{\"key\":"
        "\"L2w=\"}}],\"failure\":[{\"request_range\":{\"key\":\"L2M=\"}}]}");
    assert_request(
        json_etcd_txn(
            &out,
            &(struct json_etcd_guard){
                .key = "/c", .create_revision = 5, .unchanged = "/l", .revision = 8},
            ops, 0),
        &out,
        "{\"compare\":[{\"key\":\"L2M=\",\"target\":\"CREATE\",\"result\":\"EQUAL\","
        "\"create_revision\":\"5\"},{\"key\":\"L2w=\",\"target\":\"MOD\",\"result\":"
        "\"LESS\",\"mod_revision\":\"9\"}],\"success\":[],\"failure\":[{"
        "\"request_range\":{\"key\":\"L2M=\"}}]}");
    ct_buf_deinit(&out);
}

static struct json_etcd_reply read_reply(const char *text)
{
    struct json_etcd_reply reply;

    assert_int_equal(json_etcd_read(&reply, text, strlen(text)), 0);
    return reply;
}

TEST(a_lost_election_tells_who_won)
{
    struct json_etcd_reply reply = read_reply(
        "{\"header\":{\"revision\":\"9\"},\"responses\":[{\"response_range\":{"
        "\"header\":"
        "{},\"kvs\":[{\"key\":\"L2M=\",\"create_revision\":\"4\",\"mod_revision\":"
        "\"6\","
        "\"version\":\"2\",\"value\":\"djE=\",\"lease\":\"77\"}],\"count\":\"1\"}}]}");

    assert_false(reply.succeeded);
    assert_int_equal(reply.revision, 9);
    assert_int_equal(reply.count, 1);
    assert_string_equal(reply.kvs[0].key, "/c");
    assert_string_equal((const char *)reply.kvs[0].value, "v1");
    assert_int_equal(reply.kvs[0].create_revision, 4);
    assert_int_equal(reply.kvs[0].mod_revision, 6);
    assert_int_equal(reply.kvs[0].lease, 77);
    json_etcd_reply_deinit(&reply);
}

TEST(a_won_election_says_so)
{
    struct json_etcd_reply reply = read_reply(
        "{\"header\":{\"revision\":\"5\"},\"succeeded\":true,"
        "\"responses\":[{\"response_put\":{\"header\":{\"revision\":\"5\"}}}]}");

    assert_true(reply.succeeded);
    assert_int_equal(reply.revision, 5);
    json_etcd_reply_deinit(&reply);
}

TEST(a_lease_that_is_gone_has_no_ttl)
{
    struct json_etcd_reply reply = read_reply(
        "{\"result\":{\"header\":{\"raft_term\":\"9\"},\"ID\":\"77\",\"TTL\":\"5\"}}");

    assert_int_equal(reply.ttl_s, 5);
    assert_int_equal(reply.raft_term, 9);
    json_etcd_reply_deinit(&reply);
    reply = read_reply("{\"result\":{\"header\":{},\"ID\":\"78\"}}");
    assert_int_equal(reply.ttl_s, 0);
    json_etcd_reply_deinit(&reply);
}

TEST(a_watch_tells_creations_changes_deletions_and_compaction)
{
    struct json_etcd_reply reply = read_reply(
        "{\"result\":{\"header\":{\"revision\":\"13\"},\"created\":true}}");

    assert_true(reply.is_created);
    json_etcd_reply_deinit(&reply);
    reply = read_reply(
        "{\"result\":{\"header\":{\"revision\":\"16\"},\"events\":[{\"kv\":"
        "{\"key\":\"L2M=\",\"mod_revision\":\"14\",\"value\":\"djE=\"}},"
        "{\"type\":\"DELETE\",\"kv\":{\"key\":\"L2M=\",\"mod_revision\":"
        "\"16\"}}]}}");
    assert_int_equal(reply.count, 2);
    assert_false(reply.kvs[0].is_deleted);
    assert_true(reply.kvs[1].is_deleted);
    assert_int_equal(reply.kvs[1].mod_revision, 16);
    json_etcd_reply_deinit(&reply);
    reply = read_reply("{\"result\":{\"header\":{},\"canceled\":true,"
                       "\"compact_revision\":\"19\"}}");
    assert_true(reply.is_canceled);
    assert_int_equal(reply.compact_revision, 19);
    json_etcd_reply_deinit(&reply);
}

TEST(errors_have_a_code_and_a_message_in_calls_and_streams)
{
    struct json_etcd_reply reply = read_reply(
        "{\"error\":\"etcdserver: permission denied\",\"message\":\"...\",\"code\":7}");

    assert_int_equal(reply.code, JSON_ETCD_DENIED);
    assert_string_equal(reply.message, "etcdserver: permission denied");
    json_etcd_reply_deinit(&reply);
    reply = read_reply("{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":"
                       "\"etcdserver: no leader\",\"http_status\":\"...\"}}");
    assert_int_equal(reply.code, JSON_ETCD_UNAVAILABLE);
    assert_string_equal(reply.message, "etcdserver: no leader");
    json_etcd_reply_deinit(&reply);
}

TEST(answers_that_are_none_are_refused)
{
    static const char *const bad[] = {
        "",
        "[]",
        "7",
        "{",
        "<html>404</html>",
        "{\"kvs\":[{\"key\":\"L2M\"}]}",
        "{\"kvs\":[{\"key\":\"L2M=\",\"value\":\"!!!!\"}]}",
        ("{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1"
         "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}")};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct json_etcd_reply reply;

        if (json_etcd_read(&reply, bad[i], strlen(bad[i])) != -EBADMSG)
            fail_msg("'%s' was taken for an answer", bad[i]);
    }
}

TEST(a_token_is_whole_or_refused)
{
    char text[JSON_ETCD_TOKEN_MAX + 16];
    struct json_etcd_reply reply;

    for (int length = JSON_ETCD_TOKEN_MAX - 1; length <= JSON_ETCD_TOKEN_MAX;
         length++) {
        (void)snprintf(text, sizeof text, "{\"token\":\"%0*d\"}", length, 1);
        assert_int_equal(json_etcd_read(&reply, text, strlen(text)),
                         length < JSON_ETCD_TOKEN_MAX ? 0 : -EMSGSIZE);
        if (length < JSON_ETCD_TOKEN_MAX)
            assert_int_equal(strlen(reply.token), length);
        json_etcd_reply_deinit(&reply);
    }
}

TEST(a_host_reads_back_as_it_was_written)
{
    static const char text[] = "ctrun 1\nnode3\n41234\n10.0.0.13\nfd00::13\n";
    struct server_record host;
    char again[SERVER_RECORD_TEXT_MAX];
    char addr[CT_ADDR_TEXT_MAX];

    assert_int_equal(server_record_parse(&host, text, sizeof text - 1), 0);
    assert_string_equal(host.name, "node3");
    assert_int_equal(host.count, 2);
    ct_addr_format(addr, &host.addrs[1]);
    assert_string_equal(addr, "[fd00::13]:41234");
    assert_true(server_record_format(again, sizeof again, &host) > 0);
    assert_string_equal(again, text);
}

TEST(what_is_no_host_of_ours_is_refused)
{
    static const char *const bad[] = {"",
                                      "ctrun 1",
                                      "ctrun 2\na\n1\n10.0.0.1\n",
                                      "ctrun 1\na\n0\n10.0.0.1\n",
                                      "ctrun 1\na\n70000\n",
                                      "ctrun 1\na\n1\nnot-a-number\n"};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct server_record host;

        if (server_record_parse(&host, bad[i], strlen(bad[i])) != -EBADMSG)
            fail_msg("'%s' was taken for a host", bad[i]);
    }
}
