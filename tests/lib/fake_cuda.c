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
    INFINITY_F16 = 0x7c00,
    NAN_F16 = 0x7fff, /* the only NaNs that cvt makes */
    NAN_F32 = 0x7fffffff,
    SPECIAL = 100, /* the registers from here on are `specials` */
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

/* What an instruction may consist of; OTHER: it changes nothing here. */
/* clang-format off */
#define PARTS(X)                                                                       \
    X(add) X(sub) X(mul) X(div) X(rem) X(sqrt) X(and) X(or) X(xor) X(shl) X(shr)       \
    X(mov) X(cvta) X(cvt) X(setp) X(selp) X(ld) X(st) X(red) X(bar) X(bra) X(ret)      \
    X(param) X(shared) X(wide) X(eq) X(ne) X(ge) X(gt) X(lt)                           \
    X(f16) X(f32) X(f64) X(u8) X(u16) X(u32) X(u64) X(b64)
/* clang-format on */
enum part {
    OTHER,
#define IN_ENUM(name) P_##name,
    PARTS(IN_ENUM)
};
#define AS_TEXT(name) , #name
static const char *const part_names[] = {"" PARTS(AS_TEXT)};

struct operand {
    enum kind kind;
    int index; /* of a register */
    uint64_t number;
};

/* "@%p1 mul.rn.f32 %f0, %f1, %f2" in words. */
struct statement {
    int guard;      /* register of a predicate; -1: none */
    enum part op;   /* mul */
    enum part how;  /* what comes first after it */
    enum part type; /* f32: the last part */
    enum part from; /* of a cvt: the last part; `type` is the one before */
    size_t bytes;   /* of the type */
    struct operand of[WORDS];
    char label[WORD]; /* of a bra */
    int target;       /* of a bra */
    size_t param;     /* of a ld.param */
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
    const long number = at ? strtol(text + 2, NULL, 10) : 0;

    if (!at || !isdigit((unsigned char)text[2]) ||
        number >= SPECIAL - first[at - classes])
        die("no such register", text);
    return first[at - classes] + (int)number;
}

static const char *const specials[] = {"%ctaid.x", "%ntid.x", "%tid.x", "%nctaid.x"};
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

static enum part part_of(const char *text)
{
    size_t i = sizeof part_names / sizeof *part_names;

    while (--i > OTHER && strcmp(part_names[i], text) != 0) {
    }
    return (enum part)i;
}

static size_t param_of(const char *name)
{
    static const char *const names[PARAMS] = {"pa", "pb", "pc", "pi",
                                              "pn", "pm", "pk", "pby"};

    for (size_t i = 0; i < PARAMS; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    die("no such parameter", name);
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
    statement->op = part_of(parts[0]);
    if (statement->op == OTHER)
        die("no such instruction", parts[0]);
    statement->type = part_of(parts[n]);
    statement->bytes = strtoul(parts[n] + 1, NULL, 10) / 8;
    if (statement->op == P_cvt) {
        statement->from = statement->type;
        statement->type = part_of(parts[n - 1]);
    }
    statement->how = n > 1 ? part_of(parts[1]) : OTHER;
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
    if (out->op == P_bra)
        (void)snprintf(out->label, WORD, "%.23s", words[n - 1]);
    if (out->op == P_ld && out->how == P_param)
        out->param = param_of(words[n - 1]);
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

        if (statement->op != P_bra)
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

/* The sanitizers watch the memory of the device, not the registers: these would take most of the time. */
#define UNWATCHED __attribute__((no_sanitize("thread", "address", "undefined")))

UNWATCHED static uint64_t get(const struct thread *thread,
                              const struct operand *operand)
{
    return operand->kind == REGISTER ? thread->registers[operand->index]
                                     : operand->number;
}

static bool is_unsigned(enum part type)
{
    return type >= P_u8 && type <= P_u64;
}

UNWATCHED static uint64_t count_f32(enum part op, float a, float b)
{
    return ct_bits_of_float(op == P_add   ? a + b
                            : op == P_sub ? a - b
                            : op == P_mul ? a * b
                            : op == P_div ? a / b
                                          : sqrtf(a));
}

UNWATCHED static uint64_t count_f64(enum part op, double a, double b)
{
    return bits_of(op == P_add    ? a + b
                   : op == P_mul  ? a * b
                   : op == P_div  ? a / b
                   : op == P_sqrt ? sqrt(a)
                                  : NAN);
}

UNWATCHED static uint64_t count_integer(const struct statement *s, uint64_t a,
                                        uint64_t b)
{
    uint64_t value = s->op == P_add   ? a + b
                     : s->op == P_mul ? a * b
                     : s->op == P_div ? a / b
                     : s->op == P_rem ? a % b
                     : s->op == P_and ? a & b
                     : s->op == P_or  ? a | b
                     : s->op == P_xor ? a ^ b
                     : s->op == P_shl ? a << b
                     : s->op == P_shr
                         ? a >> b
                         : (die("unknown", part_names[s->op]), UINT64_C(0));

    return s->type == P_u64 || s->type == P_b64 || s->how == P_wide ? value
                                                                    : (uint32_t)value;
}

UNWATCHED static uint64_t convert(const struct statement *s, uint64_t a)
{
    if (s->type == P_f16 && s->from == P_f32)
        return f32_of(a) == f32_of(a) ? ct_f16_of_float(f32_of(a)) : NAN_F16;
    if (s->type == P_f32 && s->from == P_f16)
        return (a & 0x7fff) > INFINITY_F16
                   ? NAN_F32
                   : ct_bits_of_float(ct_float_of_f16((uint16_t)a));
    if (s->type == P_f64 && s->from == P_f32)
        return bits_of((double)f32_of(a));
    if (s->type == P_f32 && s->from == P_f64)
        return ct_bits_of_float((float)f64_of(a));
    if (s->type == P_f64 && s->from == P_u64)
        return bits_of((double)a);
    if (!is_unsigned(s->type) || !is_unsigned(s->from))
        die("unknown conversion", part_names[s->type]);
    return s->type == P_u16 ? (uint16_t)a : s->type == P_u32 ? (uint32_t)a : a;
}

UNWATCHED static bool compare(const struct statement *s, uint64_t a, uint64_t b)
{
    if (s->type == P_f32 && s->how == P_eq)
        return f32_of(a) == f32_of(b);
    if (s->type == P_f64 && s->how == P_ge)
        return f64_of(a) >= f64_of(b);
    if (!is_unsigned(s->type))
        die("unknown comparison", part_names[s->type]);
    return s->how == P_ge   ? a >= b
           : s->how == P_lt ? a < b
           : s->how == P_gt ? a > b
           : s->how == P_eq ? a == b
           : s->how == P_ne ? a != b
                            : (die("unknown comparison", part_names[s->how]), false);
}

static unsigned char *address(const struct statement *s, uint64_t at,
                              unsigned char *shared)
{
    void *host, *device;

    if (s->how == P_shared)
        return shared + at;
    memcpy(&host, &at, sizeof host);
    if (!(device = fake_device(host)))
        die("a kernel touches memory that is not the device's", part_names[s->op]);
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

/* False: it waits at a barrier, or is over. */
UNWATCHED static bool run_one(const struct launch *launch, struct thread *thread,
                              unsigned char *shared)
{
    const struct statement *s = &launch->function->statements[thread->at++];
    const uint64_t a = get(thread, &s->of[1]), b = get(thread, &s->of[2]);
    uint64_t *to = &thread->registers[s->of[0].index];

    if (s->guard >= 0 && !thread->registers[s->guard])
        return true;
    if (s->op == P_bra)
        thread->at = s->target;
    else if (s->op == P_ret)
        thread->is_over = true;
    else if (s->op == P_mov || s->op == P_cvta)
        *to = a;
    else if (s->op == P_setp)
        *to = compare(s, a, b);
    else if (s->op == P_selp)
        *to = get(thread, &s->of[3]) ? a : b;
    else if (s->op == P_cvt)
        *to = convert(s, a);
    else if (s->op == P_ld && s->how == P_param)
        *to = launch->params[s->param];
    else if (s->op == P_ld)
        load(to, address(s, a, shared), s->bytes);
    else if (s->op == P_st)
        memcpy(address(s, get(thread, &s->of[0]), shared), &a, s->bytes);
    else if (s->op == P_red)
        add_to(address(s, get(thread, &s->of[0]), shared), a);
    else if (s->type == P_f32)
        *to = count_f32(s->op, f32_of(a), f32_of(b));
    else if (s->type == P_f64)
        *to = count_f64(s->op, f64_of(a), f64_of(b));
    else if (s->op != P_bar)
        *to = count_integer(s, a, b);
    return !thread->is_over && s->op != P_bar;
}

UNWATCHED static void run_block(const struct launch *launch, unsigned number,
                                struct thread *threads)
{
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
    struct thread *threads = calloc(launch->block, sizeof *threads);

    if (!threads)
        die("no memory", "threads");
    for (unsigned number = 0; number < launch->grid; number++)
        run_block(launch, number, threads);
    free(threads);
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
    cudaDeviceSynchronize(); /* the real one may wait, too */
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
    *out = module;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    if (fake_enter())
        return CUDA_ERROR_UNKNOWN;
    for (int i = 0; i < module->count; i++)
        if (strcmp(module->functions[i].name, name) == 0) {
            *out = &module->functions[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_UNKNOWN;
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
    cudaDeviceSynchronize(); /* its kernels may be running */
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
