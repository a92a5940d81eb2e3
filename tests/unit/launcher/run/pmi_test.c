/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of PMI-2, and what the serving task tells the others through it. */
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "launcher/run/pmi_card.h"

/* ---- The wire ------------------------------------------------------------------------- */

TEST(the_first_line_is_answered_by_pmi_2_alone)
{
    assert_int_equal(
        pmi2_check_init("cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0"), 0);
    assert_int_equal(/* the order of hydra */
                     pmi2_check_init(
                         "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0"),
                     0);
    assert_int_equal(
        pmi2_check_init("cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"),
        -EPROTO);
    assert_int_equal(
        pmi2_check_init("cmd=response_to_init rc=1 pmi_version=2 pmi_subversion=0"),
        -EPROTO);
    assert_int_equal(pmi2_check_init("cmd=response_to_init rc=00 pmi_version=22"),
                     -EPROTO);
    assert_int_equal(pmi2_check_init(""), -EPROTO);
}

TEST(a_request_has_its_length_in_front)
{
    const struct pmi2_field fields[] = {{"key", "a"}, {"value", "1=2"}};
    char text[64];

    assert_int_equal(pmi2_format(text, sizeof text, "kvs-fence", NULL, 0), 20);
    assert_string_equal(text, "    14cmd=kvs-fence;");
    assert_int_equal(pmi2_format(text, sizeof text, "kvs-put", fields, 2), 34);
    assert_string_equal(text, "    28cmd=kvs-put;key=a;value=1=2;");
    assert_int_equal(pmi2_format(text, 20, "kvs-put", fields, 2), -ENAMETOOLONG);
}

TEST(what_the_wire_cannot_carry_is_refused)
{
    static char big[PMI2_BODY_MAX];
    static char text[2 * PMI2_BODY_MAX];
    const struct pmi2_field bad[] = {
        {"key", "a;rc=0"}, {"key", "a\nb"}, {"a=b", "c"}, {"", "c"}, {"a;b", "c"}};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(pmi2_format(text, sizeof text, "kvs-put", &bad[i], 1),
                         -EINVAL);
    assert_int_equal(pmi2_format(text, sizeof text, "a;b", NULL, 0), -EINVAL);
    memset(big, 'x', sizeof big - 1);
    assert_int_equal(
        pmi2_format(text, sizeof text, "kvs-put", &(struct pmi2_field){"k", big}, 1),
        -ENAMETOOLONG);
}

TEST(lengths_are_padded_on_either_side)
{
    assert_int_equal(pmi2_parse_length("28    "), 28);
    assert_int_equal(pmi2_parse_length("    28"), 28);
    assert_int_equal(pmi2_parse_length("004096"), 4096);
    assert_int_equal(pmi2_parse_length("  4097"), -EPROTO);
    assert_int_equal(pmi2_parse_length("     0"), -EPROTO);
    assert_int_equal(pmi2_parse_length("cmd=in"), -EPROTO);
    assert_int_equal(pmi2_parse_length("    -1"), -EPROTO);
    assert_int_equal(pmi2_parse_length("      "), -EPROTO);
    assert_int_equal(pmi2_parse_length("1 2   "), -EPROTO);
    assert_int_equal(pmi2_parse_length("1\0 2  "), -EPROTO);
}

static int parse(struct pmi2_answer *out, char *body, size_t size, const char *text)
{
    (void)snprintf(body, size, "%s", text);
    return pmi2_parse(out, body, strlen(text));
}

TEST(an_answer_has_fields)
{
    struct pmi2_answer answer;
    char body[256];

    assert_int_equal(parse(&answer, body, sizeof body,
                           "cmd=kvs-get-response;rc=0;found=TRUE;value=a=b;x=;"),
                     0);
    assert_int_equal(answer.count, 5);
    assert_string_equal(pmi2_find(&answer, "value"), "a=b");
    assert_string_equal(pmi2_find(&answer, "x"), "");
    assert_null(pmi2_find(&answer, "y"));
    assert_int_equal(pmi2_check(&answer, "kvs-get"), 0);
    assert_int_equal(pmi2_check(&answer, "kvs-put"), -EPROTO);
    assert_int_equal(pmi2_check(&answer, "kvs-get-response"), -EPROTO);
    assert_int_equal(pmi2_check(&answer, "kvs"), -EPROTO);
    assert_int_equal(
        parse(&answer, body, sizeof body, "cmd=kvs-put-response;rc=14;errmsg=x;"), 0);
    assert_int_equal(pmi2_check(&answer, "kvs-put"), -EPROTO);
    assert_int_equal(parse(&answer, body, sizeof body, "cmd=kvs-put-response;"), 0);
    assert_int_equal(pmi2_check(&answer, "kvs-put"), -EPROTO);
}

TEST(what_is_no_answer_is_refused)
{
    static const char *const bad[] = {"",    ";",   "a",      "a;",
                                      "=b;", "a=b", "a=b;c;", "a=b;;"};
    struct pmi2_answer answer;
    char body[4 * PMI2_FIELDS_MAX + 1] = "";

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(parse(&answer, body, sizeof body, bad[i]), -EPROTO);
    memcpy(body, "a=\0;", 4);
    assert_int_equal(pmi2_parse(&answer, body, 4), -EPROTO);
    for (int i = 0; i < PMI2_FIELDS_MAX + 2 && i * 4 + 4 < (int)sizeof body; i++)
        memcpy(body + (size_t)i * 4, "a=b;", 4);
    assert_int_equal(pmi2_parse(&answer, body, sizeof body - 1), 0);
    assert_int_equal(answer.count, PMI2_FIELDS_MAX);
}

/* ---- The card ------------------------------------------------------------------------- */

static void fill(struct pmi_card *card, int addrs)
{
    *card = (struct pmi_card){.server.name = "node1"};
    for (int i = 0; i < addrs; i++) {
        char text[64];

        (void)snprintf(text, sizeof text, "fd00:1111:2222:3333:4444:5555:6666:%04x",
                       i + 0x1000);
        assert_int_equal(
            ct_addr_parse(text, 41234, &card->server.addrs[card->server.count++]), 0);
    }
}

TEST(a_card_reads_back)
{
    struct pmi_card card, again;
    char text[PMI2_VALUE_MAX];

    fill(&card, 2);
    assert_int_equal(pmi_card_format(text, &card), 0);
    assert_string_equal(text, "-|ctrun 1|node1|41234|"
                              "fd00:1111:2222:3333:4444:5555:6666:1000|"
                              "fd00:1111:2222:3333:4444:5555:6666:1001|");
    assert_int_equal(pmi_card_parse(&again, text), 0);
    assert_int_equal(again.token.length, 0);
    assert_int_equal(again.server.count, 2);
    assert_int_equal(ct_addr_port(&again.server.addrs[1]), 41234);
    card.token.length = 32;
    memset(card.token.bytes, 0xaf, 32);
    assert_int_equal(pmi_card_format(text, &card), 0);
    assert_int_equal(pmi_card_parse(&again, text), 0);
    assert_int_equal(again.token.length, 32);
    assert_memory_equal(again.token.bytes, card.token.bytes, 32);
    card.token.length = CT_AUTH_TOKEN_MIN_BYTES;
    assert_int_equal(pmi_card_format(text, &card), 0);
    assert_int_equal(pmi_card_parse(&again, text), 0);
    assert_int_equal(again.token.length, CT_AUTH_TOKEN_MIN_BYTES);
}

TEST(a_card_that_is_too_long_has_fewer_addresses)
{
    struct pmi_card card, again;
    char text[PMI2_VALUE_MAX];

    fill(&card, CT_ADDRS_MAX);
    card.token.length = 200;
    assert_int_equal(pmi_card_format(text, &card), 0);
    assert_int_equal(pmi_card_parse(&again, text), 0);
    assert_in_range(again.server.count, 10, CT_ADDRS_MAX - 1);
    card.token.length = CT_AUTH_TOKEN_MAX_BYTES;
    memset(card.server.name, 'n', sizeof card.server.name - 1);
    assert_int_equal(pmi_card_format(text, &card), 0);
    card.server.count = 0;
    assert_int_equal(pmi_card_format(text, &card), -ENAMETOOLONG);
    fill(&card, 1);
    card.server.name[1] = ';';
    assert_int_equal(pmi_card_format(text, &card), -EINVAL);
}

TEST(what_is_no_card_is_refused)
{
    static const char *const bad[] = {
        "",
        "-",
        "-|",
        "-|ctrun 2|node1|1|10.0.0.1|",
        "-|ctrun 1|node1|0|10.0.0.1|",
        "-|ctrun 1|node1|1|",
        "-|ctrun 1|node1|1|node1|",
        "|ctrun 1|node1|1|10.0.0.1|",
        "a5a5|ctrun 1|node1|1|10.0.0.1|", /* a token this short could be guessed */
        "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a|ctrun 1|node1|1|10.0.0.1|",
        "g5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5|ctrun 1|node1|1|10.0.0.1|",
        "-\n|ctrun 1|node1|1|10.0.0.1|",
    };
    struct pmi_card card;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(pmi_card_parse(&card, bad[i]), -EBADMSG);
    assert_int_equal(pmi_card_parse(&card, "-|ctrun 1|node1|1|10.0.0.1|"), 0);
}
