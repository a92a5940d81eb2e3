/* SPDX-License-Identifier: Apache-2.0 */
/* Plain C layers: the oracle. One loop nest a function; the innermost loop runs over memory. */
#include "worker_sdk/cnn/layers.h"

#include <math.h>
#include <string.h>

enum {
    K = 3
};

/* y[b][o][i][j] = bias[o] + sum over c, u, v of x[b][c][i + u][j + v] * w[o][c][u][v] */
void cnn_conv_forward(const struct cnn_conv *s, const cnn_real *x, const cnn_real *w,
                      const cnn_real *b, cnn_real *y)
{
    const size_t rows = s->height - 2, columns = s->width - 2;

    for (size_t n = 0; n < s->batch * s->out; n++, y += rows * columns) {
        const size_t image = n / s->out, o = n % s->out;

        for (size_t i = 0; i < rows * columns; i++)
            y[i] = b[o];
        for (size_t k = 0; k < s->in * K * K * rows; k++) {
            const size_t i = k % rows, tap = k / rows % (K * K), c = k / rows / (K * K);
            const cnn_real weight = w[(o * s->in + c) * K * K + tap];
            const cnn_real *in = x + (image * s->in + c) * s->height * s->width +
                                 (i + tap / K) * s->width + tap % K;

            for (size_t j = 0; j < columns; j++)
                y[i * columns + j] += weight * in[j];
        }
    }
}

/* dx[b][c][i + u][j + v] += dy[b][o][i][j] * w[o][c][u][v] */
void cnn_conv_backward_x(const struct cnn_conv *s, const cnn_real *w,
                         const cnn_real *dy, cnn_real *dx)
{
    const size_t rows = s->height - 2, columns = s->width - 2;

    memset(dx, 0, s->batch * s->in * s->height * s->width * sizeof *dx);
    for (size_t n = 0; n < s->batch * s->out; n++, dy += rows * columns) {
        const size_t image = n / s->out, o = n % s->out;

        for (size_t k = 0; k < s->in * K * K * rows; k++) {
            const size_t i = k % rows, tap = k / rows % (K * K), c = k / rows / (K * K);
            const cnn_real weight = w[(o * s->in + c) * K * K + tap];
            cnn_real *to = dx + (image * s->in + c) * s->height * s->width +
                           (i + tap / K) * s->width + tap % K;

            for (size_t j = 0; j < columns; j++)
                to[j] += weight * dy[i * columns + j];
        }
    }
}

/* dw[o][c][u][v] = sum over b, i, j of dy[b][o][i][j] * x[b][c][i + u][j + v] */
void cnn_conv_backward_w(const struct cnn_conv *s, const cnn_real *x,
                         const cnn_real *dy, cnn_real *dw, cnn_real *db)
{
    const size_t rows = s->height - 2, columns = s->width - 2;

    memset(dw, 0, s->out * s->in * K * K * sizeof *dw);
    memset(db, 0, s->out * sizeof *db);
    for (size_t n = 0; n < s->batch * s->out; n++, dy += rows * columns) {
        const size_t image = n / s->out, o = n % s->out;

        for (size_t i = 0; i < rows * columns; i++)
            db[o] += dy[i];
        for (size_t k = 0; k < s->in * K * K * rows; k++) {
            const size_t i = k % rows, tap = k / rows % (K * K), c = k / rows / (K * K);
            const cnn_real *in = x + (image * s->in + c) * s->height * s->width +
                                 (i + tap / K) * s->width + tap % K;
            cnn_real sum = 0;

            for (size_t j = 0; j < columns; j++)
                sum += dy[i * columns + j] * in[j];
            dw[(o * s->in + c) * K * K + tap] += sum;
        }
    }
}

void cnn_relu_forward(cnn_real *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] <= 0 ? 0 : x[i];
}

void cnn_relu_backward(const cnn_real *y, cnn_real *dy, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dy[i] = y[i] > 0 ? dy[i] : 0;
}

void cnn_maxpool_forward(size_t planes, size_t height, size_t width, const cnn_real *x,
                         cnn_real *y, uint8_t *from)
{
    const size_t columns = width / 2, windows = height / 2 * columns;

    for (size_t n = 0; n < planes * windows; n++) {
        const size_t t = n % windows;
        const cnn_real *in = x + n / windows * height * width +
                             t / columns * 2 * width + t % columns * 2;
        const cnn_real four[4] = {in[0], in[1], in[width], in[width + 1]};
        uint8_t best = 0;

        for (uint8_t k = 1; k < 4; k++)
            best = four[k] > four[best] || four[k] != four[k] ? k : best;
        y[n] = four[best];
        from[n] = best;
    }
}

void cnn_maxpool_backward(size_t planes, size_t height, size_t width,
                          const cnn_real *dy, const uint8_t *from, cnn_real *dx)
{
    const size_t columns = width / 2, windows = height / 2 * columns;

    memset(dx, 0, planes * height * width * sizeof *dx);
    for (size_t n = 0; n < planes * windows; n++) {
        const size_t t = n % windows;
        const size_t row = t / columns * 2 + from[n] / 2;
        const size_t column = t % columns * 2 + from[n] % 2;

        dx[n / windows * height * width + row * width + column] = dy[n];
    }
}

void cnn_channels_last(size_t batch, size_t channels, size_t pixels, const cnn_real *x,
                       cnn_real *y)
{
    for (size_t n = 0; n < batch * channels * pixels; n++) {
        const size_t p = n % pixels, c = n / pixels % channels,
                     b = n / pixels / channels;

        y[(b * pixels + p) * channels + c] = x[n];
    }
}

void cnn_channels_first(size_t batch, size_t channels, size_t pixels, const cnn_real *x,
                        cnn_real *y)
{
    cnn_channels_last(batch, pixels, channels, x,
                      y); /* the same exchange, read backwards */
}

void cnn_dropout_apply(cnn_real *x, size_t n, const uint64_t *keep, cnn_real scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = keep[i / 64] >> i % 64 & 1 ? scale * x[i] : 0;
}

void cnn_linear_forward(const struct cnn_linear *s, const cnn_real *x,
                        const cnn_real *w, const cnn_real *b, cnn_real *y)
{
    for (size_t n = 0; n < s->batch; n++, x += s->in, y += s->out) {
        memcpy(y, b, s->out * sizeof *y);
        for (size_t i = 0; i < s->in; i++)
            for (size_t o = 0; o < s->out; o++)
                y[o] += x[i] * w[i * s->out + o];
    }
}

void cnn_linear_backward_x(const struct cnn_linear *s, const cnn_real *w,
                           const cnn_real *dy, cnn_real *dx)
{
    for (size_t n = 0; n < s->batch * s->in; n++) {
        const cnn_real *row = w + n % s->in * s->out, *g = dy + n / s->in * s->out;
        cnn_real sum = 0;

        for (size_t o = 0; o < s->out; o++)
            sum += g[o] * row[o];
        dx[n] = sum;
    }
}

void cnn_linear_backward_w(const struct cnn_linear *s, const cnn_real *x,
                           const cnn_real *dy, cnn_real *dw, cnn_real *db)
{
    memset(dw, 0, s->in * s->out * sizeof *dw);
    memset(db, 0, s->out * sizeof *db);
    for (size_t n = 0; n < s->batch; n++, x += s->in, dy += s->out) {
        for (size_t o = 0; o < s->out; o++)
            db[o] += dy[o];
        for (size_t i = 0; i < s->in; i++)
            for (size_t o = 0; o < s->out; o++)
                dw[i * s->out + o] += x[i] * dy[o];
    }
}

/* The largest value is subtracted first: then each exp() is at most 1, and the sum at least 1, so
 * that neither overflows. */
void cnn_log_softmax(size_t batch, size_t classes, cnn_real *x)
{
    for (size_t n = 0; n < batch; n++, x += classes) {
        cnn_real top = x[0], sum = 0;

        for (size_t c = 1; c < classes; c++)
            top = x[c] > top ? x[c] : top;
        for (size_t c = 0; c < classes; c++)
            sum += (cnn_real)exp((double)(x[c] - top));
        for (size_t c = 0; c < classes; c++)
            x[c] -= top + (cnn_real)log((double)sum);
    }
}

void cnn_nll_backward(size_t batch, size_t classes, const cnn_real *y,
                      const uint8_t *labels, cnn_real scale, cnn_real *dx)
{
    for (size_t n = 0; n < batch * classes; n++) {
        const cnn_real hit = labels[n / classes] == n % classes ? 1 : 0;

        dx[n] = scale * ((cnn_real)exp((double)y[n]) - hit);
    }
}
