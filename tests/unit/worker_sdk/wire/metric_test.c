/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/wire/metric.h"

TEST(names_are_those_of_prometheus)
{
    static const char *const names[] = {"loss", "_x", "a:b_9", "Loss2", "_", "c"};
    char longest[CT_METRIC_NAME_MAX];

    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(ct_metric_is_name(names[i], CT_METRIC_NAME_MAX));
    assert_true(ct_metric_is_name(longest, sizeof longest));
}

TEST(hostile_names_are_none)
{
    static const char *const names[] = {
        "",    "9x",  "a b",      "a-b",      "a.b",     "loss\n",      "a{b=\"c\"}",
        "a\"", "a\\", "\xc3\xa4", "__name__", "ctrun_x", "ctrund_runs", " a"};
    char endless[CT_METRIC_NAME_MAX + 1];

    memset(endless, 'x', sizeof endless); /* no NUL */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_false(ct_metric_is_name(names[i], CT_METRIC_NAME_MAX));
    assert_false(ct_metric_is_name(endless, CT_METRIC_NAME_MAX));
    assert_false(ct_metric_is_name(endless, sizeof endless));
}

TEST(values_are_written_exactly_and_as_prometheus_writes_them)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.1, "0.1"},
        {-0.0, "-0"},
        {1e300, "1e+300"},
        {NAN, "NaN"},
        {INFINITY, "+Inf"},
        {-INFINITY, "-Inf"},
        {12345678, "12345678"},
        {1.0 / 3, "0.3333333333333333"},
        {5e-324, "4.94065645841247e-324"},
    };
    char text[CT_METRIC_VALUE_MAX];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ct_metric_format(text, cases[i].value);
        assert_string_equal(text, cases[i].text);
        assert_true(isnan(cases[i].value) || ct_metric_from_bits(ct_metric_to_bits(
                                                 cases[i].value)) == cases[i].value);
    }
}
