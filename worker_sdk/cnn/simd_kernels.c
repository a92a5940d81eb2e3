/* SPDX-License-Identifier: Apache-2.0 */
/* The vector kernels, in GCC's vector extension. CMake compiles this file once for each
 * instruction set, with CNN_SIMD_TABLE naming the table; lanes and tile sizes follow from what
 * the compiler may use. */
#include <string.h>

#include "worker_sdk/cnn/random.h"
#include "worker_sdk/cnn/simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum {
    LANES = 16,
    GEMM_VECTORS = 4, /* 6 x 4 sums in 32 registers */
    GROUP = 2,        /* vectors of conv1's channels at once */
    PATCH_ROWS = 3,   /* conv2's gradients: 3 rows x 6 vectors in registers */
    PATCH_VECTORS = 6,
};
#elif defined(__AVX2__)
enum {
    LANES = 8,
    GEMM_VECTORS = 2,
    GROUP = 1,
    PATCH_ROWS = 1,
    PATCH_VECTORS = 12
};
#else
enum {
    LANES = 4,
    GEMM_VECTORS = 2,
    GROUP = 1,
    PATCH_ROWS = 1,
    PATCH_VECTORS = 12
};
#endif
enum {
    GEMM_TILES = 6,
    PIXELS = 13,        /* of a row of conv1's 26 at once */
    PATCH = 3 * CNN_C1, /* floats of a patch's row: 3 pixels, all channels */
    HIDDEN_VECTORS = 8, /* of fc1's units at once */
    HIDDEN_STEP = HIDDEN_VECTORS * LANES,
};

/* Any alignment: DDP's buckets may put gradients at any address. */
typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#define UNROLL _Pragma("GCC unroll 16")

static inline vec load(const float *from)
{
    return *(const vec *)from;
}

static inline void store(float *to, vec v)
{
    *(vec *)to = v;
}

static inline vec splat(float x)
{
    return x - (vec){0};
}

static inline vec pick(ivec which, vec yes, vec no)
{
    return (vec)((which & (ivec)yes) | (~which & (ivec)no));
}

/* Bit i: lane i is positive, or NaN. */
static inline uint64_t positive(vec v)
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)v, _mm512_setzero_ps(), _CMP_NLE_UQ);
#elif defined(__AVX2__)
    return (uint64_t)(uint32_t)_mm256_movemask_ps(
        _mm256_cmp_ps((__m256)v, _mm256_setzero_ps(), _CMP_NLE_UQ));
#else
    uint64_t bits = 0;

    for (int i = 0; i < LANES; i++)
        bits |= (uint64_t) !(v[i] <= 0) << i;
    return bits;
#endif
}

static inline float total(vec v)
{
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#else
    float sum = 0;

    for (int i = 0; i < LANES; i++)
        sum += v[i];
    return sum;
#endif
}

/* U = G g G^T for every filter g: G = (1 0 0, 1/2 1/2 1/2, 1/2 -1/2 1/2, 0 0 1) */
static void transform(const float *w2, size_t first, size_t end,
                      struct cnn_simd_weights *out)
{
    for (size_t i = first; i < end; i++) {
        for (size_t o = 0; o < CNN_C2; o++) {
            const float *g = w2 + (o * CNN_C1 + i) * 9;
            float rows[4][3];

            for (int c = 0; c < 3; c++) {
                const float sum = 0.5f * (g[c] + g[6 + c]);

                rows[0][c] = g[c];
                rows[1][c] = sum + 0.5f * g[3 + c];
                rows[2][c] = sum - 0.5f * g[3 + c];
                rows[3][c] = g[6 + c];
            }
            for (int r = 0; r < 4; r++) {
                const float sum = 0.5f * (rows[r][0] + rows[r][2]);

                out->u[r * 4][i][o] = rows[r][0];
                out->u[r * 4 + 1][i][o] = sum + 0.5f * rows[r][1];
                out->u[r * 4 + 2][i][o] = sum - 0.5f * rows[r][1];
                out->u[r * 4 + 3][i][o] = rows[r][2];
            }
            for (int tap = 0; tap < 9; tap++)
                out->w2[o][tap][i] = g[tap];
        }
    }
}

static void conv1(const struct cnn_simd_weights *w, const float *x, float *a1)
{
    for (size_t g = 0; g < CNN_C1; g += GROUP * LANES) {
        for (size_t p = 0; p < CNN_AREA1; p += PIXELS) {
            const float *in = x + p / CNN_SIDE1 * CNN_SIDE + p % CNN_SIDE1;
            vec sum[PIXELS][GROUP];

            UNROLL for (int i = 0; i < PIXELS; i++)
                UNROLL for (int v = 0; v < GROUP; v++)
                    sum[i][v] = load(w->b1 + g + (size_t)v * LANES);
            for (int tap = 0; tap < 9; tap++) {
                const float *at = in + tap / 3 * CNN_SIDE + tap % 3;

                UNROLL for (int v = 0; v < GROUP; v++)
                {
                    const vec weight = load(&w->w1[tap][g + (size_t)v * LANES]);

                    UNROLL for (int i = 0; i < PIXELS; i++) sum[i][v] += at[i] * weight;
                }
            }
            UNROLL for (size_t i = 0; i < PIXELS; i++)
                UNROLL for (size_t v = 0; v < GROUP; v++)
                    store(a1 + (p + i) * CNN_C1 + g + v * LANES,
                          pick(sum[i][v] <= 0, splat(0), sum[i][v]));
        }
    }
}

/* V = B^T d B for the 12 tiles of a row: B^T = (1 0 -1 0, 0 1 1 0, 0 -1 1 0, 0 1 0 -1) */
static void transform_row(const float *a1, size_t row, struct cnn_simd_scratch *scratch)
{
    for (size_t t = 0; t < CNN_POOLED; t++) {
        for (size_t c = 0; c < CNN_C1; c += LANES) {
            const float *d = a1 + (2 * row * CNN_SIDE1 + 2 * t) * CNN_C1 + c;
            vec half[4][4];

            UNROLL for (size_t j = 0; j < 4; j++)
            {
                const vec d0 = load(d + j * CNN_C1);
                const vec d1 = load(d + (CNN_SIDE1 + j) * CNN_C1);
                const vec d2 = load(d + (2 * CNN_SIDE1 + j) * CNN_C1);
                const vec d3 = load(d + (3 * CNN_SIDE1 + j) * CNN_C1);

                half[0][j] = d0 - d2;
                half[1][j] = d1 + d2;
                half[2][j] = d2 - d1;
                half[3][j] = d1 - d3;
            }
            UNROLL for (int i = 0; i < 4; i++)
            {
                store(&scratch->v[i * 4][t][c], half[i][0] - half[i][2]);
                store(&scratch->v[i * 4 + 1][t][c], half[i][1] + half[i][2]);
                store(&scratch->v[i * 4 + 2][t][c], half[i][2] - half[i][1]);
                store(&scratch->v[i * 4 + 3][t][c], half[i][1] - half[i][3]);
            }
        }
    }
}

/* m (12, 64) = v (12, 32) u (32, 64) */
static void multiply(const float v[restrict CNN_POOLED][CNN_C1],
                     const float u[restrict CNN_C1][CNN_C2],
                     float m[restrict CNN_POOLED][CNN_C2])
{
    for (size_t t = 0; t < CNN_POOLED; t += GEMM_TILES) {
        for (size_t o = 0; o < CNN_C2; o += GEMM_VECTORS * LANES) {
            vec sum[GEMM_TILES][GEMM_VECTORS];

            UNROLL for (int i = 0; i < GEMM_TILES; i++)
                UNROLL for (int j = 0; j < GEMM_VECTORS; j++) sum[i][j] = splat(0);
            for (size_t k = 0; k < CNN_C1; k++) {
                vec b[GEMM_VECTORS];

                UNROLL for (size_t j = 0; j < GEMM_VECTORS; j++)
                    b[j] = load(&u[k][o + j * LANES]);
                UNROLL for (size_t i = 0; i < GEMM_TILES; i++)
                    UNROLL for (int j = 0; j < GEMM_VECTORS; j++)
                        sum[i][j] += v[t + i][k] * b[j];
            }
            UNROLL for (size_t i = 0; i < GEMM_TILES; i++)
                UNROLL for (size_t j = 0; j < GEMM_VECTORS; j++)
                    store(&m[t + i][o + j * LANES], sum[i][j]);
        }
    }
}

/* The four outputs y = A^T m A of a tile, A^T = (1 1 1 0, 0 1 -1 -1), their maximum plus bias,
 * and which it was. Returns which of these channels are positive or NaN. */
static inline uint64_t pool_tile(const struct cnn_simd_weights *w,
                                 const struct cnn_simd_scratch *scratch, size_t t,
                                 size_t c, float *value, int32_t *from)
{
    vec half[2][4], y[4], best;
    ivec which = {0};

    UNROLL for (int j = 0; j < 4; j++)
    {
        const vec m0 = load(&scratch->m[j][t][c]), m1 = load(&scratch->m[4 + j][t][c]);
        const vec m2 = load(&scratch->m[8 + j][t][c]),
                  m3 = load(&scratch->m[12 + j][t][c]);

        half[0][j] = m0 + m1 + m2;
        half[1][j] = m1 - m2 - m3;
    }
    UNROLL for (int i = 0; i < 2; i++)
    {
        y[2 * i] = half[i][0] + half[i][1] + half[i][2];
        y[2 * i + 1] = half[i][1] - half[i][2] - half[i][3];
    }
    best = y[0];
    UNROLL for (int k = 1; k < 4; k++)
    {
        /* a NaN wins over any number, so that it is seen in the loss; of equal ones the first
         * stays, as in PyTorch */
        const ivec more = (y[k] > best) | (y[k] != y[k]);

        best = pick(more, y[k], best);
        which = (more & k) | (~more & which);
    }
    best += load(w->b2 + c);
    store(value + c, best);
    *(ivec *)(from + c) = which;
    return positive(best) << c;
}

static void conv2(const struct cnn_simd_weights *w, const float *a1,
                  const uint64_t *keep, struct cnn_simd_scratch *scratch,
                  struct cnn_simd_list *out)
{
    const float scale = keep ? CNN_SCALE1 : 1.0f;
    size_t n = 0;

    for (size_t row = 0; row < CNN_POOLED; row++) {
        transform_row(a1, row, scratch);
        for (int i = 0; i < 16; i++)
            multiply(scratch->v[i], w->u[i], scratch->m[i]);
        for (size_t t = 0; t < CNN_POOLED; t++) {
            const size_t window = row * CNN_POOLED + t;
            float value[CNN_C2];
            int32_t from[CNN_C2];
            uint64_t left = 0;

            for (size_t c = 0; c < CNN_C2; c += LANES)
                left |= pool_tile(w, scratch, t, c, value, from);
            if (keep)
                left &= keep[window];
            out->start[window] = (uint16_t)n;
            for (; left; left &= left - 1, n++) {
                const int c = __builtin_ctzll(left);

                out->channel[n] = (uint8_t)c;
                out->from[n] = (uint8_t)from[c];
                out->value[n] = scale * value[c];
            }
        }
    }
    out->start[CNN_WINDOWS] = (uint16_t)n;
}

/* Window by window over all images: 64 rows of weights stay in the first-level cache. */
static void fc1(const float *weight, const struct cnn_simd_list *lists, size_t n,
                float *hidden)
{
    for (size_t t = 0; t < CNN_WINDOWS; t++) {
        for (size_t b = 0; b < n; b++) {
            const struct cnn_simd_list *list = &lists[b];
            const size_t end = list->start[t + 1];

            for (size_t h = 0; h < CNN_HIDDEN; h += HIDDEN_STEP) {
                const float *rows = weight + t * CNN_C2 * CNN_HIDDEN + h;
                float *to = hidden + b * CNN_HIDDEN + h;
                vec sum[HIDDEN_VECTORS];

                UNROLL for (size_t v = 0; v < HIDDEN_VECTORS; v++)
                    sum[v] = load(to + v * LANES);
                for (size_t e = list->start[t]; e < end; e++) {
                    const float *row = rows + (size_t)list->channel[e] * CNN_HIDDEN;

                    UNROLL for (size_t v = 0; v < HIDDEN_VECTORS; v++)
                        sum[v] += list->value[e] * load(row + v * LANES);
                }
                UNROLL for (size_t v = 0; v < HIDDEN_VECTORS; v++)
                    store(to + v * LANES, sum[v]);
            }
        }
    }
}

static void fc1_backward(const float *weight, const float *dhidden, float scale,
                         struct cnn_simd_list *lists, size_t n, size_t first,
                         size_t end, float *dweight)
{
    memset(dweight + first * CNN_C2 * CNN_HIDDEN, 0,
           (end - first) * CNN_C2 * CNN_HIDDEN * sizeof *dweight);
    for (size_t t = first; t < end; t++) {
        for (size_t b = 0; b < n; b++) {
            struct cnn_simd_list *list = &lists[b];

            for (size_t h = 0; h < CNN_HIDDEN; h += HIDDEN_STEP) {
                const size_t at = t * CNN_C2 * CNN_HIDDEN + h;
                vec g[HIDDEN_VECTORS];

                UNROLL for (size_t v = 0; v < HIDDEN_VECTORS; v++)
                    g[v] = load(dhidden + b * CNN_HIDDEN + h + v * LANES);
                for (size_t e = list->start[t]; e < list->start[t + 1]; e++) {
                    const size_t row = at + (size_t)list->channel[e] * CNN_HIDDEN;
                    const float value = list->value[e];
                    vec dot = splat(0);

                    UNROLL for (size_t v = 0; v < HIDDEN_VECTORS; v++)
                    {
                        float *dw = dweight + row + v * LANES;

                        dot += g[v] * load(weight + row + v * LANES);
                        store(dw, load(dw) + value * g[v]);
                    }
                    /* the first part of the units overwrites: the field has the value of the step
                     * before */
                    list->grad[e] = (h ? list->grad[e] : 0) + scale * total(dot);
                }
            }
        }
    }
}

/* A list by output channel: where in a1 the patch begins, and the gradient there. */
struct by_channel {
    uint16_t start[CNN_C2 + 1];
    uint32_t patch[CNN_FLAT];
    float grad[CNN_FLAT];
};

/* A counting sort. It keeps the order of windows within a channel, so that sums are made in the
 * same order in each run. */
static void sort_by_channel(const struct cnn_simd_list *list, struct by_channel *out)
{
    uint16_t next[CNN_C2] = {0};
    const size_t n = list->start[CNN_WINDOWS];
    uint16_t at = 0;

    for (size_t e = 0; e < n; e++)
        next[list->channel[e]]++;
    for (size_t c = 0; c < CNN_C2; c++) {
        const uint16_t count = next[c];

        out->start[c] = next[c] = at;
        at = (uint16_t)(at + count);
    }
    out->start[CNN_C2] = at;
    for (size_t t = 0; t < CNN_WINDOWS; t++) {
        const size_t row = t / CNN_POOLED * 2, column = t % CNN_POOLED * 2;

        for (size_t e = list->start[t]; e < list->start[t + 1]; e++) {
            const size_t to = next[list->channel[e]]++;
            const size_t pixel = (row + list->from[e] / 2) * CNN_SIDE1 + column +
                                 list->from[e] % 2;

            out->patch[to] = (uint32_t)(pixel * CNN_C1);
            out->grad[to] = list->grad[e];
        }
    }
}

/* dw[c] += grad * patch of a1, for rows [row, row + PATCH_ROWS) of the 3x3 window and floats
 * [s, s + PATCH_VECTORS * LANES) of a row: the sums stay in registers over all entries. */
static inline void add_weight_gradient(const struct by_channel *list, size_t c,
                                       const float *a1, size_t row, size_t s, float *dw)
{
    vec sum[PATCH_ROWS][PATCH_VECTORS];

    UNROLL for (size_t r = 0; r < PATCH_ROWS; r++)
        UNROLL for (size_t v = 0; v < PATCH_VECTORS; v++)
            sum[r][v] = load(dw + (row + r) * PATCH + s + v * LANES);
    for (size_t e = list->start[c]; e < list->start[c + 1]; e++) {
        const float *in = a1 + list->patch[e] + s;
        const float g = list->grad[e];

        UNROLL for (size_t r = 0; r < PATCH_ROWS; r++)
            UNROLL for (size_t v = 0; v < PATCH_VECTORS; v++)
                sum[r][v] += g * load(in + (row + r) * CNN_SIDE1 * CNN_C1 + v * LANES);
    }
    UNROLL for (size_t r = 0; r < PATCH_ROWS; r++)
        UNROLL for (size_t v = 0; v < PATCH_VECTORS; v++)
            store(dw + (row + r) * PATCH + s + v * LANES, sum[r][v]);
}

/* da1's patches += grad * weights: the same walk, with the weights in registers. */
static inline void add_input_gradient(const struct by_channel *list, size_t c,
                                      const float *weights, size_t row, size_t s,
                                      float *da1)
{
    vec w[PATCH_ROWS][PATCH_VECTORS];

    UNROLL for (size_t r = 0; r < PATCH_ROWS; r++)
        UNROLL for (size_t v = 0; v < PATCH_VECTORS; v++)
            w[r][v] = load(weights + (row + r) * PATCH + s + v * LANES);
    for (size_t e = list->start[c]; e < list->start[c + 1]; e++) {
        float *out = da1 + list->patch[e] + s;
        const float g = list->grad[e];

        UNROLL for (size_t r = 0; r < PATCH_ROWS; r++)
        {
            UNROLL for (size_t v = 0; v < PATCH_VECTORS; v++)
            {
                float *to = out + (row + r) * CNN_SIDE1 * CNN_C1 + v * LANES;

                store(to, load(to) + g * w[r][v]);
            }
        }
    }
}

/* conv1's gradients; da1 passes where a1 > 0. */
static void conv1_backward(const float *x, const float *a1,
                           struct cnn_simd_scratch *scratch)
{
    for (size_t g = 0; g < CNN_C1; g += GROUP * LANES) {
        vec dw[9][GROUP], db[GROUP];

        UNROLL for (size_t v = 0; v < GROUP; v++)
        {
            db[v] = load(&scratch->db1[g + v * LANES]);
            UNROLL for (int tap = 0; tap < 9; tap++)
                dw[tap][v] = load(&scratch->dw1[tap][g + v * LANES]);
        }
        for (size_t p = 0; p < CNN_AREA1; p++) {
            const float *in = x + p / CNN_SIDE1 * CNN_SIDE + p % CNN_SIDE1;

            UNROLL for (size_t v = 0; v < GROUP; v++)
            {
                const size_t at = p * CNN_C1 + g + v * LANES;
                const vec d = pick(load(a1 + at) > 0, load(&scratch->da1[0][0] + at),
                                   splat(0));

                db[v] += d;
                UNROLL for (int tap = 0; tap < 9; tap++)
                    dw[tap][v] += in[tap / 3 * CNN_SIDE + tap % 3] * d;
            }
        }
        UNROLL for (size_t v = 0; v < GROUP; v++)
        {
            store(&scratch->db1[g + v * LANES], db[v]);
            UNROLL for (int tap = 0; tap < 9; tap++)
                store(&scratch->dw1[tap][g + v * LANES], dw[tap][v]);
        }
    }
}

static void conv_backward(const struct cnn_simd_weights *w, const float *x,
                          const float *a1, const struct cnn_simd_list *list,
                          struct cnn_simd_scratch *scratch)
{
    struct by_channel sorted;

    sort_by_channel(list, &sorted);
    memset(scratch->da1, 0, sizeof scratch->da1);
    for (size_t c = 0; c < CNN_C2; c++) {
        for (size_t row = 0; row < 3; row += PATCH_ROWS) {
            for (size_t s = 0; s < PATCH; s += PATCH_VECTORS * LANES) {
                add_weight_gradient(&sorted, c, a1, row, s, &scratch->dw2[c][0][0]);
                add_input_gradient(&sorted, c, &w->w2[c][0][0], row, s,
                                   &scratch->da1[0][0]);
            }
        }
        for (size_t e = sorted.start[c]; e < sorted.start[c + 1]; e++)
            scratch->db2[c] += sorted.grad[e];
    }
    conv1_backward(x, a1, scratch);
}

static bool is_usable(void)
{
#if defined(__AVX512F__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
#elif defined(__AVX2__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return true;
#endif
}

const struct cnn_simd_kernels CNN_SIMD_TABLE = {
    .isa = CNN_SIMD_ISA,
    .is_usable = is_usable,
    .transform = transform,
    .conv1 = conv1,
    .conv2 = conv2,
    .fc1 = fc1,
    .fc1_backward = fc1_backward,
    .conv_backward = conv_backward,
};
