/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA driver that runs the PTX of our kernels on the host: the threads of a block run one after
 * the other, from barrier to barrier. It has only the instructions that these kernels use.
 *
 * The library has the driver's name, as fake_nccl.c has the runtime's. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fake_nccl.h"
#include "worker_sdk/base/half.h"
#include "worker_sdk/comm/nccl/nccl_api.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    STATEMENTS = 256,
    KERNELS = 64,
    WORDS = 5,
    WORD = 24,
    PARAMS = 8,
    REGISTERS = 128,
    BLOCK = 256,
    SHARED_BYTES = 2048,
};

static _Noreturn void die(const char *why, const char *what)
{
    fprintf(stderr, "fake CUDA driver: %s: %s\n", why, what);
    abort();
}

/* ---- Text ------------------------------------------------------------------------------- */

enum kind {
    NOTHING,
    REGISTER,
    NUMBER,
};

struct operand {
    enum kind kind;
    int index; /* of a register */
    uint64_t number;
};

/* "@%p1 mul.rn.f32 %f0, %f1, %f2" in words. */
struct statement {
    int guard;       /* register of a predicate; -1: none */
    char op[WORD];   /* "mul" */
    char how[WORD];  /* ".rn" and the like, without the type */
    char type[WORD]; /* "f32": the last part */
    char from[WORD]; /* of a cvt: the last part; `type` is the one before */
    struct operand of[WORDS];
    char label[WORD]; /* of a bra; of a ld.param: the name */
    int target;
};

struct CUfunc_st {
    char name[WORD];
    struct statement statements[STATEMENTS];
    int count;
};

struct CUmod_st {
    struct CUfunc_st functions[KERNELS];
    int count;
};

static const char classes[] = "phrfdx"; /* %p0, %h0, ... */

/* A register's index among all of them: 8 of the first five kinds (16 of %r), 24 of %x. */
static int register_of(const char *text)
{
    static const int first[] = {0, 8, 16, 32, 40, 48};
    const char *at = strchr(classes, text[1]);

    if (!at || !isdigit((unsigned char)text[2]))
        die("no such register", text);
    return first[at - classes] + (int)strtol(text + 2, NULL, 10);
}

static const char *const specials[] = {"%ctaid.x", "%ntid.x", "%tid.x", "%nctaid.x"};
enum {
    SPECIAL = 100 /* the registers from here on are these */
};

static struct operand operand_of(const char *word)
{
    struct operand operand = {.kind = NUMBER};

    for (int i = 0; i < 4; i++)
        if (strcmp(word, specials[i]) == 0)
            return (struct operand){.kind = REGISTER, .index = SPECIAL + i};
    if (word[0] == '%')
        return (struct operand){.kind = REGISTER, .index = register_of(word)};
    if (word[0] == '0' && (word[1] == 'f' || word[1] == 'd'))
        operand.number = strtoull(word + 2, NULL, 16);
    else if (isdigit((unsigned char)word[0]))
        operand.number = strtoull(word, NULL, 0);
    return operand; /* the name of shared memory is its address, 0 */
}

/* The operation and its types, separated by dots. */
static void split_op(struct statement *statement, const char *word)
{
    char parts[4][WORD] = {{0}};
    int n = 0;
    size_t used = 0;

    for (; *word; word++) {
        if (*word == '.') {
            n++;
            used = 0;
        } else if (n < 4 && used < WORD - 1) {
            parts[n][used++] = *word;
        }
    }
    if (n > 3)
        die("too many parts", word);
    memcpy(statement->op, parts[0], WORD);
    memcpy(statement->type, parts[n], WORD);
    if (strcmp(parts[0], "cvt") == 0) {
        memcpy(statement->from, parts[n], WORD);
        memcpy(statement->type, parts[n - 1], WORD);
    }
    if (n > 1)
        memcpy(statement->how, parts[1], WORD);
}

static void parse(struct statement *out, const char *text)
{
    char words[WORDS + 2][64] = {{0}};
    int n = 0, at = 0;
    size_t used = 0;

    for (; *text; text++) {
        if (strchr(" ,[]\n", *text)) {
            n += used > 0;
            used = 0;
        } else if (n < WORDS + 2 && used < sizeof words[0] - 1) {
            words[n][used++] = *text;
        }
    }
    n += used > 0;
    *out = (struct statement){.guard = -1};
    if (words[0][0] == '@') {
        out->guard = register_of(words[0] + 1);
        at = 1;
    }
    split_op(out, words[at++]);
    if (strcmp(out->op, "bra") == 0 ||
        (strcmp(out->op, "ld") == 0 && strcmp(out->how, "param") == 0))
        (void)snprintf(out->label, WORD, "%.23s", words[n - 1]);
    for (int i = 0; at + i < n && i < WORDS; i++)
        out->of[i] = operand_of(words[at + i]);
}

/* One entry: from after its name to its last brace. */
static void parse_function(struct CUfunc_st *out, const char *text, const char *end)
{
    char labels[32][WORD];
    int places[32], label_count = 0;

    for (const char *at = strchr(text, '{') + 1; at < end;) {
        size_t length = strcspn(at, ";:}");
        char one[160];

        while (*at == '\n')
            at++, length--;
        if (at >= end || *at == '}')
            break;
        (void)snprintf(one, sizeof one, "%.*s", (int)length, at);
        if (at[length] == ':') {
            (void)snprintf(labels[label_count], WORD, "%.23s", one);
            places[label_count++] = out->count;
        } else if (one[0] != '.') { /* not a declaration */
            parse(&out->statements[out->count++], one);
        }
        if (out->count == STATEMENTS || label_count == 32)
            die("too long", out->name);
        at += length + 1;
    }
    for (int i = 0; i < out->count; i++) {
        struct statement *statement = &out->statements[i];

        if (strcmp(statement->op, "bra") != 0)
            continue;
        statement->target = -1;
        for (int l = 0; l < label_count; l++)
            if (strcmp(labels[l], statement->label) == 0)
                statement->target = places[l];
        if (statement->target < 0)
            die("no such label", statement->label);
    }
}

/* ---- Threads ---------------------------------------------------------------------------- */

struct thread {
    uint64_t registers[REGISTERS];
    int at;
    bool is_over;
};

struct launch {
    const struct CUfunc_st *function;
    unsigned grid, block;
    uint64_t params[PARAMS];
};

static float f32_of(uint64_t bits)
{
    return ct_float_of_bits((uint32_t)bits);
}

static double f64_of(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t get(const struct thread *thread, const struct operand *operand)
{
    return operand->kind == REGISTER ? thread->registers[operand->index]
                                     : operand->number;
}

static size_t size_of(const char *type)
{
    return strtoul(type + 1, NULL, 10) / 8;
}

static bool is(const char *a, const char *b)
{
    return a[0] == b[0] && strcmp(a, b) == 0; /* a quick test */
}

static uint64_t count_f32(const char *op, float a, float b)
{
    return ct_bits_of_float(is(op, "add")   ? a + b
                            : is(op, "sub") ? a - b
                            : is(op, "mul") ? a * b
                            : is(op, "div") ? a / b
                                            : sqrtf(a));
}

static uint64_t count_f64(const char *op, double a, double b)
{
    return bits_of(is(op, "add")    ? a + b
                   : is(op, "mul")  ? a * b
                   : is(op, "div")  ? a / b
                   : is(op, "sqrt") ? sqrt(a)
                                    : NAN);
}

static uint64_t count_integer(const struct statement *s, uint64_t a, uint64_t b)
{
    uint64_t value = is(s->op, "add")   ? a + b
                     : is(s->op, "mul") ? a * b
                     : is(s->op, "div") ? a / b
                     : is(s->op, "rem") ? a % b
                     : is(s->op, "and") ? a & b
                     : is(s->op, "or")  ? a | b
                     : is(s->op, "xor") ? a ^ b
                     : is(s->op, "shl") ? a << b
                     : is(s->op, "shr") ? a >> b
                                        : (die("unknown", s->op), UINT64_C(0));

    return is(s->type, "u64") || is(s->type, "b64") || is(s->how, "wide")
               ? value
               : (uint32_t)value;
}

static uint64_t convert(const struct statement *s, uint64_t a)
{
    if (is(s->type, "f16") && is(s->from, "f32"))
        return ct_f16_of_float(f32_of(a));
    if (is(s->type, "f32") && is(s->from, "f16"))
        return ct_bits_of_float(ct_float_of_f16((uint16_t)a));
    if (is(s->type, "f64") && is(s->from, "f32"))
        return bits_of((double)f32_of(a));
    if (is(s->type, "f32") && is(s->from, "f64"))
        return ct_bits_of_float((float)f64_of(a));
    if (is(s->type, "f64") && is(s->from, "u64"))
        return bits_of((double)a);
    if (s->type[0] != 'u' || s->from[0] != 'u')
        die("unknown conversion", s->type);
    return is(s->type, "u16") ? (uint16_t)a : is(s->type, "u32") ? (uint32_t)a : a;
}

static bool compare(const struct statement *s, uint64_t a, uint64_t b)
{
    if (is(s->type, "f32") && is(s->how, "eq"))
        return f32_of(a) == f32_of(b);
    if (is(s->type, "f64") && is(s->how, "ge"))
        return f64_of(a) >= f64_of(b);
    if (s->type[0] != 'u')
        die("unknown comparison", s->type);
    return is(s->how, "ge")   ? a >= b
           : is(s->how, "lt") ? a < b
           : is(s->how, "gt") ? a > b
           : is(s->how, "eq") ? a == b
           : is(s->how, "ne") ? a != b
                              : (die("unknown comparison", s->how), false);
}

static unsigned char *address(const struct statement *s, uint64_t at,
                              unsigned char *shared)
{
    void *host, *device;

    if (is(s->how, "shared"))
        return shared + at;
    memcpy(&host, &at, sizeof host);
    if (!(device = fake_device(host)))
        die("a kernel touches memory that is not the device's", s->op);
    return device;
}

static void load(uint64_t *to, const unsigned char *from, size_t bytes)
{
    *to = 0;
    memcpy(to, from, bytes);
}

/* Blocks run one after the other. */
static void add_to(unsigned char *at, uint64_t value)
{
    uint64_t sum;

    memcpy(&sum, at, sizeof sum);
    sum += value;
    memcpy(at, &sum, sizeof sum);
}

static size_t param_of(const char *name)
{
    static const char *const names[PARAMS] = {"pa", "pb", "pc", "pi",
                                              "pn", "pm", "pk", "pby"};

    for (size_t i = 0; i < PARAMS; i++)
        if (is(names[i], name))
            return i;
    die("no such parameter", name);
}

/* False: it waits at a barrier, or is over. */
static bool run_one(const struct launch *launch, struct thread *thread,
                    unsigned char *shared)
{
    const struct statement *s = &launch->function->statements[thread->at++];
    const uint64_t a = get(thread, &s->of[1]), b = get(thread, &s->of[2]);
    uint64_t *to = &thread->registers[s->of[0].index];

    if (s->guard >= 0 && !thread->registers[s->guard])
        return true;
    if (is(s->op, "bra"))
        thread->at = s->target;
    else if (is(s->op, "ret"))
        thread->is_over = true;
    else if (is(s->op, "mov") || is(s->op, "cvta"))
        *to = a;
    else if (is(s->op, "setp"))
        *to = compare(s, a, b);
    else if (is(s->op, "selp"))
        *to = get(thread, &s->of[3]) ? a : b;
    else if (is(s->op, "cvt"))
        *to = convert(s, a);
    else if (is(s->op, "ld") && is(s->how, "param"))
        *to = launch->params[param_of(s->label)];
    else if (is(s->op, "ld"))
        load(to, address(s, a, shared), size_of(s->type));
    else if (is(s->op, "st"))
        memcpy(address(s, get(thread, &s->of[0]), shared), &a, size_of(s->type));
    else if (is(s->op, "red"))
        add_to(address(s, get(thread, &s->of[0]), shared), a);
    else if (is(s->type, "f32"))
        *to = count_f32(s->op, f32_of(a), f32_of(b));
    else if (is(s->type, "f64"))
        *to = count_f64(s->op, f64_of(a), f64_of(b));
    else if (!is(s->op, "bar"))
        *to = count_integer(s, a, b);
    return !thread->is_over && !is(s->op, "bar");
}

static void run_block(const struct launch *launch, unsigned number)
{
    static _Thread_local struct thread threads[BLOCK];
    unsigned char shared[SHARED_BYTES];
    bool goes_on = true;

    memset(shared, 0xaa, sizeof shared);
    for (unsigned t = 0; t < launch->block; t++) {
        memset(&threads[t], 0x77, sizeof *threads); /* not set yet */
        threads[t].at = 0;
        threads[t].is_over = false;
        threads[t].registers[SPECIAL] = number;
        threads[t].registers[SPECIAL + 1] = launch->block;
        threads[t].registers[SPECIAL + 2] = t;
        threads[t].registers[SPECIAL + 3] = launch->grid;
    }
    while (goes_on) {
        goes_on = false;
        for (unsigned t = 0; t < launch->block; t++) {
            while (!threads[t].is_over && run_one(launch, &threads[t], shared)) {
            }
            goes_on = goes_on || !threads[t].is_over;
        }
    }
}

static void run_launch(void *context)
{
    struct launch *launch = context;

    for (unsigned number = 0; number < launch->grid; number++)
        run_block(launch, number);
    free(launch);
}

/* ---- The driver ------------------------------------------------------------------------- */

EXPORT CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    static const char entry[] = ".visible .entry ";
    const char *at = image;
    CUmodule module;

    if (fake_enter() || fake_nccl.no_driver || fake_spoils_capture())
        return CUDA_ERROR_UNKNOWN;
    if (!(module = calloc(1, sizeof *module)))
        die("no memory", "module");
    while ((at = strstr(at, entry))) {
        struct CUfunc_st *function = &module->functions[module->count++];

        if (module->count == KERNELS)
            die("too many", "kernels");
        at += sizeof entry - 1;
        (void)snprintf(function->name, WORD, "%.*s", (int)strcspn(at, "("), at);
        parse_function(function, at, strchr(at, '}'));
    }
    fake_count_blocks(1);
    *out = module;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    if (fake_enter())
        return CUDA_ERROR_UNKNOWN;
    for (int i = 0; i < module->count; i++)
        if (is(module->functions[i].name, name)) {
            *out = &module->functions[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_UNKNOWN;
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
    cudaDeviceSynchronize(); /* its kernels may be running */
    fake_count_blocks(-1);
    free(module);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                               unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared_bytes,
                               cudaStream_t stream, void **params, void **extra)
{
    struct launch *launch;

    if (fake_enter())
        return CUDA_ERROR_UNKNOWN;
    if (!grid_x || grid_y != 1 || grid_z != 1 || !block_x || block_x > BLOCK ||
        block_y != 1 || block_z != 1 || shared_bytes || extra)
        die("a launch that is none of ours", function->name);
    if (!(launch = malloc(sizeof *launch)))
        die("no memory", "launch");
    *launch = (struct launch){.function = function, .grid = grid_x, .block = block_x};
    for (int i = 0; i < PARAMS; i++)
        memcpy(&launch->params[i], params[i], sizeof launch->params[i]);
    fake_launch_copy(stream, run_launch, launch, sizeof *launch);
    return CUDA_SUCCESS;
}
