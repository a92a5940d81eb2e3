/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "agent/worker/worker_metrics.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

TEST(what_is_new_is_taken_once_and_again_when_it_is_renewed)
{
    const struct ct_metric first[] = {{"loss", 0.5}, {"rate", NAN}};
    const struct ct_metric second[] = {{"loss", 0.25}, {"rate", NAN}};
    struct worker_metrics *metrics = NULL;
    struct ct_metrics out = {0};

    assert_false(worker_metrics_set(&metrics, NULL, 0));
    assert_null(metrics);
    worker_metrics_take(metrics, 3, &out);
    worker_metrics_renew(metrics);
    assert_true(worker_metrics_set(&metrics, first, 2));
    assert_false(worker_metrics_set(&metrics, first, 2)); /* NaN is equal to NaN */
    worker_metrics_take(metrics, 3, &out);
    assert_int_equal(out.count, 2);
    assert_string_equal(out.list[1].name, "rate");
    assert_int_equal(out.list[1].rank, 3);
    worker_metrics_take(metrics, 3, &out);
    assert_int_equal(out.count, 2);

    assert_true(worker_metrics_set(&metrics, second, 2));
    out.count = 0;
    worker_metrics_take(metrics, 3, &out);
    assert_int_equal(out.count, 1);
    assert_true(ct_metric_from_bits(out.list[0].bits) == 0.25);
    worker_metrics_renew(metrics);
    out.count = CT_METRICS_SENT_MAX - 1; /* room for one: the other metric waits */
    worker_metrics_take(metrics, 3, &out);
    assert_int_equal(out.count, CT_METRICS_SENT_MAX);
    out.count = 0;
    worker_metrics_take(metrics, 3, &out);
    assert_int_equal(out.count, 1);
    assert_string_equal(out.list[0].name, "rate");
    worker_metrics_destroy(metrics);
    worker_metrics_destroy(NULL);
}

TEST(a_name_too_many_changes_nothing)
{
    struct worker_metrics *metrics = NULL;
    struct ct_metric one = {.value = 1};
    char text[WORKER_METRICS_TEXT_MAX];

    for (int i = 0; i < CT_METRICS_MAX; i++) {
        (void)ct_format(one.name, sizeof one.name, "m%d", i);
        assert_true(worker_metrics_set(&metrics, &one, 1));
    }
    (void)ct_copy(one.name, sizeof one.name, "more");
    assert_false(worker_metrics_set(&metrics, &one, 1));
    assert_int_equal(worker_metrics_format(text, metrics), CT_METRICS_MAX);
    assert_null(strstr(text, "more"));
    worker_metrics_destroy(metrics);
}

TEST(they_are_json_also_when_they_are_as_long_as_can_be)
{
    const struct ct_metric some[] = {{"a", 0.5}, {"b", NAN}, {"c", -INFINITY}};
    struct worker_metrics *metrics = NULL;
    char text[WORKER_METRICS_TEXT_MAX];

    assert_int_equal(worker_metrics_format(text, NULL), 0);
    assert_true(worker_metrics_set(&metrics, some, 3));
    assert_int_equal(worker_metrics_format(text, metrics), 3);
    assert_string_equal(text, "{\"a\":0.5,\"b\":\"NaN\",\"c\":\"-Inf\"}");
    worker_metrics_destroy(metrics);
    metrics = NULL;
    for (int i = 0; i < CT_METRICS_MAX; i++) {
        struct ct_metric one = {.value = -2.2250738585072014e-308};

        (void)ct_format(one.name, sizeof one.name, "x%062d", i);
        assert_true(worker_metrics_set(&metrics, &one, 1));
    }
    assert_int_equal(worker_metrics_format(text, metrics), CT_METRICS_MAX);
    assert_true(strlen(text) < sizeof text - 1 && text[strlen(text) - 1] == '}');
    worker_metrics_destroy(metrics);
}
