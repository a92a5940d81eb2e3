/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the plain layers with finite differences, in double precision.
 *
 * For random x and a random direction g, f(x) = sum(g * layer(x)); backward(g) must be f's gradient,
 * which central differences give with an error of about 1e-9. */
#include <math.h>
#include <stdint.h>

#include "tests/lib/test.h"
#include "worker_sdk/cnn/layers.h"

enum {
    MAX = 2000
};

static uint32_t noise_state = 12345;

static double noise(void)
{
    noise_state = noise_state * 1664525u + 1013904223u;
    return (double)(noise_state >> 8) / 8388608.0 - 1.0;
}

static void fill(double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = noise();
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

typedef double value_fn(void *context);

/* Compares grad[i] with the change of value() when x[i] moves. */
static void check_gradient(double *x, const double *grad, size_t n, value_fn *value,
                           void *context)
{
    const double h = 1e-5;

    for (size_t i = 0; i < n; i++) {
        const double at = x[i];
        double up, down;

        x[i] = at + h;
        up = value(context);
        x[i] = at - h;
        down = value(context);
        x[i] = at;
        if (fabs((up - down) / (2 * h) - grad[i]) > 1e-7)
            fail_msg("element %zu: differences %.12g, backward %.12g", i,
                     (up - down) / (2 * h), grad[i]);
    }
}

struct conv_case {
    struct cnn_conv shape;
    double x[MAX], w[MAX], b[MAX], y[MAX], g[MAX];
    size_t outputs;
};

static double conv_value(void *context)
{
    struct conv_case *c = context;

    cnn_conv_forward(&c->shape, c->x, c->w, c->b, c->y);
    return dot(c->y, c->g, c->outputs);
}

TEST(convolution_gradients_equal_finite_differences)
{
    static struct conv_case c = {
        .shape = {.batch = 2, .in = 3, .out = 4, .height = 6, .width = 7}};
    static double dx[MAX], dw[MAX], db[MAX];

    c.outputs = 2 * 4 * 4 * 5;
    fill(c.x, 2 * 3 * 6 * 7);
    fill(c.w, 4 * 3 * 9);
    fill(c.b, 4);
    fill(c.g, c.outputs);
    cnn_conv_backward_x(&c.shape, c.w, c.g, dx);
    cnn_conv_backward_w(&c.shape, c.x, c.g, dw, db);
    check_gradient(c.x, dx, 2 * 3 * 6 * 7, conv_value, &c);
    check_gradient(c.w, dw, 4 * 3 * 9, conv_value, &c);
    check_gradient(c.b, db, 4, conv_value, &c);
}

TEST(convolution_is_a_correlation_as_in_pytorch)
{
    /* torch.nn.functional.conv2d(arange(9).view(1,1,3,3), arange(9).view(1,1,3,3)) = 204 */
    const struct cnn_conv shape = {
        .batch = 1, .in = 1, .out = 1, .height = 3, .width = 3};
    const double x[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8}, bias = 0.5;
    double y;

    cnn_conv_forward(&shape, x, x, &bias, &y);
    assert_true(y == 204.5);
}

struct linear_case {
    struct cnn_linear shape;
    double x[MAX], w[MAX], b[MAX], y[MAX], g[MAX];
};

static double linear_value(void *context)
{
    struct linear_case *c = context;

    cnn_linear_forward(&c->shape, c->x, c->w, c->b, c->y);
    return dot(c->y, c->g, c->shape.batch * c->shape.out);
}

TEST(linear_gradients_equal_finite_differences)
{
    static struct linear_case c = {.shape = {.batch = 3, .in = 7, .out = 5}};
    static double dx[MAX], dw[MAX], db[MAX];

    fill(c.x, 21);
    fill(c.w, 35);
    fill(c.b, 5);
    fill(c.g, 15);
    cnn_linear_backward_x(&c.shape, c.w, c.g, dx);
    cnn_linear_backward_w(&c.shape, c.x, c.g, dw, db);
    check_gradient(c.x, dx, 21, linear_value, &c);
    check_gradient(c.w, dw, 35, linear_value, &c);
    check_gradient(c.b, db, 5, linear_value, &c);
}

struct pool_case {
    double x[MAX], y[MAX], g[MAX];
    uint8_t from[MAX];
};

static double pool_value(void *context)
{
    struct pool_case *c = context;

    cnn_relu_forward(c->x, 0);
    cnn_maxpool_forward(3, 4, 6, c->x, c->y, c->from);
    cnn_relu_forward(c->y, 18);
    return dot(c->y, c->g, 18);
}

TEST(pooling_and_relu_gradients_equal_finite_differences)
{
    static struct pool_case c;
    static double dx[MAX], dy[MAX];

    fill(c.x, 72);
    fill(c.g, 18);
    pool_value(&c);
    for (size_t i = 0; i < 18; i++)
        dy[i] = c.g[i];
    cnn_relu_backward(c.y, dy, 18);
    cnn_maxpool_backward(3, 4, 6, dy, c.from, dx);
    check_gradient(c.x, dx, 72, pool_value, &c);
}

TEST(the_first_of_equal_values_wins_the_pool)
{
    const double x[4] = {2, 2, 2, 2};
    double y;
    uint8_t from;

    cnn_maxpool_forward(1, 2, 2, x, &y, &from);
    assert_int_equal(from, 0);
}

struct loss_case {
    double x[MAX], y[MAX];
    uint8_t labels[4];
};

static double loss_value(void *context)
{
    struct loss_case *c = context;
    double loss = 0;

    for (size_t i = 0; i < 40; i++)
        c->y[i] = c->x[i];
    cnn_log_softmax(4, 10, c->y);
    for (size_t i = 0; i < 4; i++)
        loss -= 0.25 * c->y[i * 10 + c->labels[i]];
    return loss;
}

TEST(loss_gradient_equals_finite_differences)
{
    static struct loss_case c = {.labels = {0, 9, 4, 4}};
    static double dx[MAX];

    fill(c.x, 40);
    loss_value(&c);
    cnn_nll_backward(4, 10, c.y, c.labels, 0.25, dx);
    check_gradient(c.x, dx, 40, loss_value, &c);
}

TEST(log_softmax_survives_large_values)
{
    double x[3] = {1000, 1000, -1000};

    cnn_log_softmax(1, 3, x);
    assert_true(fabs(x[0] + log(2)) < 1e-12);
    assert_true(x[2] == -2000 - log(2));
}

TEST(dropout_keeps_what_its_bits_say_and_scales_it)
{
    double x[70];
    const uint64_t keep[2] = {5, 1u << 5};

    for (int i = 0; i < 70; i++)
        x[i] = 1;
    cnn_dropout_apply(x, 70, keep, 2);
    for (int i = 0; i < 70; i++)
        assert_true(x[i] == (i == 0 || i == 2 || i == 69 ? 2 : 0));
}

TEST(channels_last_and_first_undo_each_other)
{
    double x[24], y[24], z[24];

    fill(x, 24);
    cnn_channels_last(2, 3, 4, x, y);
    assert_true(y[1] == x[4]); /* window 0, channel 1 */
    cnn_channels_first(2, 3, 4, y, z);
    assert_memory_equal(x, z, sizeof x);
}
