/* SPDX-License-Identifier: Apache-2.0 */
/* One table: parser, defaults and --help come from it. */
#include "worker_sdk/cnn/options.h"

#include <errno.h>
#include <math.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/base/nearest.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/cnn/backend.h"

enum kind {
    FLAG,
    TEXT,
    NUMBER,
    REAL
};

struct option {
    const char *name;
    enum kind kind;
    size_t offset; /* of the field in struct cnn_train_options */
    uint64_t min, max;
    const char *value; /* default, as the user would type it; NULL: off, or none */
    const char *metavar;
    const char *help;
};

#define AT(field) offsetof(struct cnn_train_options, field)
enum {
    BATCH_MAX = 65536,
    THREADS_MAX = 256
};

static const struct option options[] = {
    {"data", TEXT, AT(data), 0, 0, NULL, "DIR",
     "MNIST or Fashion-MNIST in IDX files (default: Debian's dataset-fashion-mnist)"},
    {"epochs", NUMBER, AT(epochs), 0, 1000000, "14", "N",
     "passes over the training set"},
    {"batch-size", NUMBER, AT(batch_size), 1, BATCH_MAX, "64", "N",
     "samples of a step, each worker"},
    {"global-batch", NUMBER, AT(global_batch), 0, 1u << 24, "0", "N",
     "samples of a step, all workers together; 0: batch-size times workers"},
    {"virtual-workers", NUMBER, AT(virtual_workers), 0, 4096, "0", "N",
     "the same bits on any number of workers: gradients of N parts, added along one "
     "tree"},
    {"zero", FLAG, AT(zero), 0, 0, NULL, NULL,
     "each worker keeps its share of the optimizer's state only (ZeRO-1)"},
    {"test-batch-size", NUMBER, AT(test_batch_size), 1, BATCH_MAX, "250", "N",
     "samples tested at once; does not change the result"},
    {"lr", REAL, AT(lr), 0, 0, "1.0", "X", "learning rate of Adadelta"},
    {"gamma", REAL, AT(gamma), 0, 0, "0.7", "X",
     "the learning rate is multiplied with it after each epoch"},
    {"seed", NUMBER, AT(seed), 0, UINT64_MAX, "1", "N",
     "of first weights, sample order and dropout"},
    {"init", TEXT, AT(init), 0, 0, NULL, "FILE",
     "first weights: a safetensors file with PyTorch's names"},
    {"no-dropout", FLAG, AT(no_dropout), 0, 0, NULL, NULL,
     "all units are kept; not with --backend=cuda"},
    {"no-shuffle", FLAG, AT(no_shuffle), 0, 0, NULL, NULL,
     "samples in the order of the files"},
    {"dump-gradients", TEXT, AT(dump_gradients), 0, 0, NULL, "FILE",
     "at the end write the last step's gradients there (safetensors)"},
    {"save", TEXT, AT(save), 0, 0, NULL, "PATH",
     "write a checkpoint (safetensors, PyTorch's names) after each epoch"},
    {"save-steps", NUMBER, AT(save_steps), 0, 1u << 30, "500", "N",
     "and after every N steps; 0: only after epochs"},
    {"save-sharded", FLAG, AT(save_sharded), 0, 0, NULL, NULL,
     "PATH is a folder, into which all workers write in the background"},
    {"keep", NUMBER, AT(keep), 0, 1u << 20, "3", "N",
     "sharded checkpoints that stay, the newest; 0: all"},
    {"resume", FLAG, AT(resume), 0, 0, NULL, NULL,
     "continue from the checkpoint at --save if there is one"},
    {"backend", TEXT, AT(backend), 0, 0, "auto", "NAME",
     "auto or one of those listed below"},
    {"exchange", TEXT, AT(exchange), 0, 0, "host", "NAME",
     "gradients are summed by host (shared memory, TCP) or nccl (needs "
     "--backend=cuda)"},
    {"threads", NUMBER, AT(threads), 0, THREADS_MAX, "0", "N",
     "computing threads; 0: usable cores over workers on this host, 1 with "
     "--virtual-workers"},
    {"log-interval", NUMBER, AT(log_interval), 0, 1u << 30, NULL, "N",
     "steps between loss lines (default: 100; with --json 0: none)"},
    {"limit-steps", NUMBER, AT(limit_steps), 0, UINT64_MAX, "0", "N",
     "end after N steps in all, counted from the first start; 0: no limit"},
    {"json", FLAG, AT(json), 0, 0, NULL, NULL,
     "one JSON object a line on standard output, one line an epoch"},
};
enum {
    OPTIONS = sizeof options / sizeof *options
};

static void *field_of(struct cnn_train_options *out, const struct option *option)
{
    return (char *)out + option->offset;
}

static int parse_real(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    return end == text || *end || !isfinite(*out) || *out < 0 ? -EINVAL : 0;
}

static int set(struct cnn_train_options *out, const struct option *option,
               const char *value, struct ctrun_error *err)
{
    void *field = field_of(out, option);

    switch (option->kind) {
    case FLAG: *(bool *)field = true; return 0;
    case TEXT:
        if (!*value)
            return ct_fail(err, CTRUN_E_USAGE, "--%s: its value is empty",
                           option->name);
        *(const char **)field = value;
        return 0;
    case NUMBER:
        if (ct_parse_u64(value, option->min, option->max, field) < 0)
            return ct_fail(err, CTRUN_E_USAGE,
                           "--%s %.60s: not a number from %llu to %llu", option->name,
                           value, (unsigned long long)option->min,
                           (unsigned long long)option->max);
        return 0;
    case REAL:
        if (parse_real(value, field) < 0)
            return ct_fail(err, CTRUN_E_USAGE, "--%s %.60s: not a number from 0 on",
                           option->name, value);
        return 0;
    }
    return 0;
}

static int fail_unknown(const char *name, size_t length, struct ctrun_error *err)
{
    char typed[61];
    struct ct_nearest near;

    (void)ct_format(typed, sizeof typed, "%.*s", (int)length, name); /* cut is fine */
    near = ct_nearest_to(typed);
    for (size_t i = 0; i < OPTIONS; i++)
        ct_nearest_offer(&near, options[i].name);
    if (near.word)
        return ct_fail(err, CTRUN_E_USAGE, "--%s: unknown option; did you mean --%s?",
                       typed, near.word);
    return ct_fail(err, CTRUN_E_USAGE, "--%s: unknown option; --help lists all", typed);
}

static const struct option *find(const char *name, size_t length)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if (strlen(options[i].name) == length &&
            memcmp(options[i].name, name, length) == 0)
            return &options[i];
    return NULL;
}

/* Takes the option at argv[*i] with its value, which may be the next argument. */
static int parse_one(struct cnn_train_options *out, char **argv, int *i,
                     struct ctrun_error *err)
{
    const char *name = argv[*i] + 2;
    const size_t length = strcspn(name, "=");
    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    const struct option *option = find(name, length);

    if (!option)
        return fail_unknown(name, length, err);
    if (option->kind == FLAG && value)
        return ct_fail(err, CTRUN_E_USAGE, "--%s: takes no value", option->name);
    if (option->kind != FLAG && !value && !(value = argv[*i + 1]))
        return ct_fail(err, CTRUN_E_USAGE, "--%s: its value is missing", option->name);
    if (option->kind != FLAG && name[length] != '=')
        (*i)++;
    return set(out, option, value, err);
}

static int check_exchange(const struct cnn_train_options *out, struct ctrun_error *err)
{
    if (strcmp(out->exchange, "host") == 0)
        return 0;
    if (out->dump_gradients || out->zero || out->virtual_workers)
        return ct_fail(err, CTRUN_E_USAGE, "--%s: needs --exchange=host",
                       out->dump_gradients ? "dump-gradients"
                       : out->zero         ? "zero"
                                           : "virtual-workers");
    if (strcmp(out->exchange, "nccl") != 0)
        return ct_fail(err, CTRUN_E_USAGE, "--exchange %.60s: use host or nccl",
                       out->exchange);
    return strcmp(out->backend, "cuda") == 0
               ? 0
               : ct_fail(err, CTRUN_E_USAGE,
                         "--exchange=nccl: needs --backend=cuda: it carries gradients "
                         "from GPU to GPU");
}

int cnn_options_parse(struct cnn_train_options *out, int argc, char **argv,
                      struct ctrun_error *err)
{
    int rc;

    *out = (struct cnn_train_options){.data = ctrun_dataset_default_directory(),
                                      .log_interval = UINT64_MAX};
    for (size_t i = 0; i < OPTIONS; i++)
        if (options[i].value && (rc = set(out, &options[i], options[i].value, err)) < 0)
            return rc;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return 1;
        if (strcmp(argv[i], "--version") == 0)
            return 2;
        if (strncmp(argv[i], "--", 2) != 0)
            return ct_fail(err, CTRUN_E_USAGE,
                           "%.60s: unexpected argument; --help lists all", argv[i]);
        if ((rc = parse_one(out, argv, &i, err)) < 0)
            return rc;
    }
    if (out->log_interval == UINT64_MAX)
        out->log_interval = out->json ? 0 : 100;
    if (out->resume && !out->save)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--resume: needs --save PATH to resume from");
    if (out->save_sharded && !out->save)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--save-sharded: needs --save PATH to write to");
    if (out->save_sharded && out->zero)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--save-sharded: not with --zero, whose checkpoint worker 0 writes");
    return check_exchange(out, err);
}

void cnn_options_help(FILE *to)
{
    char why[200];

    fputs("usage: ctrun-mnist [OPTION...]\n\n"
          "Trains the network of PyTorch's MNIST example, alone or as one of the "
          "workers that\n"
          "ctrun, torchrun or anything else started that sets RANK and WORLD_SIZE.\n\n",
          to);
    for (size_t i = 0; i < OPTIONS; i++) {
        const struct option *option = &options[i];
        char left[40];

        (void)ct_format(left, sizeof left, "--%s%s%s", option->name,
                        option->metavar ? " " : "",
                        option->metavar ? option->metavar : "");
        fprintf(to, "  %-22s %s", left, option->help);
        if (option->value && strcmp(option->value, "0") != 0)
            fprintf(to, " (default: %s)", option->value);
        fputc('\n', to);
    }
    fputs("  --help                 this text\n"
          "  --version              the version\n\nback ends:",
          to);
    for (size_t i = 0; cnn_backends[i]; i++)
        fprintf(to, "%s %s%s", i ? "," : "", cnn_backends[i]->name,
                cnn_backends[i]->is_usable(why, sizeof why) ? ""
                                                            : " (not on this machine)");
    fputs("\nexit status: 0 done (or SIGUSR1, and saved), 1 failed, 2 wrong usage, 143 "
          "terminated"
          " and saved\n",
          to);
}
